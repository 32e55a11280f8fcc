#include <algorithm>
#include <filesystem>
#include <system_error>

#include "planner/cli/inputs.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/recognise.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan::cli {
namespace {

/// A file that is there, whatever its name looks like.
bool is_file(const std::string& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error);
}

/// Checks the cluster, and gives it the size asked for.
sim::Result<sim::Cluster> checked(sim::Cluster cluster, const ClusterOptions& options,
                                  std::vector<sim::Assumption>& assumptions) {
    if (const auto status = sim::check_cluster(cluster, "--cluster " + options.cluster); !status) {
        return status.error();
    }
    if (!options.gpus) {
        if (cluster.scalable) {
            assumptions.push_back({"cluster.gpus", std::to_string(sim::device_count(cluster)),
                                   "the cluster as described", "give --gpus"});
        }
        return cluster;
    }
    return sim::resize(std::move(cluster), *options.gpus, "--gpus");
}

/// What a person adds to a foreign file, with the cluster that --node names.
sim::Result<ImportHelp> help_of(const ClusterOptions& options) {
    ImportHelp help;
    help.device = options.import.device;
    auto devices = sim::load_devices();
    if (!devices) {
        return devices.error();
    }
    help.catalogue = std::move(*devices);
    if (!options.import.node.empty()) {
        std::vector<sim::Assumption> of_template;
        auto node = cluster_from(
            {options.import.node, std::nullopt, {}, {options.import.device, "", ""}}, of_template);
        if (!node) {
            sim::Error error = node.error();
            error.where = "--node " + options.import.node;
            return error;
        }
        help.node = std::move(*node);
    }
    return help;
}

/// A size beyond the one node of a file means several of them.
bool wants_several(const sim::Cluster& cluster, const ClusterOptions& options) {
    return options.gpus && *options.gpus > sim::device_count(cluster);
}

} // namespace

sim::Result<std::optional<ForeignInput>> foreign_from(const ClusterOptions& options) {
    using Found = std::optional<ForeignInput>;
    if (!is_file(options.cluster)) {
        return Found{};
    }
    const auto text = sim::read_file(options.cluster);
    if (!text) {
        return text.error();
    }
    if (text->starts_with("\xFF\xFE") || text->starts_with("\xFE\xFF")) {
        return sim::Error{sim::ErrorCode::bad_input, options.cluster, "the text is UTF-16",
                          "save the file as UTF-8; a redirection of PowerShell writes UTF-16"};
    }
    const ForeignFormat* format = recognise(*text);
    if (format == nullptr) {
        return Found{};
    }
    auto file = read_foreign(*format, *text, options.cluster);
    if (!file) {
        return file.error();
    }
    auto help = help_of(options);
    if (!help) {
        return help.error();
    }
    std::optional<std::vector<std::string>> inventory;
    if (!options.import.nodes.empty()) {
        auto names = text::expand_hosts(options.import.nodes, "--nodes");
        if (!names) {
            return names.error();
        }
        inventory = std::move(*names);
    }
    diagnose(*file, *help, inventory ? &*inventory : nullptr);
    return Found{ForeignInput{std::move(*file), std::move(*help)}};
}

sim::Result<ImportedCluster> import_cluster(const ForeignInput& input,
                                            const ClusterOptions& options) {
    auto built = build_cluster(input.file, input.help);
    if (!built) {
        return built;
    }
    if (const auto status = apply_sets(built->cluster, "cluster", options.sets); !status) {
        return status.error();
    }
    if (!wants_several(built->cluster, options)) {
        settle_nics(built->cluster, built->assumptions);
    }
    auto cluster = checked(std::move(built->cluster), options, built->assumptions);
    if (!cluster) {
        sim::Error error = cluster.error();
        error.hint +=
            "; what an imported file lacks is given with --node CLUSTER or --set "
            "cluster.PATH=VALUE";
        return error;
    }
    built->cluster = std::move(*cluster);
    return built;
}

sim::Result<sim::Cluster> cluster_from(const ClusterOptions& options,
                                       std::vector<sim::Assumption>& assumptions) {
    const auto foreign = foreign_from(options);
    if (!foreign) {
        return foreign.error();
    }
    if (*foreign) {
        auto imported = import_cluster(**foreign, options);
        if (!imported) {
            return imported.error();
        }
        assumptions.insert(assumptions.end(), imported->assumptions.begin(),
                           imported->assumptions.end());
        // Not complete, so only now, behind check_cluster.
        imported->cluster.devices.insert(imported->cluster.devices.end(),
                                         imported->unknown_devices.begin(),
                                         imported->unknown_devices.end());
        return std::move(imported->cluster);
    }
    std::string name = options.cluster;
    // A bare file name is told from the name of a built-in by a slash.
    if (is_file(name) && name.find('/') == std::string::npos) {
        name.insert(0, "./");
    }
    auto loaded = sim::load_cluster(name);
    if (!loaded) {
        return loaded.error();
    }
    assumptions.insert(assumptions.end(), loaded->assumptions.begin(), loaded->assumptions.end());
    sim::Cluster cluster = std::move(loaded->value);
    if (const auto status = apply_sets(cluster, "cluster", options.sets); !status) {
        return status.error();
    }
    return checked(std::move(cluster), options, assumptions);
}

} // namespace shardplan::plan::cli
