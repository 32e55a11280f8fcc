#pragma once

#include <string>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// What a kind of network costs on top of its nominal bandwidth, as Constants. One data file per
/// kind ("nvswitch", "infiniband", ...); names are those of ScaleupKind and FabricKind.
struct FabricProfile {
    std::string name;
    std::string note;
    Constant bandwidth_efficiency; ///< of the physical bandwidth at large sizes
    Constant step_latency;         ///< seconds per ring or tree step
    Constant launch_latency;       ///< seconds per collective call
    Constant half_size;            ///< bytes per rank at half the bandwidth, per doubling
    Constant ramp;                 ///< share of time lost goes with (half_size / bytes)^ramp

    friend bool operator==(const FabricProfile&, const FabricProfile&) = default;
};

void describe(FieldVisitor& v, FabricProfile& x);

} // namespace shardplan::sim
