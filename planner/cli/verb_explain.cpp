#include <utility>

#include <fmt/format.h>

#include "planner/cli/inputs.hpp"
#include "planner/cli/layout_input.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_groups.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// What is explained: from a document, or from flags as for `estimate`.
struct Subject {
    sim::Scenario scenario;
    sim::LayoutTables tables;
    sim::Layout layout;
};

/// Whether any flag describes a scenario.
bool changes_scenario(const ScenarioOptions& o) {
    return !(o.model.empty() && o.cluster.empty() && !o.gpus && o.job.empty() && o.stack.empty() &&
             o.calibration.empty() && o.features.empty() && o.job_fields.empty() &&
             o.sets.empty() && o.device_peak.empty() && o.device_memory.empty() &&
             o.device_bandwidth.empty());
}

sim::Result<Subject> subject_from(const ExplainOptions& options) {
    Subject out;
    std::string layout = options.layout;
    std::string where = "--layout";
    if (options.document.empty()) {
        auto scenario = scenario_from(options.scenario);
        if (!scenario) {
            return scenario.error();
        }
        out.scenario = std::move(*scenario);
    } else {
        if (changes_scenario(options.scenario)) {
            return sim::Error{
                sim::ErrorCode::bad_input, options.document,
                "a plan file holds its whole scenario, so flags cannot change it",
                "leave the plan file out and give --model, --cluster and --layout, or "
                "leave those flags out"};
        }
        auto document = sim::read_document_file(options.document);
        if (!document) {
            return document.error();
        }
        const auto count = static_cast<std::int64_t>(document->plans.size());
        if (options.plan < 1 || options.plan > count) {
            return sim::Error{sim::ErrorCode::bad_input, "--plan",
                              fmt::format("{} holds {} plans, there is no plan {}",
                                          options.document, count, options.plan),
                              fmt::format("write a number from 1 to {}", count)};
        }
        out.scenario = std::move(document->scenario);
        if (layout.empty()) {
            layout = document->plans[static_cast<std::size_t>(options.plan - 1)].layout;
            where = options.document;
        }
    }
    const auto parsed = layout_from(layout, where, out.scenario, out.tables);
    if (!parsed) {
        return parsed.error();
    }
    out.layout = *parsed;
    return out;
}

void write_term(sim::JsonWriter& json, const sim::Term& term) {
    json.begin_object()
        .member("path", term.path)
        .member("label", term.label)
        .member("value", term.value)
        .member("text", sim::format_quantity(term.value, term.dimension))
        .member("formula", term.formula)
        .member("detail", term.detail)
        .member("source", term.source);
    json.begin_array("children");
    for (const sim::Term& child : term.children) {
        write_term(json, child);
    }
    json.end_array().end_object();
}

void add_rows(Table& table, const sim::Term& term, std::int64_t level, std::int64_t depth) {
    const std::string indent(static_cast<std::size_t>(2 * level), ' ');
    table.add({indent + (term.label.empty() ? term.path : term.label),
               {sim::format_quantity(term.value, term.dimension), Style::strong},
               term.detail,
               {term.source, Style::faint}});
    if (depth > 0 && level + 1 >= depth) {
        return;
    }
    for (const sim::Term& child : term.children) {
        add_rows(table, child, level + 1, depth);
    }
}

} // namespace

int run_explain(const ExplainOptions& options, const Console& console) {
    auto subject = subject_from(options);
    if (!subject) {
        return fail(console, subject.error());
    }
    const auto evaluator =
        sim::Evaluator::make(std::move(subject->scenario), std::move(subject->tables));
    if (!evaluator) {
        return fail(console, evaluator.error());
    }
    const auto refusals = sim::check_layout(evaluator->scenario(), evaluator->resolved(),
                                            subject->layout, evaluator->tables());
    const std::string text = sim::to_text(subject->layout, evaluator->tables());
    if (!refusals.empty()) {
        if (console.json) {
            sim::JsonWriter json;
            json.begin_object().member("layout", text).member("verdict", "not legal");
            write_refusals(json, refusals);
            json.end_object();
            console.out << json.str();
        } else {
            console.out << styled("not legal", Style::bad, console.color) << ": " << text << '\n';
            print_refusals(console.out, refusals, console.color);
        }
        return console.no();
    }
    sim::Workspace workspace;
    const auto term = evaluator->explain(subject->layout, options.term, workspace);
    if (!term) {
        sim::Error error = term.error();
        error.where = "--term " + options.term;
        return fail(console, error);
    }
    sim::Estimate estimate;
    evaluator->evaluate(subject->layout, workspace, estimate);
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().member("layout", text);
        write_calibration(json, evaluator->scenario());
        write_node_groups(json, *evaluator, estimate);
        json.key("term");
        write_term(json, *term);
        json.end_object();
        console.out << json.str();
        return exit_code::yes;
    }
    console.out << styled(text, Style::strong, console.color) << "\nconstants  "
                << calibration_words(evaluator->scenario()) << '\n';
    Table table({{term->path, Align::left},
                 {"", Align::right},
                 {"how", Align::left},
                 {"source", Align::left}});
    add_rows(table, *term, 0, options.depth);
    table.print(console.out, console.color);
    print_node_groups(console, *evaluator, estimate);
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
