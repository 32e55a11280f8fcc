#include <fmt/format.h>

#include "planner/analysis/measured_set.hpp"
#include "planner/cli/measured_plan.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/json.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100.0 * share); }

void print_text(const Console& console, const MeasuredSummary& summary, std::size_t files) {
    console.out << fmt::format("{} runs of {} layouts\n", files, summary.layouts.size());
    Table table({{"model"},
                 {"layout"},
                 {"ranks", Align::right},
                 {"runs", Align::right},
                 {"measured", Align::right},
                 {"spread", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right},
                 {"peak", Align::right},
                 {"held"}});
    for (const MeasuredLayout& l : summary.layouts) {
        table.add({l.model, l.layout, std::to_string(l.ranks), std::to_string(l.runs),
                   sim::to_text(l.measured), percent(l.spread), sim::to_text(l.predicted.value),
                   signed_percent(l.error()), signed_percent(l.peak_error),
                   l.held_equal ? "equal" : "differs"});
    }
    print_heading(console.out, "Error = prediction / measurement - 1", console.color);
    table.print(console.out, console.color, 2);
    const ErrorFigures& time = summary.time;
    print_heading(console.out, "All layouts", console.color);
    console.out << fmt::format(
        "  step time      median {}, p90 {}, bias {}; {:.0f} % in the band, {:.0f} % in twice the "
        "band\n"
        "  peak memory    median {}, p90 {}\n"
        "  held memory    equal to the byte in {} of {}\n",
        percent(time.median), percent(time.p90), signed_percent(time.bias), 100.0 * time.within_one,
        100.0 * time.within_two, percent(summary.peak.median), percent(summary.peak.p90),
        summary.held_equal, summary.layouts.size());
    for (const MeasuredChoice& c : summary.choices) {
        console.out << fmt::format(
            "  {} on {} ranks, {} layouts with a spread below {}: predicted best {}, measured best "
            "{}, {} slower\n",
            c.model, c.ranks, c.layouts, percent(steady_spread), c.chosen, c.best,
            percent(c.regret));
    }
}

void print_json(const Console& console, const MeasuredSummary& summary) {
    sim::JsonWriter json;
    json.begin_object().begin_array("layouts");
    for (const MeasuredLayout& l : summary.layouts) {
        json.begin_object()
            .member("model", l.model)
            .member("layout", l.layout)
            .member("ranks", l.ranks)
            .member("runs", l.runs)
            .member("measured_step_time_s", l.measured.value())
            .member("spread", l.spread)
            .member("predicted_step_time_s", l.predicted.value.value())
            .member("predicted_step_time_low_s", l.predicted.low.value())
            .member("predicted_step_time_high_s", l.predicted.high.value())
            .member("error", l.error())
            .member("peak_error", l.peak_error)
            .member("held_equal", l.held_equal)
            .end_object();
    }
    json.end_array();
    json.begin_object("step_time")
        .member("rows", summary.time.rows)
        .member("median", summary.time.median)
        .member("p90", summary.time.p90)
        .member("bias", summary.time.bias)
        .member("within_one_sigma", summary.time.within_one)
        .member("within_two_sigmas", summary.time.within_two)
        .end_object();
    write_errors(json, "peak", summary.peak);
    json.member("held_equal", summary.held_equal).begin_array("choices");
    for (const MeasuredChoice& c : summary.choices) {
        json.begin_object()
            .member("model", c.model)
            .member("ranks", c.ranks)
            .member("layouts", c.layouts)
            .member("chosen", c.chosen)
            .member("best", c.best)
            .member("regret", c.regret)
            .end_object();
    }
    json.end_array().end_object();
    console.out << json.str();
}

} // namespace

int run_validate_measurements(const ValidateOptions& options, const Console& console) {
    auto plans = measured_plans(options.measurements, options.plan, options.calibration);
    if (!plans) {
        return fail(console, plans.error());
    }
    if (plans->size() == 1) {
        show_measured(console, plans->front());
        return exit_code::yes;
    }
    std::vector<MeasuredRun> runs;
    for (MeasuredPlan& plan : *plans) {
        const sim::Measurement& m = plan.measurement;
        runs.push_back({m.model, m.layout, m.ranks, std::move(plan.comparison)});
    }
    const MeasuredSummary summary = summarize(runs);
    if (console.json) {
        print_json(console, summary);
    } else {
        print_text(console, summary, runs.size());
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
