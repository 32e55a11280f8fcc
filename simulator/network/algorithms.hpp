#pragma once

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

/// The cost lines of every collective over a path; everything about a collective that does not
/// depend on its size is worked out here, once. One function per algorithm in algorithms.cpp.
CostLines cost_lines(const GroupPath& path);

} // namespace shardplan::sim
