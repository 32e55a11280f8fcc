#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/analysis/sensitivity.hpp"
#include "planner/cli/inputs.hpp"
#include "planner/cli/present.hpp"
#include "planner/cli/study.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr std::size_t rows_shown = 16;

std::string change(double value, double base) {
    return base > 0.0 ? fmt::format("{:+.1f} %", 100.0 * (value / base - 1.0)) : "";
}

/// The change of the step time at one end of a swing, or why there is none.
Cell swing_cell(const SwingPoint& point, const Sensitivity& all) {
    if (!point.priced) {
        return {"-", Style::faint};
    }
    const std::string text = change(point.step_s, all.base.estimate.time.total.value.value());
    return point.verdict == all.base.estimate.verdict
               ? Cell(text)
               : Cell(fmt::format("{}, {}", text, name_of(point.verdict)), Style::doubtful);
}

/// The change of the margin, where there is any.
std::string margin_text(const SwingPoint& point, const SwingPoint& now) {
    const double more = (point.margin_bytes - now.margin_bytes) / 0x1p30;
    return point.priced && more != 0.0 ? fmt::format("{:+.2f} GiB", more) : "";
}

std::string range_text(const Swing& swing, const Sensitivity& all) {
    if (!swing.range_low || !swing.range_high) {
        return "";
    }
    const double base = all.base.estimate.time.total.value.value();
    const auto end = [&](const SwingPoint& point) {
        return point.priced ? change(point.step_s, base) : std::string("-");
    };
    return fmt::format("{} to {} for {} to {}", end(*swing.range_low), end(*swing.range_high),
                       shown_text(swing.input, swing.range_low->input),
                       shown_text(swing.input, swing.range_high->input));
}

void print_swings(const Console& console, const Sensitivity& all, const std::string& by,
                  bool every) {
    console.out << styled(all.base.layout, Style::strong, console.color)
                << fmt::format("  step {}, {}\n\n",
                               sim::to_text(all.base.estimate.time.total.value),
                               name_of(all.base.estimate.verdict));
    Table table({{"input", Align::left},
                 {"value", Align::right},
                 {"step at -" + by, Align::right},
                 {"at +" + by, Align::right},
                 {"elasticity", Align::right},
                 {"to spare at -" + by, Align::right},
                 {"at +" + by, Align::right},
                 {"over its plausible range", Align::left}});
    const std::size_t rows = every ? all.swings.size() : std::min(rows_shown, all.swings.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const Swing& swing = all.swings[i];
        table.add({swing.input.path,
                   shown_text(swing.input, swing.input.value),
                   swing_cell(swing.low, all),
                   swing_cell(swing.high, all),
                   {fmt::format("{:+.3f}", swing.time_elasticity), Style::strong},
                   margin_text(swing.low, all.now),
                   margin_text(swing.high, all.now),
                   {range_text(swing, all), Style::faint}});
    }
    table.print(console.out, console.color);
    if (rows < all.swings.size()) {
        console.out << fmt::format("and {} with less effect; --all lists them\n",
                                   all.swings.size() - rows);
    }
    if (!all.without_effect.empty()) {
        print_heading(console.out,
                      "Without effect on step time, memory, cost and energy of this plan",
                      console.color);
        for (const std::string& path : all.without_effect) {
            console.out << "  " << path << '\n';
        }
    }
    for (const std::string& text : all.not_varied) {
        console.err << "note: not swung: " << text << '\n';
    }
}

void write_point(sim::JsonWriter& json, const char* key, const SwingPoint& point) {
    json.begin_object(key).member("input", point.input);
    if (point.priced) {
        json.member("step_s", point.step_s)
            .member("tokens_per_s", point.tokens_per_s)
            .member("reserved_bytes", point.reserved_bytes)
            .member("margin_bytes", point.margin_bytes)
            .member("money_per_million_tokens", point.money_per_million_tokens)
            .member("kilowatt_hours_per_million_tokens", point.kilowatt_hours_per_million_tokens)
            .member("verdict", name_of(point.verdict));
    } else {
        json.member("why", point.why);
    }
    json.end_object();
}

void write_swings(const Console& console, const Sensitivity& all) {
    sim::JsonWriter json;
    json.begin_object().key("base");
    write_estimate(json, {all.base.layout, all.base.estimate});
    json.begin_array("swings");
    for (const Swing& swing : all.swings) {
        json.begin_object()
            .member("path", swing.input.path)
            .member("label", swing.input.label)
            .member("value", swing.input.value)
            .member("text", shown_text(swing.input, swing.input.value))
            .member("time_elasticity", swing.time_elasticity)
            .member("speed_elasticity", swing.speed_elasticity)
            .member("memory_elasticity", swing.memory_elasticity);
        write_point(json, "low", swing.low);
        write_point(json, "high", swing.high);
        if (swing.range_low && swing.range_high) {
            write_point(json, "range_low", *swing.range_low);
            write_point(json, "range_high", *swing.range_high);
        }
        json.end_object();
    }
    json.end_array();
    for (const auto& [key, list] : {std::pair{"without_effect", &all.without_effect},
                                    std::pair{"not_varied", &all.not_varied}}) {
        json.begin_array(key);
        for (const std::string& text : *list) {
            json.value(text);
        }
        json.end_array();
    }
    json.end_object();
    console.out << json.str();
}

// --- the inverse question -----------------------------------------------------------------------

constexpr const char* kind_names[] = {"found", "always", "never", "no effect"};

std::string answer_text(const Solved& solved, const Goal& goal) {
    const std::string value = shown_text(solved.input, solved.value);
    const std::string figure = figure_text(goal.figure, solved.figure);
    switch (solved.kind) {
        case SolveKind::found:
            return fmt::format("{}, {:.3g} times what it is ({})", value, solved.factor(), figure);
        case SolveKind::always:
            return fmt::format("reached already, and still at {} ({})", value, figure);
        case SolveKind::never:
            return fmt::format("not reached: {} at {}{}", figure, value,
                               solved.why.empty() ? "" : "; beyond that " + solved.why);
        case SolveKind::no_effect:
            break;
    }
    return "has no effect here";
}

int answer(const Console& console, const Study& study, const Goal& goal,
           const std::vector<Solved>& all, double now) {
    const bool any = std::any_of(all.begin(), all.end(), [](const Solved& s) {
        return s.kind == SolveKind::found || s.kind == SolveKind::always;
    });
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object()
            .member("layout", study.layout)
            .member("target", name_of(goal.figure))
            .member("target_value", goal.value)
            .member("now", now)
            .begin_array("inputs");
        for (const Solved& s : all) {
            json.begin_object()
                .member("path", s.input.path)
                .member("now", s.input.value)
                .member("result", kind_names[static_cast<std::size_t>(s.kind)])
                .member("value", s.value)
                .member("text", shown_text(s.input, s.value))
                .member("figure", s.figure)
                .end_object();
        }
        json.end_array().end_object();
        console.out << json.str();
        return any ? exit_code::yes : console.no();
    }
    console.out << styled(study.layout, Style::strong, console.color)
                << fmt::format("  target {}, now {}\n\n", figure_text(goal.figure, goal.value),
                               figure_text(goal.figure, now));
    Table table({{"input", Align::left}, {"now", Align::right}, {"for the target", Align::left}});
    for (const Solved& s : all) {
        const bool good = s.kind == SolveKind::found || s.kind == SolveKind::always;
        if (all.size() == 1 || good) {
            table.add({s.input.path,
                       shown_text(s.input, s.input.value),
                       {answer_text(s, goal), good ? Style::strong : Style::bad}});
        }
    }
    table.print(console.out, console.color);
    if (!any && all.size() != 1) {
        console.out << "no single input reaches it\n";
    }
    return any ? exit_code::yes : console.no();
}

int solve_target(const SensitivityOptions& options, const Console& console, const Study& study) {
    const bool short_form = !options.efficiency.empty();
    const auto goal = parse_goal(
        short_form ? "efficiency=" + options.efficiency : options.target,
        short_form ? "--efficiency " + options.efficiency : "--target " + options.target);
    if (!goal) {
        return fail(console, goal.error());
    }
    const auto base = price_layout(study.scenario, study.layout, "--layout");
    if (!base) {
        return fail(console, base.error());
    }
    const double now = figure_of(goal->figure, base->estimate);
    if (options.solve.empty()) {
        const auto all = solve_inputs(study.scenario, study.rules(), study.layout, *goal);
        return all ? answer(console, study, *goal, *all, now) : fail(console, all.error());
    }
    const auto solved = solve_input(study.scenario, study.rules(), study.layout, *goal,
                                    options.solve, "--solve " + options.solve);
    return solved ? answer(console, study, *goal, {*solved}, now) : fail(console, solved.error());
}

} // namespace

int run_sensitivity(const SensitivityOptions& options, const Console& console) {
    const bool has_target = !options.target.empty() || !options.efficiency.empty();
    if (!options.target.empty() && !options.efficiency.empty()) {
        return fail(console, {sim::ErrorCode::bad_input, "--efficiency",
                              "--target names a figure already", "keep one of the two"});
    }
    if (!options.solve.empty() && !has_target) {
        return fail(console, {sim::ErrorCode::bad_input, "--solve", "there is no target",
                              "add for example --target mfu=0.5 or --efficiency 0.8"});
    }
    const auto by = share_from(options.by, "--by " + options.by);
    if (!by || *by >= 1.0) {
        return fail(console, by ? sim::Error{sim::ErrorCode::bad_input, "--by",
                                             "a swing of " + options.by + " leaves nothing",
                                             "write less than 100%"}
                                : by.error());
    }
    int code = exit_code::yes;
    const auto study =
        study_with_layout(options.document, options.plan, options.scenario, options.layout,
                          "there is nothing to swing", console, code);
    if (!study) {
        return code;
    }
    if (has_target) {
        return solve_target(options, console, *study);
    }
    const auto result = sensitivity(study->scenario, study->rules(), {study->layout, *by});
    if (!result) {
        return fail(console, result.error());
    }
    if (console.json) {
        write_swings(console, *result);
    } else {
        print_swings(console, *result, options.by, options.all);
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
