#pragma once

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Puts the values of `scenario.calibration` in place of the Constants they name:
/// "stack.time.NAME", "stack.memory.NAME", "device.compute.NAME" or "fabric.KIND.NAME";
/// "device.peak_dense.FORMAT" replaces a peak. Entries measured with another number of ranks than
/// the cluster has devices are left alone, but one with its number must be there. A measured
/// value brings its own range, that of the residual; one fitted to runs keeps the plausible range,
/// and leaves Constants of another origin alone. So are entries for a stack, device or network the
/// scenario does not use. Errors: a path that names no Constant (with the nearest one), a value out
/// of its bounds.
Status apply_calibration(Scenario& scenario);

} // namespace shardplan::sim
