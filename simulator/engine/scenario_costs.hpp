#pragma once

#include "simulator/engine/stage_costs.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/estimate/step_time.hpp"
#include "simulator/schedule/layout_schedule.hpp"

/// Private to engine: what a layout of a scenario runs and costs, in the words of the engine.
namespace shardplan::sim {

/// How finely the engine follows a layout.
enum class Detail : std::uint8_t {
    units,     ///< one task per unit of a pass
    exchanges, ///< and one per tensor, context or expert exchange inside it
};

struct ScenarioCosts {
    ScheduleInput input;
    StageCosts costs;
    std::vector<PlannedUnit> units; ///< by unit kind of `input`
    Placement placement;
    double overhead = 0.0; ///< seconds of a step outside the model
    bool overlaps = false; ///< any communication runs under compute
};

/// The layout must be legal for the evaluator's scenario.
ScenarioCosts scenario_costs(const Evaluator& evaluator, const Layout& layout, Detail detail);

} // namespace shardplan::sim
