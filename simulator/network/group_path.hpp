#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::sim {

/// One way of moving data over a level: a protocol, a tree, a reduction in the switch. Its
/// bandwidth is `share` of the level's; a share of 0 means that the level does not offer it.
struct Transport {
    double share = 0.0;
    Seconds step_latency;
    Bytes half_size;

    friend bool operator==(const Transport&, const Transport&) = default;
};

/// Buffers of the collective library on a level; see BufferProfile. Zero: not stated.
struct Buffers {
    double channels = 0.0;
    double channel_rate = 0.0; ///< bytes/s
    Bytes connection;
    Bytes message;
    Bytes in_switch;

    friend bool operator==(const Buffers&, const Buffers&) = default;
};

/// Members of a group that lie along one dimension of a torus of nodes, joined without a switch.
struct TorusLine {
    /// Directions whose links a ring of the members uses at once: 2 where the dimension is closed
    /// and the members lie all around it, 1 on an open line, where a ring goes out over one
    /// direction and back over the other. 0: no torus, but a switch.
    std::int64_t directions = 0;
    std::int64_t stride = 1; ///< nodes from one member to the next, whose groups share the links
    Seconds hop;             ///< latency of one node to the next
    Bandwidth injection;     ///< of each rank into all dimensions together; 0: that of the links

    friend bool operator==(const TorusLine&, const TorusLine&) = default;
};
inline bool is_torus(const TorusLine& line) { return line.directions > 0; }

/// One tier a group's traffic crosses, innermost first. Rates and latencies are those of a ring
/// with plain stores; the Transports say how others differ.
struct PathLevel {
    std::string_view name; ///< "nvswitch", "infiniband"; name of the fabric profile
    std::int64_t members =
        1;              ///< of these units (ranks at the innermost level) in one unit of the next
    Bandwidth per_rank; ///< of one direction for each rank when all ranks send, sharing applied
    Bandwidth per_link; ///< the most one pair reaches (its card or link)
    std::int64_t sharing_groups = 1; ///< groups that use the same links at the same time
    Seconds step_latency;            ///< of one message
    Seconds launch_latency;          ///< once per collective
    Seconds floor_latency;           ///< the least a collective takes
    double seconds_per_sum = 0.0;    ///< of a byte that a rank adds to its own
    Bytes half_size;                 ///< bytes one of two ranks sends to reach half the bandwidth
    double ramp = 1.0;               ///< time lost goes with (half_size / bytes) to this power
    double spread = 0.0;             ///< relative standard deviation of the time of a collective

    bool is_scaleup = false; ///< inside a node or a domain of devices
    /// A chain through all ranks of one unit runs at this multiple of a ring: in a mesh the link
    /// that would close the ring is free.
    double chain_gain = 1.0;
    Transport low_latency, low_latency_128, tree, in_switch;
    Transport in_network; ///< reduction in the switches of a network; a step is all of them
    Buffers buffers;
    TorusLine torus;

    friend bool operator==(const PathLevel&, const PathLevel&) = default;
};

/// Relative standard deviation of the time of a collective on a kind of network: its bandwidth, and
/// what is lost to the size of a message of ten half sizes, as those of training are about. By
/// derivation of `collective_time`: with x = (half_size / bytes)^ramp lost of 1 + x, an error of
/// half_size counts ramp x / (1 + x) times, one of ramp |ln(half_size / bytes)| as much.
/// `measured`: the bandwidth was measured on the machine, so its efficiency plays no part.
double spread_of(const FabricProfile& profile, bool measured);

/// What one algorithm and protocol cost on a path, as a function of the bytes S alone:
/// latency + S x seconds_per_byte x (1 + (half / S)^ramp).
struct CostLine {
    Seconds latency;
    double seconds_per_byte = 0.0;
    Bytes half;
    double ramp = 1.0;
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::simple;
};

/// The lines of every collective: those of `op` are lines[begin[op]] to lines[begin[op + 1] - 1].
struct CostLines {
    std::vector<CostLine> lines;
    std::array<std::uint32_t, EnumNames<Collective>::names.size() + 1> begin{};
    Seconds floor; ///< the least a collective takes
};

/// How the ranks of one dimension's groups reach one another: members and links per level. Cost
/// code never sees a group size alone.
struct GroupPath {
    std::int64_t ranks = 1;
    std::vector<PathLevel>
        levels; ///< only levels the group crosses; the product of members = ranks
    /// Bits by index of Algorithm and of Protocol, see allowed_algorithms.
    std::uint32_t algorithms = 0x1F;
    std::uint32_t protocols = 0x7;
    std::int64_t servers = 1; ///< of algorithm parameter_server
    /// What the above comes to; `path_of` fills it, and it follows from the other members.
    CostLines costs = {};

    friend bool operator==(const GroupPath& a, const GroupPath& b) {
        return a.ranks == b.ranks && a.levels == b.levels && a.algorithms == b.algorithms &&
               a.protocols == b.protocols && a.servers == b.servers;
    }
};

/// Ranks `first`, `first` + stride, ... (`size` of them) of a group; groups that are a product of
/// dimensions have one such run per dimension, smallest stride first.
struct StridedRanks {
    std::int64_t stride = 1;
    std::int64_t size = 1;
    friend bool operator==(const StridedRanks&, const StridedRanks&) = default;
};
std::vector<StridedRanks> ranks_of(const Layout& layout, Group group);

/// Where the ranks of a group lie: all that its path follows from beside the Scenario, whatever the
/// dimensions and the order that put them there.
struct GroupRanks {
    std::array<StridedRanks, 2> runs{}; ///< those of several ranks, smallest stride first
    std::int64_t first_stride = 1;      ///< of the first run, be it of one rank
    std::int64_t all = 1;               ///< ranks of the whole layout

    [[nodiscard]] std::int64_t size() const { return runs[0].size * runs[1].size; }
    friend bool operator==(const GroupRanks&, const GroupRanks&) = default;
};
GroupRanks group_ranks(const Layout& layout, Group group);
/// Of every group, by Group.
std::array<GroupRanks, group_count> all_group_ranks(const Layout& layout);

/// The path of a group under a layout's placement. Constant time in the number of ranks.
GroupPath path_of(const Scenario& scenario, const Layout& layout, Group group);
/// The same without `costs`, for those who ask for no times.
GroupPath tiers_of(const Scenario& scenario, const Layout& layout, Group group);
GroupPath tiers_of(const Scenario& scenario, const GroupRanks& ranks);

/// Paths of all groups of a layout that somebody else holds, by Group.
using GroupPaths = std::array<const GroupPath*, group_count>;
inline const GroupPath& path_in(const GroupPaths& paths, Group group) {
    return *paths[static_cast<std::size_t>(group)];
}

/// Time of one collective over a path. `bytes` as in CommOp. The fastest of the allowed pairs of
/// algorithm and protocol; where none of those allowed does this collective, a ring does it.
/// Source: NCCL src/graph/tuning.cc (choice of the minimum over algorithms and protocols).
Seconds collective_time(const GroupPath& path, Collective op, Bytes bytes);

/// The algorithm and protocol of that time.
CostLine chosen_line(const GroupPath& path, Collective op, Bytes bytes);

/// Bytes one rank sends for it.
Bytes sent_per_rank(const GroupPath& path, Collective op, Bytes bytes);

} // namespace shardplan::sim
