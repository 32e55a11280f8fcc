#pragma once

#include <vector>

#include "planner/analysis/collectives_fit.hpp"
#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"

/// What is shown of networks that were fitted.
namespace shardplan::plan::cli {

/// Errors before and after, the constants that were decided, and what was left out.
void print_fabrics(const Console& console, const FabricFits& result);
/// The members "fits" and "left_out" of the object that is being written.
void write_fabrics(sim::JsonWriter& json, const FabricFits& result);

} // namespace shardplan::plan::cli
