#pragma once

#include <cstdint>
#include <vector>

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Links between the devices of one node, from its explicit graph.
struct LinkGraph {
    std::int64_t devices = 0;
    std::vector<std::int64_t> links; ///< parallel links between i and j at [i * devices + j]
    Bandwidth per_link;              ///< of one direction, sheet
    [[nodiscard]] std::int64_t between(std::int64_t i, std::int64_t j) const {
        return links[static_cast<std::size_t>(i * devices + j)];
    }
};

/// The graph of the direct links between devices; no devices where the node states none.
LinkGraph link_graph(const NodeTemplate& node);

/// Rings through all `members` (device numbers) that share no link, each direction of a link for
/// itself: two ranks have one for every link between them, more ranks two for every cycle. Where
/// there is none, rings in which a member passes messages on for two others that have no link
/// (`relayed`). A bounded search in fixed order: exact for the graphs of 8-device nodes.
/// Source: NCCL src/graph/search.cc (what its search looks for).
struct Rings {
    std::int64_t count = 0;
    bool relayed = false;
    friend bool operator==(const Rings&, const Rings&) = default;
};
Rings disjoint_rings(const LinkGraph& graph, const std::vector<std::int64_t>& members);

/// The fewest rings any group of `size` devices at this stride has among the first `used` devices.
Rings fewest_rings(const LinkGraph& graph, std::int64_t used, std::int64_t stride,
                   std::int64_t size);

/// The rings of every group that fits a node, for all node groups with links between devices.
std::vector<MeshRings> mesh_rings(const Cluster& cluster);

} // namespace shardplan::sim
