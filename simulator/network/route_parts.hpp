#pragma once

#include "simulator/network/route.hpp"

/// What `route_between` puts a way together from.
namespace shardplan::sim {

/// The most ways that are told apart.
inline constexpr std::int64_t most_paths = std::int64_t{1} << 62;
/// a x b, at most most_paths.
std::int64_t times_at_most(std::int64_t a, std::int64_t b);

/// The ways inside one node between two of its parts.
struct NodeWay {
    std::vector<RouteLink> links;
    std::int64_t paths = 1;
    bool found = true;
};

/// From a device to another one of the same node. Where nodes share a scale-up domain the two may
/// be on different nodes, `to_prefix` then names the other.
NodeWay way_in_domain(const NodeTemplate& node, std::int64_t from, std::int64_t to,
                      const std::string& from_prefix, const std::string& to_prefix);
/// From a device to a card of its node; the way back is the same.
NodeWay way_to_card(const NodeTemplate& node, std::int64_t local, std::int64_t card,
                    const std::string& prefix);

/// Shortest ways in an explicit graph between two vertices; of equally short ones the widest is
/// given. Not found: the vertices are not connected.
NodeWay way_in_graph(const NodeTemplate& node, std::size_t from, std::size_t to,
                     const std::string& prefix);
/// Index of device or card `number` among the vertices.
std::size_t vertex_of(const NodeTemplate& node, VertexKind kind, std::int64_t number);

/// Between two nodes over the dimensions of a torus, the first dimension first.
NodeWay way_through_torus(const Fabric& fabric, std::int64_t devices_per_node, std::int64_t from,
                          std::int64_t to);

} // namespace shardplan::sim
