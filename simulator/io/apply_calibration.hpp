#pragma once

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Puts the measured values of `scenario.calibration` in place of the Constants they name:
/// "stack.time.NAME", "stack.memory.NAME" or "fabric.KIND.NAME". Origin becomes own_measurement,
/// the range the residual's. Entries for a network the scenario does not use are left alone.
/// Errors: a path that names no Constant (with the nearest one), a value out of its bounds.
Status apply_calibration(Scenario& scenario);

} // namespace shardplan::sim
