#include "simulator/spec/fabric_profile.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, TransportProfile& x) {
    field(v,
          {"bandwidth_efficiency", "bandwidth efficiency",
           "Bandwidth of large collectives over the physical bandwidth.", true},
          x.bandwidth_efficiency);
    field(v, {"step_latency", "latency per step", "Time of one step.", true}, x.step_latency);
    field(v,
          {"half_size", "half size",
           "Bytes one rank sends at which half the bandwidth is reached; of a ring for each "
           "doubling of the members, of a tree for each step.",
           true},
          x.half_size);
}

void describe(FieldVisitor& v, BufferProfile& x) {
    field(v, {"channels", "channels", "Channels of a communicator that stays inside."}, x.channels);
    field(v,
          {"channel_rate", "rate per channel",
           "Bandwidth of cards for which the library opens one channel, before it doubles them."},
          x.channel_rate);
    field(v,
          {"connection_buffers", "buffers of a connection",
           "Bytes of one connection of one channel, all protocols.", true},
          x.connection_buffers);
    field(v,
          {"message_buffers", "buffers of a message connection",
           "Bytes of one connection of grouped sends and receives.", true},
          x.message_buffers);
    field(v,
          {"in_switch_buffers", "buffers in the switch",
           "Bytes a rank holds for reduction inside the switch."},
          x.in_switch_buffers);
}

void describe(FieldVisitor& v, FabricProfile& x) {
    field(v, {"name", "name", "A kind of network: nvswitch, pcie, infiniband, ...", true}, x.name);
    field(v, {"arch", "architecture", "Architecture of the devices; empty: any other."}, x.arch);
    field(v, {"note", "note", "What the figures stand on."}, x.note);
    field(v,
          {"bandwidth_efficiency", "bandwidth efficiency",
           "Bandwidth of large collectives over the physical bandwidth.", true},
          x.bandwidth_efficiency);
    field(v, {"step_latency", "latency per step", "Time of one ring step.", true}, x.step_latency);
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
    field(v,
          {"floor_latency", "least time per call",
           "Least time between two calls, however short the messages: the host's part."},
          x.floor_latency);
    field(v,
          {"reduction_rate", "rate of sums",
           "Bytes a rank adds to its own in a second of a reduction; none: no time is lost."},
          x.reduction_rate);
    field(v, {"low_latency", "LL protocol", "A ring with NCCL's LL protocol."}, x.low_latency);
    field(v, {"low_latency_128", "LL128 protocol", "A ring with NCCL's LL128 protocol."},
          x.low_latency_128);
    field(v, {"tree", "tree", "A double binary tree from node to node, Simple protocol."}, x.tree);
    field(v, {"in_switch", "in-switch reduction", "All-reduce inside the switch (NVLS)."},
          x.in_switch);
    field(v,
          {"in_network", "reduction in the network",
           "All-reduce in the switches between nodes (SHARP); step: all of them."},
          x.in_network);
    field(
        v,
        {"relay_efficiency", "relay efficiency",
         "Share of a link's rate that a message keeps when a device passes it on for two others."},
        x.relay_efficiency);
    field(v,
          {"staged_latency", "latency of staging",
           "Time that a card adds to every step when its traffic is staged through host memory."},
          x.staged_latency);
    field(v,
          {"buffers", "buffers",
           "Device memory of communicators; none: the stack's figure per communicator holds."},
          x.buffers);
}

} // namespace shardplan::sim
