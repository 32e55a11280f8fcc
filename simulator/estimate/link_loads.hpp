#pragma once

#include <vector>

#include "simulator/estimate/step_time.hpp"
#include "simulator/schedule/pipeline_order.hpp"

/// Private to estimate: what a rank of each stage sends.
namespace shardplan::sim {

/// By dimension, then stage; neighbouring stages that send the same are one. `runs`: of all stages,
/// `traffic`: of each.
void set_link_loads(const GroupPaths& paths, const PipelineShape& shape,
                    const std::vector<ShapeRun>& runs, const std::vector<StageTraffic>& traffic,
                    std::vector<LinkLoad>& out);

} // namespace shardplan::sim
