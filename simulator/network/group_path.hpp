#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::sim {

/// One tier a group's traffic crosses, innermost first.
struct PathLevel {
    std::string_view name; ///< "nvswitch", "infiniband"; name of the fabric profile
    std::int64_t members =
        1;              ///< of these units (ranks at the innermost level) in one unit of the next
    Bandwidth per_rank; ///< of one direction for each rank when all ranks send, sharing applied
    Bandwidth per_link; ///< the most one pair reaches (its card or link)
    std::int64_t sharing_groups = 1; ///< groups that use the same links at the same time
    Seconds step_latency;            ///< of one message
    Seconds launch_latency;          ///< once per collective
    Bytes half_size;                 ///< bytes one of two ranks sends to reach half the bandwidth
    double ramp = 1.0;               ///< time lost goes with (half_size / bytes) to this power
    double spread = 0.0;             ///< relative standard deviation of the time of a collective

    friend bool operator==(const PathLevel&, const PathLevel&) = default;
};

/// Relative standard deviation of the time of a collective on a kind of network: its bandwidth, and
/// what is lost to the size of a message of ten half sizes, as those of training are about. By
/// derivation of `collective_time`: with x = (half_size / bytes)^ramp lost of 1 + x, an error of
/// half_size counts ramp x / (1 + x) times, one of ramp |ln(half_size / bytes)| as much.
/// `measured`: the bandwidth was measured on the machine, so its efficiency plays no part.
double spread_of(const FabricProfile& profile, bool measured);

/// How the ranks of one dimension's groups reach one another: members and links per level. Cost
/// code never sees a group size alone.
struct GroupPath {
    std::int64_t ranks = 1;
    std::vector<PathLevel>
        levels; ///< only levels the group crosses; the product of members = ranks

    friend bool operator==(const GroupPath&, const GroupPath&) = default;
};

/// The path of a group under a layout's placement. Constant time in the number of ranks.
GroupPath path_of(const Scenario& scenario, const Layout& layout, Group group);

/// Ranks `first`, `first` + stride, ... (`size` of them) of a group; groups that are a product of
/// dimensions have one such run per dimension, smallest stride first.
struct StridedRanks {
    std::int64_t stride = 1;
    std::int64_t size = 1;
    friend bool operator==(const StridedRanks&, const StridedRanks&) = default;
};
std::vector<StridedRanks> ranks_of(const Layout& layout, Group group);

/// Time of one collective over a path. `bytes` as in CommOp. Ring and tree are compared and the
/// faster taken; over several tiers the hierarchical form is compared too.
/// Source: Thakur et al. 2005 (ring, tree), NCCL (choice of the minimum).
Seconds collective_time(const GroupPath& path, Collective op, Bytes bytes);

/// Bytes one rank sends for it.
Bytes sent_per_rank(const GroupPath& path, Collective op, Bytes bytes);

} // namespace shardplan::sim
