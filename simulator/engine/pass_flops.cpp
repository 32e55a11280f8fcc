#include "simulator/engine/pass_flops.hpp"

#include <vector>

#include "simulator/engine/scenario_costs.hpp"

namespace shardplan::sim {

bool add_flops(const Scenario& scenario, const Layout& layout, const LayoutTables& tables,
               Measurement& measurement) {
    if (!measurement.timeline) return true;
    const auto evaluator = Evaluator::make(scenario, tables);
    if (!evaluator) return false;
    const ScenarioCosts priced = scenario_costs(*evaluator, layout, Detail::units);
    Schedule schedule = schedule_of(measurement);
    schedule.shape = priced.input.shape;
    std::vector<double> flops(schedule.size(), 0.0);
    for (std::size_t task = 0; task < flops.size(); ++task) {
        const auto& stages = priced.input.units;
        const std::size_t stage = schedule.stage[task];
        if (stage >= stages.size() || schedule.chunk[task] >= stages[stage].size()) continue;
        flops[task] = flops_of(priced.input, schedule, priced.costs, task);
    }
    for (Span& span : measurement.timeline->spans) {
        span.flops = flops[span.task];
    }
    return true;
}

} // namespace shardplan::sim
