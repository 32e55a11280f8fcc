#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/vary.hpp"

/// Which inputs an estimate rests on, and what an input would have to be for a goal.
namespace shardplan::plan {

// --- swings -------------------------------------------------------------------------------------

/// The layout with one input changed.
struct SwingPoint {
    double input = 0.0; ///< base units
    bool priced = false;
    std::string why; ///< where it is not priced
    double step_s = 0.0;
    double tokens_per_s = 0.0;
    double reserved_bytes = 0.0; ///< of the deciding class
    double margin_bytes = 0.0;
    double money_per_million_tokens = 0.0;
    double kilowatt_hours_per_million_tokens = 0.0;
    sim::Verdict verdict = sim::Verdict::fits;

    /// Whether every figure but the input is the same, to the last bit.
    [[nodiscard]] bool same_figures(const SwingPoint& other) const;
};

/// One input swung both ways, everything else as it is.
struct Swing {
    Leaf input;
    SwingPoint low;
    SwingPoint high;
    /// d ln(step time) / d ln(input): +1: twice the input, twice the time. The same for the memory.
    double time_elasticity = 0.0;
    double memory_elasticity = 0.0;
    double speed_elasticity = 0.0; ///< of tokens per second
    /// The ends of the plausible range, where a Constant states one.
    std::optional<SwingPoint> range_low;
    std::optional<SwingPoint> range_high;
};

struct SensitivityRequest {
    std::string layout; ///< text form
    double by = 0.1;    ///< relative swing
};

struct Sensitivity {
    PricedLayout base;
    SwingPoint now;            ///< the figures of `base`
    std::vector<Swing> swings; ///< with an effect, most elastic step time first, then memory
    /// Paths that change neither step time nor memory, margin, cost or energy.
    std::vector<std::string> without_effect;
    std::vector<std::string> not_varied; ///< "path: why": neither way is possible
};

/// The inputs that can be swung: numbers above 0 of cluster, devices, fabrics, stack and job, but
/// the ones that say how many devices there are, spreads and constraints.
std::vector<Leaf> swing_inputs(const sim::Scenario& scenario);

/// Errors: the layout is not legal, or cannot be read.
sim::Result<Sensitivity> sensitivity(const sim::Scenario& scenario, const VaryRules& rules,
                                     const SensitivityRequest& request);

// --- the inverse question -----------------------------------------------------------------------

/// Figures a goal may be set for. `efficiency`: share of the step that is not spent waiting for
/// communication.
enum class GoalFigure : std::uint8_t { efficiency, mfu, step_time, tokens_per_second, per_device };

struct Goal {
    GoalFigure figure = GoalFigure::efficiency;
    double value = 0.0; ///< base units; reached at or above it, at or below it for the step time

    [[nodiscard]] bool reached(double figure_value) const;
};

/// "mfu=0.5", "efficiency=80%", "step=2 s", "tokens/s=1e6", "tokens/s/gpu=1200". Errors: where.
sim::Result<Goal> parse_goal(std::string_view text, std::string_view where);
double figure_of(GoalFigure figure, const sim::Estimate& estimate);
std::string figure_text(GoalFigure figure, double value);
std::string_view name_of(GoalFigure figure);

enum class SolveKind : std::uint8_t {
    found,     ///< at `value` the goal is just reached
    always,    ///< reached as far as was looked the worse way
    never,     ///< not reached as far as was looked the better way
    no_effect, ///< the input changes nothing
};

struct Solved {
    Leaf input;
    SolveKind kind = SolveKind::found;
    double value = 0.0;  ///< found: threshold; always, never: the last value looked at
    double figure = 0.0; ///< at `value`
    std::string why;     ///< never: what ended the walk, where it was not the limit

    /// Threshold over the value now.
    [[nodiscard]] double factor() const { return input.value > 0.0 ? value / input.value : 0.0; }
};

/// The value of one input at which a goal is just reached, by bisection on a logarithmic scale, to
/// 0.1 %, looking up to 4096 times above and below. Errors: no such input; not a number above 0.
sim::Result<Solved> solve_input(const sim::Scenario& scenario, const VaryRules& rules,
                                const std::string& layout, const Goal& goal, std::string_view path,
                                std::string_view where);

/// The same for every input that could do it alone without making the step longer, smallest
/// change first.
sim::Result<std::vector<Solved>> solve_inputs(const sim::Scenario& scenario, const VaryRules& rules,
                                              const std::string& layout, const Goal& goal);

} // namespace shardplan::plan
