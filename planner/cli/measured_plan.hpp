#pragma once

#include <string>

#include "planner/cli/console.hpp"
#include "simulator/engine/measurement.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan::cli {

/// A measurement with the plan it was taken of.
struct MeasuredPlan {
    sim::Measurement measurement;
    sim::Evaluator evaluator;
    sim::Layout layout;
    bool changed = false; ///< the plan says other things than the one that ran
};

/// Reads a measurement and its plan: `plan`, or where that is empty the file it was run from.
/// `calibration`: a file whose constants the plan is priced with; empty: its own. Errors: the
/// files'; a plan file without the layout that ran.
sim::Result<MeasuredPlan> measured_plan(const std::string& measurement, const std::string& plan,
                                        const std::string& calibration);

/// Says that the plan has changed since, where it has.
void print_changed(const Console& console, const MeasuredPlan& plan);

} // namespace shardplan::plan::cli
