#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// What one way of moving data costs over a kind of network: a wire protocol, a tree, a reduction
/// inside the switch.
struct TransportProfile {
    Constant bandwidth_efficiency; ///< of the physical bandwidth at large sizes
    Constant step_latency;         ///< seconds from one rank (tree: one node) to the next
    /// Bytes per rank at half the bandwidth. Ring: per doubling of the members; tree: per step.
    Constant half_size;

    friend bool operator==(const TransportProfile&, const TransportProfile&) = default;
};

/// Device memory that the collective library takes for communicators over a kind of network.
struct BufferProfile {
    std::optional<Constant> channels;     ///< of a communicator that stays inside; scale-up only
    std::optional<Constant> channel_rate; ///< bytes/s of cards for which it opens one; networks
    Constant connection_buffers;          ///< bytes of one connection of one channel
    Constant message_buffers;             ///< bytes of one connection of grouped sends and receives
    std::optional<Constant> in_switch_buffers; ///< bytes for reduction inside the switch

    friend bool operator==(const BufferProfile&, const BufferProfile&) = default;
};

/// What a kind of network costs on top of its nominal bandwidth, as Constants. One data file per
/// kind ("nvswitch", "infiniband", ...), and further ones for architectures of devices whose links
/// behave differently; names are those of ScaleupKind and FabricKind. The constants outside the
/// optional parts are those of a ring with NCCL's Simple protocol.
struct FabricProfile {
    std::string name;
    std::string arch; ///< architecture of the devices it holds for; empty: any other
    std::string note;
    Constant bandwidth_efficiency; ///< of the physical bandwidth at large sizes
    Constant step_latency;         ///< seconds per ring step
    Constant launch_latency;       ///< seconds per collective call
    Constant half_size;            ///< bytes per rank at half the bandwidth, per doubling
    Constant ramp;                 ///< share of time lost goes with (half_size / bytes)^ramp
    /// Least seconds between two calls, however short the messages: the host's part.
    std::optional<Constant> floor_latency;
    /// Bytes/s that a rank adds to its own in a reduction, one after the other with moving them;
    /// none: sums take no time of their own.
    std::optional<Constant> reduction_rate;
    std::optional<TransportProfile> low_latency;     ///< NCCL's LL protocol
    std::optional<TransportProfile> low_latency_128; ///< NCCL's LL128 protocol
    std::optional<TransportProfile> tree;            ///< from node to node, Simple protocol
    std::optional<TransportProfile> in_switch;       ///< reduction inside the switch (NVLS)
    /// Reduction in the switches between nodes (SHARP), for clusters that have it.
    std::optional<TransportProfile> in_network;
    /// Of the rate of a link a message keeps that a device passes on for two others (mesh without
    /// a link between them).
    std::optional<Constant> relay_efficiency;
    /// Seconds that staging through host memory adds to every step; networks of cards that can read
    /// device memory.
    std::optional<Constant> staged_latency;
    std::optional<BufferProfile> buffers; ///< none: the stack's figure per communicator holds

    friend bool operator==(const FabricProfile&, const FabricProfile&) = default;
};

void describe(FieldVisitor& v, TransportProfile& x);
void describe(FieldVisitor& v, BufferProfile& x);
void describe(FieldVisitor& v, FabricProfile& x);

} // namespace shardplan::sim
