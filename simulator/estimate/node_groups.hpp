#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/estimate/estimate.hpp"

namespace shardplan::sim {

/// What an estimate uses of one node group, and which of its figures the others wait for: ranks
/// keep the pace of the slowest device, and a collective that of the slowest link.
struct GroupUse {
    std::int64_t node_group = 0;
    std::string name; ///< of the group; where it has none, "nodes" and its number
    std::string device;
    std::int64_t ranks = 0;
    std::vector<std::int64_t> stages; ///< pipeline stages with ranks in the group
    FlopRate peak;                    ///< dense, of the compute format
    Bytes usable;                     ///< device memory for the allocator, the least of its classes
    std::string scaleup;              ///< kind of network inside the node
    Bandwidth scaleup_per_rank;       ///< planned, all devices sending
    std::string network;              ///< kind between nodes; empty: no rank needs it
    Bandwidth network_per_rank;       ///< planned, out of the node; 0: links of a torus alone
    std::int64_t staged_cards = 0;    ///< without direct access to device memory
    double price_per_device_hour = 0.0;
    bool slowest_device = false;
    bool slowest_scaleup = false;
    bool slowest_network = false;

    friend bool operator==(const GroupUse&, const GroupUse&) = default;
};

/// One entry per node group with ranks, in rank order. `classes`: of an Estimate.
std::vector<GroupUse> group_uses(const Scenario& scenario, const Resolved& resolved,
                                 const std::vector<ClassMemory>& classes);

} // namespace shardplan::sim
