#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/pass_rates.hpp"
#include "planner/analysis/timeline_page.hpp"
#include "planner/analysis/vary.hpp"
#include "planner/cli/gantt.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/present_what_if.hpp"
#include "planner/cli/study.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/engine/simulate.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/trace.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// Characters of the chart: a terminal of 100 columns, less the stage.
constexpr std::size_t chart_width = 92;
/// More stages than fit on a screen are shown by their slowest ones.
constexpr std::size_t most_rows = 16;

/// A step as it was simulated, beside what the estimate says.
struct Answer {
    std::string layout;
    sim::Simulation simulation;
    sim::Estimate estimate;
    std::optional<sim::Measurement> over; ///< a run of the same layout, with a timeline

    [[nodiscard]] const sim::Timeline* measured() const {
        return over && over->timeline ? &*over->timeline : nullptr;
    }
};

bool is_shown(const Answer& a, sim::TimeKind kind) {
    return std::any_of(a.simulation.stages.begin(), a.simulation.stages.end(),
                       [&](const sim::StageActivity& s) { return s.exposed[kind].value() > 0.0; });
}

void print_stages(const Console& console, const Answer& a) {
    std::vector<Table::Column> columns = {
        {"stage", Align::right}, {"busy", Align::right}, {"used", Align::right}};
    std::vector<sim::TimeKind> kinds;
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        const auto kind = static_cast<sim::TimeKind>(k);
        if (!is_shown(a, kind)) continue;
        kinds.push_back(kind);
        columns.push_back({"waits: " + std::string(name_of(kind)), Align::right});
    }
    columns.push_back({"memory peak", Align::right});
    columns.push_back({"during"});
    Table table(std::move(columns));
    for (std::size_t i = 0; i < std::min(most_rows, a.simulation.stages.size()); ++i) {
        const sim::StageActivity& stage = a.simulation.stages[i];
        std::vector<Cell> row = {std::to_string(stage.stage),
                                 sim::to_text(stage.busy),
                                 {percent(stage.utilisation), Style::strong}};
        for (const sim::TimeKind kind : kinds) {
            row.emplace_back(sim::to_text(stage.exposed[kind]));
        }
        const auto peak =
            std::find_if(a.simulation.peaks.begin(), a.simulation.peaks.end(),
                         [&](const sim::MemoryPeak& p) { return p.stage == stage.stage; });
        if (peak != a.simulation.peaks.end()) {
            row.emplace_back(sim::to_text(peak->allocated));
            row.emplace_back(peak->during, Style::faint);
        }
        table.add(std::move(row));
    }
    table.print(console.out, console.color);
    if (a.simulation.stages.size() > most_rows) {
        console.out << fmt::format("and {} more stages; --json lists all\n",
                                   a.simulation.stages.size() - most_rows);
    }
}

std::optional<sim::Seconds> measured_step(const Answer& a) {
    if (!a.over) return std::nullopt;
    const auto median = sim::median_step(*a.over);
    return median ? std::optional(a.over->steps[*median].seconds) : std::nullopt;
}

/// How fast passes go, where the measured ones say what they compute.
void print_rates(const Console& console, const Answer& a) {
    if (a.measured() == nullptr) return;
    Table table({{"pass", Align::left},
                 {"stage", Align::right},
                 {"predicted", Align::right},
                 {"measured", Align::right},
                 {"error", Align::right}});
    for (const PassRate& rate : pass_rates(a.simulation.timeline, *a.measured())) {
        table.add({std::string(name_of(rate.pass)), std::to_string(rate.stage),
                   sim::format_quantity(rate.predicted, sim::Dimension::flop_rate),
                   sim::format_quantity(rate.measured, sim::Dimension::flop_rate),
                   fmt::format("{:+.1f} %", 100.0 * (rate.predicted / rate.measured - 1.0))});
    }
    if (table.empty()) return;
    print_heading(console.out, "Rate of one rank's passes, without their exchanges", console.color);
    table.print(console.out, console.color, 2);
}

void print_text(const Console& console, const Answer& a) {
    const sim::Simulation& s = a.simulation;
    console.out << styled(a.layout, Style::strong, console.color) << '\n';
    const double estimate = a.estimate.time.total.value.value();
    console.out << fmt::format("step {} simulated, {} estimated ({:+.2f} %); {} tasks, {} events\n",
                               sim::to_text(s.step), sim::to_text(a.estimate.time.total.value),
                               100.0 * (s.step.value() / estimate - 1.0), s.tasks, s.events);
    if (const auto step = measured_step(a)) {
        console.out << fmt::format(
            "step {} measured, median of {}; step {} is shown\n", sim::to_text(*step),
            static_cast<std::int64_t>(a.over->steps.size()) - a.over->settling,
            a.over->timeline_step);
    }
    console.out << '\n';
    if (a.measured() != nullptr) {
        print_gantt_over(console.out, s, *a.measured(), chart_width, console.color);
    } else {
        print_gantt(console.out, s, chart_width, console.color);
    }
    console.out << '\n';
    print_stages(console, a);
    console.out << '\n';
    print_path(console, a.simulation);
    print_rates(console, a);
    print_warnings(console.out, a.estimate.warnings, console.color);
}

void write_times(sim::JsonWriter& json, std::string_view key, const sim::SecondsByKind& times) {
    json.begin_object(key);
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        if (times.amounts[k].value() > 0.0) {
            json.member(std::string(name_of(static_cast<sim::TimeKind>(k))) + "_s",
                        times.amounts[k].value());
        }
    }
    json.end_object();
}

/// One step as an object.
void write_answer(sim::JsonWriter& json, const Answer& a) {
    const sim::Simulation& s = a.simulation;
    json.begin_object()
        .member("layout", a.layout)
        .member("simulated_step_time_s", s.step.value())
        .member("estimated_step_time_s", a.estimate.time.total.value.value())
        .member("overhead_s", s.overhead.value());
    if (const auto step = measured_step(a)) json.member("measured_step_time_s", step->value());
    json.member("tasks", s.tasks).member("events", s.events);
    json.begin_array("stages");
    for (const sim::StageActivity& stage : s.stages) {
        json.begin_object()
            .member("stage", stage.stage)
            .member("busy_s", stage.busy.value())
            .member("slowed_s", stage.slowed.value())
            .member("utilisation", stage.utilisation);
        write_times(json, "waits", stage.exposed);
        json.end_object();
    }
    json.end_array().begin_array("memory_peaks");
    for (const sim::MemoryPeak& peak : s.peaks) {
        json.begin_object()
            .member("stage", peak.stage)
            .member("node_group", peak.node_group)
            .member("allocated_bytes", peak.allocated.value())
            .member("phase", name_of(peak.phase))
            .member("at_ns", peak.at)
            .member("during", peak.during);
        json.begin_object("kinds");
        for (std::size_t k = 0; k < sim::tensor_kind_count; ++k) {
            if (peak.kinds.amounts[k].value() != 0.0) {
                json.member(name_of(static_cast<sim::TensorKind>(k)),
                            peak.kinds.amounts[k].value());
            }
        }
        json.end_object().end_object();
    }
    json.end_array().begin_array("critical_path");
    for (const sim::CriticalShare& share : s.critical) {
        json.begin_object()
            .member("stage", share.stage)
            .member("task", name_of(share.task))
            .member("stream", name_of(share.stream))
            .member("kind", share.kind == sim::TimeKind::gemm ? std::string_view("passes")
                                                              : name_of(share.kind))
            .member("seconds", share.seconds.value())
            .end_object();
    }
    json.end_array();
    if (a.measured() != nullptr) {
        json.begin_array("pass_rates");
        for (const PassRate& rate : pass_rates(s.timeline, *a.measured())) {
            json.begin_object()
                .member("stage", rate.stage)
                .member("pass", name_of(rate.pass))
                .member("predicted_flops_per_s", rate.predicted)
                .member("measured_flops_per_s", rate.measured)
                .end_object();
        }
        json.end_array();
    }
    json.end_object();
}

/// What the flags that steer the simulation say.
sim::Result<sim::SimulateOptions> how_from(const SimulateVerbOptions& options, bool json) {
    const auto refused = [](std::string where, std::string what, std::string hint) {
        return sim::Error{sim::ErrorCode::bad_input, std::move(where), std::move(what),
                          std::move(hint)};
    };
    if (options.most_events < 1) {
        return refused("--max-events", std::to_string(options.most_events) + " events are none",
                       "write 1 or more");
    }
    if (options.seed < 0) {
        return refused("--seed", std::to_string(options.seed) + " is below 0", "write 0 or more");
    }
    for (const std::string& path : {options.trace, options.html}) {
        if (path == "-") {
            return refused("--trace and --html", "\"-\" is no file", "name a file; --json prints");
        }
    }
    if (!options.trace.empty() && options.trace == options.html) {
        return refused("--html", options.html + " is the file of --trace as well",
                       "name two files");
    }
    if (!options.what_if.empty() && !(options.trace.empty() && options.html.empty())) {
        return refused("--what-if", "two steps beside one another have no one timeline",
                       "leave out --trace and --html, or make the change with --set and --layout");
    }
    if (!options.what_if.empty() && !options.over.empty()) {
        return refused("--over", "a run cannot lie over a step that is compared with another",
                       "leave out --what-if, or make the change with --set and --layout");
    }
    sim::SimulateOptions how;
    // figures alone need none
    const bool files = !options.trace.empty() || !options.html.empty();
    how.spans = options.what_if.empty() && (!json || files || !options.over.empty());
    how.every_rank = options.every_rank;
    how.seed = static_cast<std::uint64_t>(options.seed);
    how.most_events = options.most_events;
    if (!options.stragglers.empty()) {
        const auto sigma = share_from(options.stragglers, "--stragglers");
        if (!sigma) {
            return sigma.error();
        }
        if (*sigma > 1.0) {
            return refused("--stragglers",
                           "a spread of " + options.stragglers + " is no spread of speeds",
                           "write at most 100%, as in 2% or 0.02");
        }
        how.straggler_sigma = *sigma;
    }
    return how;
}

/// The measurement that --over names, of several the last one. Errors: it has no timeline, or ran
/// under another layout.
sim::Result<std::optional<sim::Measurement>> over_from(const SimulateVerbOptions& options,
                                                       const sim::Scenario& scenario,
                                                       const std::string& text) {
    if (options.over.empty()) {
        return std::optional<sim::Measurement>{};
    }
    auto all = sim::read_measurements_file(options.over);
    if (!all) {
        return all.error();
    }
    const auto ran = [&](const sim::Measurement& m) {
        sim::LayoutTables tables;
        const auto layout = layout_for(m.layout, options.over, scenario, tables);
        return layout && sim::to_text(*layout, tables) == text;
    };
    const auto shown = std::find_if(all->rbegin(), all->rend(), [&](const sim::Measurement& m) {
        return m.timeline && ran(m);
    });
    if (shown != all->rend()) {
        return std::optional<sim::Measurement>(std::move(*shown));
    }
    if (std::none_of(all->begin(), all->end(), ran)) {
        const std::string& other = all->back().layout;
        return sim::Error{sim::ErrorCode::bad_input, "--over " + options.over,
                          "it was taken under " + other + ", not under " + text,
                          "simulate the same: --layout " + other};
    }
    return sim::Error{sim::ErrorCode::bad_input, "--over " + options.over,
                      "the measurement holds no timeline",
                      "make one with `shardplan run PLAN --measure FILE --timeline`"};
}

/// The trace of the step, and of the run over it.
sim::Status write_trace_of(const Answer& a, const sim::TextSink& sink) {
    const sim::Simulation& s = a.simulation;
    if (a.measured() == nullptr) {
        return sim::write_trace({{s.timeline, s.schedule}}, sink);
    }
    const sim::Schedule ran = sim::schedule_of(*a.over);
    return sim::write_trace({{s.timeline, s.schedule}, {*a.measured(), ran}}, sink);
}

/// `where`: the flag that says the layout.
sim::Result<Answer> answer_from(const SimulateVerbOptions& options, const sim::Scenario& scenario,
                                const std::string& text, std::string_view where, bool json) {
    const auto how = how_from(options, json);
    if (!how) {
        return how.error();
    }
    auto priced = price_legal_layout(scenario, text, where);
    if (!priced) {
        return std::move(priced).error();
    }
    sim::LayoutTables tables;
    const auto layout = layout_for(text, where, scenario, tables);
    if (!layout) {
        return layout.error();
    }
    const auto evaluator = sim::Evaluator::make(scenario, std::move(tables));
    if (!evaluator) {
        return evaluator.error();
    }
    auto simulation = sim::simulate(*evaluator, *layout, *how);
    if (!simulation) {
        sim::Error error = std::move(simulation).error();
        if (error.where != "schedule") {
            error.where = options.every_rank
                              ? "--no-collapse"
                              : "--max-events " + std::to_string(options.most_events);
        }
        return error;
    }
    auto over = over_from(options, scenario, priced->layout);
    if (!over) {
        return over.error();
    }
    return Answer{priced->layout, std::move(*simulation), std::move(priced->estimate),
                  std::move(*over)};
}

/// Writes the files that were asked for.
sim::Status write_files(const SimulateVerbOptions& options, const Answer& a,
                        const Console& console) {
    const auto write = [&](const std::string& path, const auto& pieces) -> sim::Status {
        if (path.empty()) {
            return sim::Done{};
        }
        if (auto status = sim::write_file_in_pieces(path, pieces); !status) {
            return status;
        }
        console.err << "wrote " << path << '\n';
        return sim::Done{};
    };
    if (auto status = write(options.trace,
                            [&](const sim::TextSink& sink) { return write_trace_of(a, sink); });
        !status) {
        return status;
    }
    return write(options.html, [&](const sim::TextSink& sink) {
        return sink(timeline_page(a.simulation, a.layout, a.over ? &*a.over : nullptr));
    });
}

/// The step with the changes of --what-if beside the one without.
int compare(const SimulateVerbOptions& options, const Study& study, const Answer& before,
            const Console& console) {
    const std::string_view where = "--what-if";
    const auto changed =
        change({study.scenario, before.layout}, options.what_if, study.rules(), where);
    if (!changed) {
        return fail(console, changed.error());
    }
    const auto after =
        answer_from(options, changed->scenario, changed->layout, where, console.json);
    if (!after) {
        return fail(console, after.error());
    }
    const PlayedSide a{study.scenario, before.layout, before.simulation};
    const PlayedSide b{changed->scenario, after->layout, after->simulation};
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().key("before");
        write_answer(json, before);
        json.key("after");
        write_answer(json, *after);
        json.begin_object("change");
        write_what_if(json, a, b);
        json.end_object().end_object();
        console.out << json.str();
    } else {
        print_what_if(console, a, b);
        print_warnings(console.out, after->estimate.warnings, console.color);
    }
    return after->estimate.verdict == sim::Verdict::does_not_fit ? console.no() : exit_code::yes;
}

} // namespace

int run_simulate(const SimulateVerbOptions& options, const Console& console) {
    int code = exit_code::yes;
    const auto study =
        study_with_layout(options.document, options.plan, options.scenario, options.layout,
                          "there is no step to simulate", console, code);
    if (!study) {
        return code;
    }
    const auto answer =
        answer_from(options, study->scenario, study->layout, "--layout", console.json);
    if (!answer) {
        return fail(console, answer.error());
    }
    if (!options.what_if.empty()) {
        return compare(options, *study, *answer, console);
    }
    if (const auto status = write_files(options, *answer, console); !status) {
        return fail(console, status.error());
    }
    if (console.json) {
        sim::JsonWriter json;
        write_answer(json, *answer);
        console.out << json.str();
    } else {
        print_text(console, *answer);
    }
    return answer->estimate.verdict == sim::Verdict::does_not_fit ? console.no() : exit_code::yes;
}

} // namespace shardplan::plan::cli
