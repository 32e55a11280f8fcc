#pragma once

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Is the stack, device or network that an entry names a part of the scenario?
bool names_part_of(const CalibrationEntry& entry, const Scenario& scenario);
/// The same, and is the number of devices the one it was measured with?
bool holds_for(const CalibrationEntry& entry, const Scenario& scenario);

} // namespace shardplan::sim
