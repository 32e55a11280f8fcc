#pragma once

#include "planner/cli/console.hpp"
#include "simulator/estimate/evaluator.hpp"
#include "simulator/io/json.hpp"

/// Which node group holds what, where a cluster has several kinds of nodes.
namespace shardplan::plan::cli {

/// A table of the groups with ranks; nothing where there is one.
void print_node_groups(const Console& console, const sim::Evaluator& evaluator,
                       const sim::Estimate& estimate);
/// Member "node_groups" of the object that is open.
void write_node_groups(sim::JsonWriter& json, const sim::Evaluator& evaluator,
                       const sim::Estimate& estimate);

} // namespace shardplan::plan::cli
