#include "simulator/spec/fabric_profile.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, FabricProfile& x) {
    field(v, {"name", "name", "A kind of network: nvswitch, pcie, infiniband, ...", true}, x.name);
    field(v, {"note", "note", "What the figures stand on."}, x.note);
    field(v,
          {"bandwidth_efficiency", "bandwidth efficiency",
           "Bandwidth of large collectives over the physical bandwidth.", true},
          x.bandwidth_efficiency);
    field(v, {"step_latency", "latency per step", "Time of one ring or tree step.", true},
          x.step_latency);
    field(v, {"launch_latency", "latency per call", "Time of one collective call.", true},
          x.launch_latency);
    field(v,
          {"half_size", "half size",
           "Bytes one rank sends at which half the bandwidth is reached, for each doubling of the "
           "members.",
           true},
          x.half_size);
    field(v,
          {"ramp", "ramp",
           "The share of time lost to the size goes with (half size / bytes) to this power; 1: a "
           "fixed time.",
           true},
          x.ramp);
}

} // namespace shardplan::sim
