#pragma once

#include <string>
#include <vector>

#include "planner/analysis/measured.hpp"
#include "planner/cli/console.hpp"
#include "simulator/engine/measurement.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan::cli {

/// A measurement with the plan it was taken of.
struct MeasuredPlan {
    sim::Measurement measurement;
    sim::Evaluator evaluator;
    sim::Layout layout;
    MeasuredComparison comparison;
    bool changed = false; ///< the plan says other things than the one that ran
};

/// Reads measurements and their plans: `plan`, or where that is empty the file each was run from.
/// A file is a measurement, or a plan with those attached to it. `calibration`: a file whose
/// constants the plans are priced with; empty: their own. Errors: the files'; a plan file without
/// the layout that ran; what cannot be compared.
sim::Result<std::vector<MeasuredPlan>> measured_plans(const std::vector<std::string>& files,
                                                      const std::string& plan,
                                                      const std::string& calibration);

/// One run term by term: what `validate` shows of a single measurement.
void show_measured(const Console& console, const MeasuredPlan& plan);

/// Says that the plan has changed since, where it has.
void print_changed(const Console& console, const MeasuredPlan& plan);

} // namespace shardplan::plan::cli
