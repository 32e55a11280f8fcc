#pragma once

#include "simulator/engine/measurement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Gives spans of passes, of a run of `layout`, the flops of their operators, recomputation not
/// counted. False: the scenario cannot be priced, and they stay unknown.
bool add_flops(const Scenario& scenario, const Layout& layout, const LayoutTables& tables,
               Measurement& measurement);

} // namespace shardplan::sim
