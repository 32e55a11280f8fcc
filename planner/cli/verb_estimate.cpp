#include <iterator>
#include <utility>

#include "planner/cli/idle_inputs.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/layout_input.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_calendar.hpp"
#include "planner/cli/present_groups.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/document.hpp"

namespace shardplan::plan::cli {
namespace {

int refuse(const Console& console, const sim::Evaluator& evaluator, const std::string& layout,
           const std::vector<sim::Refusal>& refusals) {
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object();
        write_scenario_summary(json, evaluator);
        json.member("layout", layout).member("verdict", "not legal");
        write_refusals(json, refusals);
        json.end_object();
        console.out << json.str();
    } else {
        console.out << styled("not legal", Style::bad, console.color) << ": " << layout << " under "
                    << evaluator.scenario().stack.name << '\n';
        print_refusals(console.out, refusals, console.color);
    }
    return console.no();
}

void print(const Console& console, const sim::Evaluator& evaluator, const Shown& shown,
           const std::optional<Calendar>& calendar, const std::vector<sim::Warning>& warnings) {
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object();
        write_scenario_summary(json, evaluator);
        json.key("estimate");
        write_estimate(json, shown);
        write_node_groups(json, evaluator, shown.estimate);
        write_calendar(json, calendar);
        write_notes(json, all_assumptions(evaluator), warnings);
        json.end_object();
        console.out << json.str();
        return;
    }
    print_first_screen(console, evaluator, shown);
    print_node_groups(console, evaluator, shown.estimate);
    print_memory(console, shown.estimate);
    print_time(console, shown.estimate);
    print_links(console, shown.estimate);
    print_calendar(console, calendar);
    print_warnings(console.out, warnings, console.color);
    print_assumptions(console.out, all_assumptions(evaluator), console.color);
}

void append(std::vector<sim::Warning>& warnings, std::vector<sim::Warning> more) {
    warnings.insert(warnings.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
}

} // namespace

int run_estimate(const EstimateOptions& options, const Console& console) {
    auto scenario = scenario_from(options.scenario);
    if (!scenario) {
        return fail(console, scenario.error());
    }
    sim::LayoutTables tables;
    const auto layout = layout_from(options.layout, "--layout", *scenario, tables);
    if (!layout) {
        return fail(console, layout.error());
    }
    const auto evaluator = sim::Evaluator::make(std::move(*scenario), std::move(tables));
    if (!evaluator) {
        return fail(console, evaluator.error());
    }
    const std::string text = sim::to_text(*layout, evaluator->tables());
    const auto refusals = sim::check_layout(evaluator->scenario(), evaluator->resolved(), *layout,
                                            evaluator->tables());
    if (!refusals.empty()) {
        return refuse(console, *evaluator, text, refusals);
    }
    sim::Workspace workspace;
    sim::Estimate estimate;
    evaluator->evaluate(*layout, workspace, estimate);
    evaluator->annotate(*layout, estimate);
    const auto calendar = calendar_from(options.losses, evaluator->scenario(), estimate);
    if (!calendar) {
        return fail(console, calendar.error());
    }
    const bool to_out = options.output == "-";
    if (!options.output.empty()) {
        sim::Document document;
        document.tool_version = SHARDPLAN_VERSION;
        document.scenario = evaluator->scenario();
        document.plans = {{text, sim::headline_of(estimate), "given"}};
        if (const auto status = write_plan(options.output, document, console); !status) {
            return fail(console, status.error());
        }
    }
    if (!to_out) {
        auto warnings = all_warnings(*evaluator, *layout, estimate);
        append(warnings, terms_without_effect(*evaluator, *layout, estimate));
        append(warnings, inputs_without_effect(options.scenario, *evaluator, *layout, estimate,
                                               Asked::estimate));
        print(console, *evaluator, {text, estimate}, *calendar, warnings);
    }
    return estimate.verdict == sim::Verdict::does_not_fit ? console.no() : exit_code::yes;
}

} // namespace shardplan::plan::cli
