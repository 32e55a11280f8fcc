#pragma once

#include <string>

#include "planner/analysis/what_if.hpp"
#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"

/// A simulated step beside the same with something changed.
namespace shardplan::plan::cli {

/// One of the two.
struct PlayedSide {
    const sim::Scenario& scenario;
    const std::string& layout; ///< text form
    const sim::Simulation& simulation;
};

/// What runs on the critical path, longest first, and where.
void print_path(const Console& console, const sim::Simulation& simulation);

/// Inputs that differ, both steps, what an average stage spends them on, which wait moved most, and
/// both critical paths.
void print_what_if(const Console& console, const PlayedSide& before, const PlayedSide& after);
/// Members of the object that is open: the same.
void write_what_if(sim::JsonWriter& json, const PlayedSide& before, const PlayedSide& after);

} // namespace shardplan::plan::cli
