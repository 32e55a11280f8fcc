#pragma once

#include <optional>
#include <vector>

#include "planner/cli/console.hpp"
#include "planner/import/build_cluster.hpp"
#include "planner/import/foreign_cluster.hpp"
#include "simulator/io/json.hpp"

/// A file of a foreign format for people: what it says, drawn as text, and what is wrong with it.
namespace shardplan::plan::cli {

/// Figures, the matrix of links, the tree of parts or switches, timings, diagnoses, what was lost.
void print_foreign(const Console& console, const ForeignCluster& file);
/// The same as members of the object that is open.
void write_foreign(sim::JsonWriter& json, const ForeignCluster& file);

} // namespace shardplan::plan::cli
