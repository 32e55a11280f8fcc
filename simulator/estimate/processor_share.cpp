#include "simulator/estimate/processor_share.hpp"

#include <algorithm>

#include "simulator/spec/placement.hpp"

namespace shardplan::sim {

ProcessorShare processor_share(const Scenario& scenario, const Layout& layout,
                               const GroupPath& pipeline) {
    ProcessorShare out;
    const auto all = static_cast<std::int64_t>(rank_count(layout));
    if (const std::int64_t processors = scenario.cluster.processors; processors > 0) {
        return {static_cast<double>(processors), all / layout.pp, layout.pp};
    }
    for (const NodeGroup& group : scenario.cluster.node_groups) {
        const std::int64_t processors = group.node.processors;
        if (processors <= 0) continue;
        const std::int64_t used = std::min(group.node.devices, all);
        const bool inside = !pipeline.levels.empty() && pipeline.levels.front().is_scaleup;
        ProcessorShare own;
        own.processors = static_cast<double>(processors);
        own.stages = inside ? std::min(pipeline.levels.front().members, used) : 1;
        own.ranks = std::max<std::int64_t>(1, used / own.stages);
        if (own.everywhere() > out.everywhere()) out = own;
    }
    return out;
}

double stretch(const ProcessorShare& share, const PassWork& work) {
    if (!share.any() || work.slowest <= 0.0) return 1.0;
    const auto ranks = static_cast<double>(share.ranks);
    double idle = 0.0;
    for (std::int64_t k = 1; k < share.stages; ++k) {
        const double busy = ranks * static_cast<double>(k) / share.processors;
        if (busy >= 1.0) break;
        idle += (1.0 - busy) * work.in_turn;
    }
    const double alone = ranks / share.processors;
    return std::max({1.0, alone, (work.node * alone + idle) / work.slowest});
}

} // namespace shardplan::sim
