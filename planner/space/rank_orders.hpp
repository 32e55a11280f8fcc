#pragma once

#include <cstdint>
#include <vector>

#include "simulator/spec/legality.hpp"
#include "simulator/spec/scenario.hpp"

/// Private to planner/space: which rank orders differ.
namespace shardplan::plan {

/// One order of each class of rank orders under which all groups of the layout reach one another
/// over equal paths (and, where node groups differ, stages lie on the same nodes): no figure of the
/// layout differs inside a class. A class is named by its member with the smallest number, which
/// keeps most of the default order. The order in `layout` is not read.
std::vector<std::uint8_t> distinct_orders(const sim::Scenario& scenario,
                                          const sim::LegalityFacts& facts,
                                          const sim::LayoutTables& tables, sim::Layout layout);

} // namespace shardplan::plan
