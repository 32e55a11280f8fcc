#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/sensitivity.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan {
namespace {

constexpr double farthest = 4096.0; // beyond it no input is plausible any more
constexpr double precise = 1.001;

struct GoalName {
    std::string_view name;
    GoalFigure figure;
    sim::Dimension dimension;
};
constexpr std::array<GoalName, 5> goal_names = {{
    {"efficiency", GoalFigure::efficiency, sim::Dimension::scalar},
    {"mfu", GoalFigure::mfu, sim::Dimension::scalar},
    {"step", GoalFigure::step_time, sim::Dimension::seconds},
    {"tokens/s", GoalFigure::tokens_per_second, sim::Dimension::scalar},
    {"tokens/s/gpu", GoalFigure::per_device, sim::Dimension::scalar},
}};

/// One figure as a function of one input.
class Response {
public:
    Response(const sim::Scenario& scenario, const VaryRules& rules, const std::string& layout,
             const Goal& goal, const Leaf& leaf)
        : scenario_(scenario), rules_(rules), layout_(layout), goal_(goal), leaf_(leaf) {}

    /// Nothing where the input cannot have the value; `why` then says why.
    std::optional<double> at(double value) {
        const std::array<FieldSetting, 1> settings = {{{leaf_.path, setting_text(leaf_, value)}}};
        auto varied = vary(scenario_, settings, rules_, leaf_.path);
        if (!varied) {
            why = varied.error().what;
            return std::nullopt;
        }
        const auto priced = price_layout(std::move(*varied), layout_, "layout");
        if (!priced || !priced->legal()) {
            why = priced ? priced->refusals.front().rule : priced.error().what;
            return std::nullopt;
        }
        return figure_of(goal_.figure, priced->estimate);
    }

    std::string why;

private:
    const sim::Scenario& scenario_;
    const VaryRules& rules_;
    const std::string& layout_;
    const Goal& goal_;
    const Leaf& leaf_;
};

/// The factor per step that makes the figure better: 2 or 1/2; 0: it does not move.
double better_way(Response& response, const Goal& goal, double value, double now) {
    const auto gain = [&](double factor) {
        const auto figure = response.at(value * factor);
        const double sign = goal.figure == GoalFigure::step_time ? -1.0 : 1.0;
        return figure ? sign * (*figure - now) : 0.0;
    };
    const double more = gain(2.0);
    const double less = gain(0.5);
    if (more == 0.0 && less == 0.0) {
        return 0.0;
    }
    return more > less ? 2.0 : 0.5;
}

/// The threshold between a value that reaches the goal and one that does not.
double bisect(Response& response, const Goal& goal, double reaches, double misses, double& figure) {
    while (std::max(reaches / misses, misses / reaches) > precise) {
        const double middle = std::sqrt(reaches * misses);
        const auto value = response.at(middle);
        if (value && goal.reached(*value)) {
            reaches = middle;
            figure = *value;
        } else {
            misses = middle;
        }
    }
    return reaches;
}

/// The last value that the input can have on the way to one that it cannot.
double last_possible(Response& response, double possible, double impossible) {
    while (std::max(possible / impossible, impossible / possible) > precise) {
        const double middle = std::sqrt(possible * impossible);
        (response.at(middle) ? possible : impossible) = middle;
    }
    return possible;
}

Solved solve(Response& response, const Goal& goal, const Leaf& leaf, double now) {
    Solved out;
    out.input = leaf;
    out.value = leaf.value;
    out.figure = now;
    const double better = better_way(response, goal, leaf.value, now);
    if (better == 0.0) {
        out.kind = SolveKind::no_effect;
        return out;
    }
    // Not reached: towards the better, until it is. Reached: towards the worse, until it is not.
    const bool reached = goal.reached(now);
    const double way = reached ? 1.0 / better : better;
    out.kind = reached ? SolveKind::always : SolveKind::never;
    for (double factor = way; std::max(factor, 1.0 / factor) <= farthest; factor *= way) {
        double other = leaf.value * factor;
        response.why.clear();
        auto figure = response.at(other);
        if (!figure) {
            out.why = response.why;
            other = last_possible(response, out.value, other);
            figure = response.at(other);
        }
        if (figure && goal.reached(*figure) != reached) {
            out.figure = reached ? out.figure : *figure;
            out.kind = SolveKind::found;
            out.value = bisect(response, goal, reached ? out.value : other,
                               reached ? other : out.value, out.figure);
            return out;
        }
        out.value = figure ? other : out.value;
        out.figure = figure.value_or(out.figure);
        if (!out.why.empty()) {
            return out;
        }
    }
    return out;
}

sim::Result<double> figure_now(const sim::Scenario& scenario, const std::string& layout,
                               GoalFigure figure) {
    const auto base = price_legal_layout(scenario, layout, "layout");
    if (!base) {
        return base.error();
    }
    return figure_of(figure, base->estimate);
}

} // namespace

bool Goal::reached(double figure_value) const {
    return figure == GoalFigure::step_time ? figure_value <= value : figure_value >= value;
}

std::string_view name_of(GoalFigure figure) {
    return goal_names[static_cast<std::size_t>(figure)].name;
}

sim::Result<Goal> parse_goal(std::string_view text, std::string_view where) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    std::string_view value = text.substr(std::min(equals + 1, text.size()));
    std::vector<std::string> names;
    for (const GoalName& known : goal_names) {
        names.emplace_back(known.name);
        if (known.name != name) {
            continue;
        }
        const bool is_percent = !value.empty() && value.back() == '%';
        if (is_percent) {
            value.remove_suffix(1);
        }
        const auto number = sim::parse_quantity(value, known.dimension, where);
        if (!number) {
            return number.error();
        }
        Goal goal{known.figure, is_percent ? *number / 100.0 : *number};
        const bool share = goal.figure == GoalFigure::efficiency || goal.figure == GoalFigure::mfu;
        if (!(goal.value > 0.0) || (share && goal.value > 1.0)) {
            return sim::Error{sim::ErrorCode::bad_input, std::string(where),
                              sim::in_quotes(text) + " is no goal",
                              share ? "write a share, as in 0.8 or 80%" : "write a figure above 0"};
        }
        return goal;
    }
    return sim::Error{sim::ErrorCode::bad_input, std::string(where),
                      "there is no goal " + sim::in_quotes(name), sim::nearest_hint(name, names)};
}

double figure_of(GoalFigure figure, const sim::Estimate& estimate) {
    switch (figure) {
        case GoalFigure::efficiency:
            return 1.0 - communication_share(estimate.time);
        case GoalFigure::mfu:
            return estimate.mfu;
        case GoalFigure::step_time:
            return estimate.time.total.value.value();
        case GoalFigure::tokens_per_second:
            return estimate.tokens_per_second;
        case GoalFigure::per_device:
            break;
    }
    return estimate.tokens_per_second_per_device;
}

std::string figure_text(GoalFigure figure, double value) {
    switch (figure) {
        case GoalFigure::efficiency:
        case GoalFigure::mfu:
            return fmt::format("{} {:.1f} %", name_of(figure), 100.0 * value);
        case GoalFigure::step_time:
            return "step " + sim::to_text(sim::Seconds(value));
        default:
            return fmt::format("{:.4g} {}", value, name_of(figure));
    }
}

sim::Result<Solved> solve_input(const sim::Scenario& scenario, const VaryRules& rules,
                                const std::string& layout, const Goal& goal, std::string_view path,
                                std::string_view where) {
    const auto leaves = leaves_of(scenario);
    const auto paths = full_paths(leaves, path, where);
    if (!paths) {
        return paths.error();
    }
    const Leaf* leaf = find_leaf(leaves, paths->front());
    if (leaf->kind != LeafKind::number || !(leaf->value > 0.0)) {
        return sim::Error{
            sim::ErrorCode::bad_input, std::string(where),
            leaf->path + " is " + sim::in_quotes(leaf->text) +
                ", which is no amount above 0 that could be solved for",
            "name a bandwidth, latency, rate or constant; `shardplan sweep` goes over "
            "whole numbers and names"};
    }
    const auto now = figure_now(scenario, layout, goal.figure);
    if (!now) {
        return now.error();
    }
    Response response(scenario, rules, layout, goal, *leaf);
    return solve(response, goal, *leaf, *now);
}

sim::Result<std::vector<Solved>> solve_inputs(const sim::Scenario& scenario, const VaryRules& rules,
                                              const std::string& layout, const Goal& goal) {
    const auto now = figure_now(scenario, layout, goal.figure);
    if (!now) {
        return now.error();
    }
    const auto step_now = figure_now(scenario, layout, GoalFigure::step_time);
    if (!step_now) {
        return step_now.error();
    }
    std::vector<Solved> out;
    for (const Leaf& leaf : swing_inputs(scenario)) {
        if (leaf.kind != LeafKind::number || leaf.path.rfind("job.", 0) == 0) {
            continue; // a job with another sequence is another job
        }
        Response response(scenario, rules, layout, goal, leaf);
        Solved solved = solve(response, goal, leaf, *now);
        // A slower device spends a smaller share of its time waiting: true, and no answer.
        Goal time = goal;
        time.figure = GoalFigure::step_time;
        Response step(scenario, rules, layout, time, leaf);
        const auto then = step.at(solved.value);
        const bool slower = !goal.reached(*now) && then && *then > *step_now;
        if (solved.kind != SolveKind::no_effect && !slower) {
            out.push_back(std::move(solved));
        }
    }
    std::stable_sort(out.begin(), out.end(), [](const Solved& a, const Solved& b) {
        const bool x = a.kind == SolveKind::found;
        const bool y = b.kind == SolveKind::found;
        return x != y ? x : std::abs(std::log(a.factor())) < std::abs(std::log(b.factor()));
    });
    return out;
}

} // namespace shardplan::plan
