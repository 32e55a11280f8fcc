#pragma once

#include "planner/cli/console.hpp"
#include "planner/cli/options.hpp"
#include "simulator/spec/calibration.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan::cli {

/// Whether --output or --attach ask for the calibration.
bool is_kept(const CalibrateVerbOptions& options);

/// Writes the calibration where they say. True: it went to standard output, in place of a report.
/// Errors: the files'.
sim::Result<bool> keep_calibration(const CalibrateVerbOptions& options,
                                   const sim::Calibration& calibration, const Console& console);

/// The end of a report: where it was written, and how it is used.
void print_kept(const CalibrateVerbOptions& options, const Console& console);

} // namespace shardplan::plan::cli
