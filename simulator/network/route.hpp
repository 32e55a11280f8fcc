#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/cluster.hpp"
#include "simulator/units/result.hpp"

/// The way of one message through the graph that a cluster describes, worked out from where its
/// ends are: no list of nodes, links or pairs is ever made, so size costs nothing.
namespace shardplan::sim {

/// A link of a way, or several equal ones in a row.
struct RouteLink {
    std::string from;
    std::string to;
    std::string_view kind; ///< "nvswitch", "pcie", "infiniband", "host memory", "torus"
    std::int64_t hops = 1; ///< equal links in a row: along one dimension of a torus
    Bandwidth alone;       ///< for this message, nothing else under way
    /// For this message when all devices send to one that lies as they lie to one another here.
    Bandwidth shared;
    Seconds latency; ///< of all hops, as stated; 0: not stated

    friend bool operator==(const RouteLink&, const RouteLink&) = default;
};

/// A shortest way, and how many there are.
struct Route {
    std::vector<RouteLink> links;
    std::int64_t paths = 1;     ///< equally short ways; at most 2^62, which stands for more
    bool paths_stated = true;   ///< false: the cluster does not say how many switches there are
    std::size_t bottleneck = 0; ///< the narrowest link for a message alone
    std::size_t crowded = 0;    ///< the narrowest when all send

    [[nodiscard]] Bandwidth bandwidth() const { return links[bottleneck].alone; }
    [[nodiscard]] Bandwidth crowded_bandwidth() const { return links[crowded].shared; }
    [[nodiscard]] Seconds latency() const;
    [[nodiscard]] std::int64_t hops() const;

    friend bool operator==(const Route&, const Route&) = default;
};

/// Where device `rank` of a cluster is.
struct DeviceAt {
    std::int64_t node_group = 0;
    std::int64_t node = 0;  ///< of the cluster
    std::int64_t local = 0; ///< device of the node
    friend bool operator==(const DeviceAt&, const DeviceAt&) = default;
};
DeviceAt device_at(const Cluster& cluster, std::int64_t rank);

/// The card of a node that serves one of its devices: neighbours share one where there are fewer
/// cards than devices. Of an explicit graph: the nearest.
std::int64_t card_of(const NodeTemplate& node, std::int64_t local);

/// Coordinates of a node of a torus.
std::vector<std::int64_t> torus_coordinates(const Fabric& fabric, std::int64_t node);

/// The way from device `from` to device `to` of a cluster that check_cluster accepts. Bandwidths
/// are those to plan with (see `usable`), without what a kind of network loses of them. Refuses
/// numbers of devices that the cluster does not have, one device twice, and devices without a way.
Result<Route> route_between(const Cluster& cluster, std::int64_t from, std::int64_t to,
                            std::string_view where);

} // namespace shardplan::sim
