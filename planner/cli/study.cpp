#include "planner/cli/study.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/cli/inputs.hpp"
#include "planner/import/catalogue_once.hpp"
#include "planner/search/plan.hpp"
#include "simulator/io/document.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// Whether the default batch was taken: then it follows the devices and the sequence.
bool batch_is_default(const sim::Scenario& scenario) {
    return std::any_of(scenario.assumptions.begin(), scenario.assumptions.end(),
                       [](const sim::Assumption& a) { return a.path == "job.global_batch"; });
}

/// What a plan file cannot be given from outside; empty: nothing of it was given.
std::string foreign_flag(const ScenarioOptions& options) {
    const std::pair<const char*, bool> given[] = {
        {"--model", !options.model.empty()},
        {"--cluster", !options.cluster.empty()},
        {"--job", !options.job.empty()},
        {"--stack", !options.stack.empty()},
        {"--calibration", !options.calibration.empty()},
        {"--feature", !options.features.empty()},
        {"--device-peak", !options.device_peak.empty()},
        {"--device-memory", !options.device_memory.empty()},
        {"--device-bandwidth", !options.device_bandwidth.empty()},
    };
    for (const auto& [flag, is_given] : given) {
        if (is_given) {
            return flag;
        }
    }
    return "";
}

/// The scenario of a plan file with what flags change of it.
sim::Status change_scenario(sim::Scenario& scenario, const ScenarioOptions& options,
                            const VaryRules& rules) {
    if (const std::string flag = foreign_flag(options); !flag.empty()) {
        return sim::Error{sim::ErrorCode::bad_input, flag, "the plan file says this already",
                          "leave out the flag, or the file; single fields: --set"};
    }
    const auto status = check_sets(options.sets, {"job", "model", "cluster", "stack", "device"});
    if (!status) {
        return status;
    }
    std::vector<FieldSetting> settings;
    if (options.gpus) {
        settings.push_back({"gpus", std::to_string(*options.gpus)});
    }
    for (const FieldValue& field : options.job_fields) {
        settings.push_back({"job." + field.path, field.value});
        if (field.path.starts_with("global_batch.")) {
            scenario.job.global_batch.sequences = 0;
            scenario.job.global_batch.tokens = 0;
        }
    }
    for (const std::string& text : options.sets) {
        const std::size_t equals = text.find('=');
        settings.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
    if (settings.empty()) {
        return sim::Done{};
    }
    auto changed = vary(scenario, settings, rules, "--set");
    if (!changed) {
        return changed.error();
    }
    scenario = std::move(*changed);
    return sim::Done{};
}

} // namespace

sim::Result<Study> study_from(const std::string& document, std::int64_t plan,
                              const ScenarioOptions& options, const std::string& layout) {
    Study out;
    out.layout = layout;
    const auto& catalogue = catalogue_once();
    if (!catalogue) {
        return catalogue.error();
    }
    out.catalogue = *catalogue;
    if (document.empty()) {
        auto scenario = scenario_from(options);
        if (!scenario) {
            return scenario.error();
        }
        out.scenario = std::move(*scenario);
    } else {
        auto file = sim::read_document_file(document);
        if (!file) {
            return file.error();
        }
        const auto count = static_cast<std::int64_t>(file->plans.size());
        if (plan < 1 || plan > count) {
            return sim::Error{
                sim::ErrorCode::bad_input, "--plan",
                fmt::format("{} holds {} plans, there is no plan {}", document, count, plan),
                fmt::format("write a number from 1 to {}", count)};
        }
        out.scenario = std::move(file->scenario);
        const auto status = change_scenario(out.scenario, options, {&out.catalogue, {}});
        if (!status) {
            return status.error();
        }
        if (layout.empty()) {
            out.layout = file->plans[static_cast<std::size_t>(plan - 1)].layout;
        }
    }
    if (batch_is_default(out.scenario)) {
        out.batch = default_batch;
    }
    return out;
}

sim::Result<bool> find_layout(Study& study) {
    if (!study.layout.empty()) {
        return true;
    }
    const auto evaluator = sim::Evaluator::make(study.scenario);
    if (!evaluator) {
        return evaluator.error();
    }
    SearchOptions search;
    search.top = 1;
    search.objective = study.scenario.job.objective;
    const PlanSet set = plan(*evaluator, search);
    if (set.plans.empty()) {
        return false;
    }
    study.layout = set.plans.front().text;
    return true;
}

std::optional<Study> study_with_layout(const std::string& document, std::int64_t plan,
                                       const ScenarioOptions& options, const std::string& layout,
                                       std::string_view without, const Console& console,
                                       int& code) {
    auto study = study_from(document, plan, options, layout);
    const auto found = study ? find_layout(*study) : sim::Result<bool>(study.error());
    if (!found) {
        code = fail(console, found.error());
        return std::nullopt;
    }
    if (!*found) {
        console.err << "no layout fits, so " << without << "; see `shardplan fit`\n";
        code = console.no();
        return std::nullopt;
    }
    return std::move(*study);
}

sim::Result<double> share_from(const std::string& text, std::string_view where) {
    const bool is_percent = !text.empty() && text.back() == '%';
    const std::string_view digits =
        std::string_view(text).substr(0, text.size() - (is_percent ? 1 : 0));
    const auto number = sim::parse_quantity(digits, sim::Dimension::scalar, where);
    if (!number) {
        return number.error();
    }
    if (!(*number > 0.0)) {
        return sim::Error{sim::ErrorCode::bad_input, std::string(where),
                          sim::in_quotes(text) + " is no share", "write for example 10% or 0.1"};
    }
    return is_percent ? *number / 100.0 : *number;
}

// Only the program's own standard error can be a terminal; tests write to strings.
} // namespace shardplan::plan::cli
