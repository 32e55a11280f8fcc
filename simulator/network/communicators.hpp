#pragma once

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

/// Channels that a communicator over this path opens: those of the scale-up network on one node,
/// else as many as its cards need, twice over. 0: no network of the path states its buffers.
/// Source: NCCL src/graph/connect.cc (the doubling), search.cc.
double channels_of(const GroupPath& path);

/// Device memory of the communicator on one rank: for every channel a set of buffers of the three
/// protocols for each connection the algorithms use (ring: from one neighbour; tree: from parent
/// and children; over a network the sender holds buffers too), and the buffers for reduction in the
/// switch. 0: no network of the path states its buffers.
/// Source: NCCL src/init.cc, src/transport/{p2p,net,nvls}.cc.
Bytes communicator_memory(const GroupPath& path);

/// What grouped sends and receives add to that: connections to every peer.
/// Source: NCCL src/transport/p2p.cc, src/init.cc (channels per peer).
Bytes message_memory(const GroupPath& path);

/// Both for every group that the layout opens a communicator for; groups of which no network
/// states the buffers are counted in `others`.
struct CommunicatorMemory {
    Bytes buffers;
    std::int64_t others = 0;
    friend bool operator==(const CommunicatorMemory&, const CommunicatorMemory&) = default;
};
CommunicatorMemory communicators_of(const Scenario& scenario, const Layout& layout);
/// The same where the paths of the layout are known.
CommunicatorMemory communicators_of(const GroupPaths& paths, const Layout& layout);

} // namespace shardplan::sim
