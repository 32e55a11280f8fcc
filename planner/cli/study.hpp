#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/analysis/vary.hpp"
#include "planner/cli/console.hpp"
#include "planner/cli/options.hpp"

/// What the verbs that vary a scenario share.
namespace shardplan::plan::cli {

/// A scenario that may be varied, with the rules to do so.
struct Study {
    sim::Scenario scenario;
    sim::Catalogue catalogue;
    std::string layout; ///< text form; empty where none was named
    BatchRule batch;    ///< set where the user named no batch

    [[nodiscard]] VaryRules rules() const { return {&catalogue, batch}; }
};

/// From a plan file with the fields of the job, the size and the settings that flags change, or
/// from flags alone where `document` is empty. `layout` wins over that of the file. Errors: `where`
/// is the flag or file.
sim::Result<Study> study_from(const std::string& document, std::int64_t plan,
                              const ScenarioOptions& options, const std::string& layout);

/// Gives the study the best layout where it has none. False: nothing fits.
sim::Result<bool> find_layout(Study& study);

/// Both, for verbs that end where nothing fits, with `without` told of it. Nothing: the verb ends
/// with `code`.
std::optional<Study> study_with_layout(const std::string& document, std::int64_t plan,
                                       const ScenarioOptions& options, const std::string& layout,
                                       std::string_view without, const Console& console, int& code);

/// A share: "0.1" or "10%". Errors: not a number above 0, and `where`.
sim::Result<double> share_from(const std::string& text, std::string_view where);

} // namespace shardplan::plan::cli
