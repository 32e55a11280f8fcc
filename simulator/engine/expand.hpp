#pragma once

#include "simulator/engine/play.hpp"
#include "simulator/engine/stragglers.hpp"
#include "simulator/schedule/schedule.hpp"

namespace shardplan::sim {

/// The ranks of one stage, tp innermost, then cp, then dp.
struct RankGrid {
    std::int32_t tp = 1;
    std::int32_t cp = 1;
    std::int32_t dp = 1;
    std::int32_t experts = 1; ///< neighbouring ranks that exchange tokens: ep x etp

    [[nodiscard]] std::int64_t ranks() const { return std::int64_t{tp} * cp * dp; }
    friend bool operator==(const RankGrid&, const RankGrid&) = default;
};

/// Every rank on its own: task t of rank r has id t x ranks + r, streams likewise. Communication
/// becomes one task of all members of its group.
TaskGraph expand(const Schedule& schedule, const RankGrid& grid);

/// The costs of the same tasks. Links are per rank; a collective loads those of all its members.
TaskCosts expand_costs(const Schedule& schedule, const TaskCosts& costs, const TaskGraph& expanded,
                       const RankGrid& grid, const Stragglers& stragglers);

/// Multiplies the compute of every stage by that of its slowest rank.
void slow_down(const Schedule& schedule, const RankGrid& grid, const Stragglers& stragglers,
               TaskCosts& costs);

} // namespace shardplan::sim
