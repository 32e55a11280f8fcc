#include "planner/cli/idle_inputs.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "planner/cli/inputs.hpp"

namespace shardplan::plan::cli {
namespace {

/// Last fields of a path that say what something is, not what it costs.
constexpr std::array<std::string_view, 14> descriptive = {
    "name",    "title",      "note",   "aliases", "assumed_aliases", "source",   "sources",
    "version", "confidence", "origin", "vendor",  "currency",        "scalable", "derived_from"};

/// Parts of a path that other questions than an estimate read: the calendar, legality, the search.
constexpr std::array<std::string_view, 5> elsewhere = {
    "mean_time_to_failure", "storage", "constraints", "objective", "tokens_to_train"};

std::string_view last_field(std::string_view path) {
    const std::size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

bool is_read_elsewhere(std::string_view path, Asked asked) {
    const std::string_view last = last_field(path);
    const std::string_view field = last.substr(0, last.find('['));
    return std::find(descriptive.begin(), descriptive.end(), field) != descriptive.end() ||
           std::any_of(
               elsewhere.begin(), elsewhere.end(),
               [&](std::string_view part) { return path.find(part) != std::string_view::npos; }) ||
           (asked == Asked::plan && path.starts_with("capabilities"));
}

/// Something typed: how it reads, the field it sets ("job.moe.capacity"; empty: a feature), and the
/// options without it.
struct Typed {
    std::string text;
    std::string root;
    std::string path;
    ScenarioOptions without;
};

std::vector<Typed> typed_inputs(const ScenarioOptions& options) {
    std::vector<Typed> out;
    const auto copy_without = [&](auto member, std::size_t i) {
        ScenarioOptions rest = options;
        auto& list = rest.*member;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        return rest;
    };
    for (std::size_t i = 0; i < options.sets.size(); ++i) {
        const Setting setting = split_setting(options.sets[i]);
        out.push_back({"--set " + options.sets[i], std::string(setting.root),
                       std::string(setting.path), copy_without(&ScenarioOptions::sets, i)});
    }
    for (std::size_t i = 0; i < options.job_fields.size(); ++i) {
        const FieldValue& field = options.job_fields[i];
        out.push_back({field.flag + " " + field.value, "job", field.path,
                       copy_without(&ScenarioOptions::job_fields, i)});
    }
    for (std::size_t i = 0; i < options.features.size(); ++i) {
        out.push_back({"--feature " + options.features[i], "stack", "features",
                       copy_without(&ScenarioOptions::features, i)});
    }
    return out;
}

/// Whether two scenarios differ in more than what an estimate reads of the job: a default that is
/// written out changes the job and nothing that is resolved from it.
bool says_something_else(const sim::Evaluator& a, const sim::Evaluator& b, std::string_view root) {
    if (root == "job") {
        return !(a.resolved() == b.resolved());
    }
    const sim::Scenario& x = a.scenario();
    const sim::Scenario& y = b.scenario();
    return !(x.model == y.model && x.cluster == y.cluster && x.stack == y.stack &&
             x.devices == y.devices);
}

sim::Warning without_effect(const std::string& text) {
    return {"no-effect", text + " changes no figure of this layout"};
}

} // namespace

std::vector<sim::Warning> inputs_without_effect(const ScenarioOptions& options,
                                                const sim::Evaluator& evaluator,
                                                const sim::Layout& layout,
                                                const sim::Estimate& estimate, Asked asked) {
    std::vector<sim::Warning> out;
    // what the job says of experts and adapters that are not there has a warning of its own
    const bool told = std::any_of(
        estimate.warnings.begin(), estimate.warnings.end(), [](const sim::Warning& warning) {
            return warning.id == "no-effect" && warning.text.starts_with("job.");
        });
    for (const Typed& typed : typed_inputs(options)) {
        const bool covered = told && typed.root == "job" &&
                             (typed.path.starts_with("moe") || typed.path.starts_with("method"));
        if (covered || is_read_elsewhere(typed.path, asked)) {
            continue;
        }
        auto scenario = scenario_from(typed.without);
        if (!scenario) {
            continue; // it is needed
        }
        const auto other = sim::Evaluator::make(std::move(*scenario), evaluator.tables());
        if (!other || !says_something_else(evaluator, *other, typed.root) ||
            !sim::check_layout(other->scenario(), other->resolved(), layout, other->tables())
                 .empty()) {
            continue;
        }
        sim::Workspace workspace;
        if (other->estimate(layout, workspace) == estimate) {
            out.push_back(without_effect(typed.text));
        }
    }
    return out;
}

std::vector<sim::Warning> terms_without_effect(const sim::Evaluator& evaluator,
                                               const sim::Layout& layout,
                                               const sim::Estimate& estimate) {
    const sim::Layout plain;
    std::vector<std::pair<std::string, sim::Layout>> variants;
    const auto vary = [&](std::string text, auto&& change) {
        sim::Layout other = layout;
        change(other);
        if (!(other == layout)) {
            variants.emplace_back(std::move(text), other);
        }
    };
    vary("sp", [&](sim::Layout& l) { l.sp = false; });
    vary("rc", [&](sim::Layout& l) { l.recompute = 0; });
    vary("prefetch", [&](sim::Layout& l) { l.prefetch = plain.prefetch; });
    vary("noreshard", [&](sim::Layout& l) { l.reshard = plain.reshard; });
    vary("wrap", [&](sim::Layout& l) { l.wrap = plain.wrap; });
    vary("order", [&](sim::Layout& l) { l.order = plain.order; });
    vary("etp", [&](sim::Layout& l) { l.etp = 0; });
    vary("off", [&](sim::Layout& l) {
        l.offload_tier = sim::OffloadTier::none;
        l.offload_optimizer = l.offload_parameters = l.offload_activations = 0;
    });
    std::vector<sim::Warning> out;
    sim::Workspace workspace;
    for (const auto& [text, other] : variants) {
        const bool legal =
            sim::check_layout(evaluator.scenario(), evaluator.resolved(), other, evaluator.tables())
                .empty();
        if (legal && evaluator.estimate(other, workspace) == estimate) {
            out.push_back(without_effect("term " + text));
        }
    }
    return out;
}

} // namespace shardplan::plan::cli
