#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/calendar.hpp"
#include "planner/analysis/diff.hpp"
#include "planner/cli/console.hpp"
#include "planner/search/plan.hpp"
#include "planner/search/remedies.hpp"
#include "simulator/estimate/evaluator.hpp"

/// The answer of `plan` as people and programs read it.
namespace shardplan::plan::cli {

/// What was found under one stack.
struct Searched {
    sim::Evaluator evaluator;
    PlanSet set;
    std::vector<Remedy> remedies; ///< where nothing fits under any stack
};

/// A plan of the ranking with its whole estimate and why it stands where it stands.
struct Ranked {
    const Plan* plan = nullptr;
    const Searched* from = nullptr;
    std::string text; ///< of the layout; where several stacks were searched, it names its own
    sim::Estimate estimate;
    std::string reason;
    /// Step as the engine plays it; none where that takes more tasks than a ranking waits for.
    std::optional<sim::Seconds> simulated;
};

/// The best plan of a stack that did not win.
struct Rival {
    Ranked best;
    std::vector<DiffTerm> time; ///< exposed seconds against the winner, largest change first
};

struct PlanAnswer {
    std::deque<Searched> searched; ///< in the order in which the stacks were named
    std::vector<Ranked> ranking;
    std::vector<Rival> rivals;
    std::optional<Calendar> calendar;   ///< of the winner
    std::vector<sim::Warning> warnings; ///< what to know about the best plan

    [[nodiscard]] const Searched& winner() const {
        return ranking.empty() ? searched.front() : *ranking.front().from;
    }
    [[nodiscard]] bool several() const { return searched.size() > 1; }
};

/// The name of an enumerator as words: "tp comm".
std::string words(std::string_view name);

void print_plans(const Console& console, const PlanAnswer& answer);
void write_plans(const Console& console, const PlanAnswer& answer);

} // namespace shardplan::plan::cli
