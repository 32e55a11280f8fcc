#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cli/options.hpp"
#include "planner/import/build_cluster.hpp"
#include "simulator/io/setting.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"

/// From options to a Scenario: files and names are loaded, flags and settings applied, and every
/// default taken on the way becomes an Assumption of the scenario.
namespace shardplan::plan::cli {

/// "ROOT.path=value" in its parts, views into the text; empty parts where it is not of the form.
struct Setting {
    std::string_view root, path, value;
};
Setting split_setting(std::string_view text);

/// Checks that every setting is of the form, with a root among `roots`.
sim::Status check_sets(const std::vector<std::string>& sets, const std::vector<std::string>& roots);

/// Applies the settings of one root ("model", "cluster", "job", "stack", "device") and skips the
/// others. Errors: no such field, bad value; `where` is the flag with its text.
template <sim::Described T>
sim::Status apply_sets(T& value, std::string_view root, const std::vector<std::string>& sets) {
    for (const std::string& text : sets) {
        const Setting setting = split_setting(text);
        if (setting.root != root) {
            continue;
        }
        const auto status = sim::apply_setting(value, setting.path, setting.value, "--set " + text);
        if (!status) {
            return status;
        }
    }
    return sim::Done{};
}

/// A file of a foreign format, and what the person adds to it.
struct ForeignInput {
    ForeignCluster file;
    ImportHelp help;
};
/// A cluster argument that is a file of a foreign format, read and diagnosed; nothing for our own
/// files and for names.
sim::Result<std::optional<ForeignInput>> foreign_from(const ClusterOptions& options);
/// The cluster such a file stands for, with settings applied, checked and of the size asked for.
/// Errors: those of build_cluster and check_cluster.
sim::Result<ImportedCluster> import_cluster(const ForeignInput& input,
                                            const ClusterOptions& options);
/// A cluster by name or file. Products of a foreign file that nobody knows are among its devices,
/// without the figures that the file lacks.
sim::Result<sim::Cluster> cluster_from(const ClusterOptions& options,
                                       std::vector<sim::Assumption>& assumptions);

/// Stack taken when none is named: Megatron Core for full training, torchtune for adapters.
std::string_view default_stack(const sim::Job& job);
/// Tokens of one step when the job does not say: about 4 million, as models of the last years are
/// trained (Llama 3 report, section 3.4.1), in whole sequences that the devices divide: all of
/// them, or the largest 2^-k of them by which the batch moves an eighth at most; always their odd
/// part.
sim::GlobalBatch default_batch(std::int64_t sequence, std::int64_t devices);

/// The whole scenario. Errors: `where` is the flag or file.
sim::Result<sim::Scenario> scenario_from(const ScenarioOptions& options);

} // namespace shardplan::plan::cli
