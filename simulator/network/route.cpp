#include "simulator/network/route.hpp"

#include <algorithm>
#include <numeric>

#include "simulator/network/route_parts.hpp"

namespace shardplan::sim {

namespace {

/// A device with its node, and names for what belongs to it.
struct End {
    DeviceAt at;
    const NodeTemplate* node = nullptr;
    std::string prefix; ///< of everything inside the node
    std::int64_t card = 0;
};

End end_of(const Cluster& cluster, std::int64_t rank, bool one_node) {
    End end;
    end.at = device_at(cluster, rank);
    end.node = &cluster.node_groups[static_cast<std::size_t>(end.at.node_group)].node;
    if (!one_node) end.prefix = "node " + std::to_string(end.at.node) + " ";
    end.card = card_of(*end.node, end.at.local);
    return end;
}

void append(const NodeWay& way, Route& route) {
    route.links.insert(route.links.end(), way.links.begin(), way.links.end());
    route.paths = times_at_most(route.paths, way.paths);
}

void append_backwards(const NodeWay& way, Route& route) {
    for (std::size_t i = way.links.size(); i-- > 0;) {
        RouteLink link = way.links[i];
        std::swap(link.from, link.to);
        route.links.push_back(std::move(link));
    }
    route.paths = times_at_most(route.paths, way.paths);
}

bool can_pass_on(const NodeTemplate& node) {
    return node.scaleup.kind != ScaleupKind::none && node.scaleup.kind != ScaleupKind::pcie &&
           node.scaleup.peer_access;
}

/// With a leaf per card, a message to a device of another rail first goes to the device of its own
/// node that has this rail. Source: NCCL src/graph/paths.cc (PXN).
void pass_to_rail(const Fabric& fabric, End& from, const End& to, Route& route) {
    if (!fabric.rails || from.card == to.card || !can_pass_on(*from.node)) return;
    for (std::int64_t local = 0; local < from.node->devices; ++local) {
        if (card_of(*from.node, local) != to.card) continue;
        append(way_in_domain(*from.node, from.at.local, local, from.prefix, from.prefix), route);
        from.at.local = local;
        from.card = to.card;
        return;
    }
}

/// The name of a group of switches that holds a node.
std::string switch_name(const Fabric& fabric, std::size_t level, std::int64_t node,
                        std::int64_t card) {
    if (level >= fabric.levels.size()) return fabric.levels.empty() ? "network" : "above";
    const FabricLevel& tier = fabric.levels[level];
    std::string name = tier.name;
    if (tier.nodes_per_group > 0) name += " " + std::to_string(node / tier.nodes_per_group);
    if (fabric.rails && level == 0) name += " rail " + std::to_string(card);
    return name;
}

/// From card to card through the tree of switches, up to the lowest level that holds both nodes.
void add_switches(const Fabric& fabric, const End& from, const End& to, Route& route) {
    const auto holds_both = [&](std::size_t level) {
        const std::int64_t nodes = fabric.levels[level].nodes_per_group;
        return nodes == 0 || from.at.node / nodes == to.at.node / nodes;
    };
    std::size_t top = 0;
    while (top < fabric.levels.size() && !holds_both(top))
        ++top;
    double over = 1.0;
    std::vector<RouteLink> up;
    std::vector<RouteLink> down;
    const auto port = [&](const End& end) { return usable(end.node->nics.per_nic); };
    const auto sharing = [&](const End& end) {
        const auto devices = static_cast<double>(end.node->devices);
        return std::max(
            1.0, devices / static_cast<double>(std::max<std::int64_t>(1, end.node->nics.count)));
    };
    std::string from_name = from.prefix + "card " + std::to_string(from.card);
    std::string to_name = to.prefix + "card " + std::to_string(to.card);
    for (std::size_t level = 0; level <= top; ++level) {
        RouteLink a;
        a.kind = name_of(fabric.kind);
        a.from = from_name;
        a.to = switch_name(fabric, level, from.at.node, from.card);
        a.alone = port(from);
        a.shared = port(from) / (over * sharing(from));
        if (level < fabric.levels.size()) a.latency = fabric.levels[level].latency;
        RouteLink b;
        b.kind = a.kind;
        b.from = switch_name(fabric, level, to.at.node, to.card);
        b.to = to_name;
        b.alone = port(to);
        b.shared = port(to) / (over * sharing(to));
        from_name = a.to;
        to_name = b.from;
        // what crosses a level on the way up crosses it on the way down too, but the top only once
        if (level < top && level < fabric.levels.size()) b.latency = fabric.levels[level].latency;
        up.push_back(std::move(a));
        down.push_back(std::move(b));
        if (level < fabric.levels.size()) {
            over *= std::max(1.0, fabric.levels[level].oversubscription);
        }
    }
    route.links.insert(route.links.end(), up.begin(), up.end());
    route.links.insert(route.links.end(), down.rbegin(), down.rend());
    // A card has one leaf of its own; above it every switch of the level that joins the two is a
    // way. With rails the switches of a level are split over them.
    if (top == 0) return;
    const std::int64_t switches = top < fabric.levels.size() ? fabric.levels[top].switches : 0;
    route.paths_stated = switches > 0;
    const std::int64_t rails = fabric.rails ? std::max<std::int64_t>(1, from.node->nics.count) : 1;
    route.paths = times_at_most(
        route.paths, std::max<std::int64_t>(1, switches / (switches >= rails ? rails : 1)));
}

Error no_way(std::string_view where, std::int64_t from, std::int64_t to, std::string what) {
    return {ErrorCode::bad_input, std::string(where),
            "devices " + std::to_string(from) + " and " + std::to_string(to) +
                " have no way to one another: " + std::move(what),
            "describe the network between them in the cluster file"};
}

void find_narrowest(Route& route) {
    for (std::size_t i = 1; i < route.links.size(); ++i) {
        if (route.links[i].alone < route.links[route.bottleneck].alone) route.bottleneck = i;
        if (route.links[i].shared < route.links[route.crowded].shared) route.crowded = i;
    }
}

/// Whether two devices share a scale-up domain.
bool share_domain(const Cluster& cluster, const End& a, const End& b, std::int64_t from,
                  std::int64_t to) {
    if (a.at.node == b.at.node) return true;
    if (cluster.fabric.kind == FabricKind::nvlink_domain) return true;
    const std::int64_t domain = a.node->scaleup.domain_devices;
    return a.at.node_group == b.at.node_group && domain > a.node->devices &&
           from / domain == to / domain;
}

Status check_numbers(const Cluster& cluster, std::int64_t from, std::int64_t to,
                     std::string_view where) {
    const std::int64_t devices = device_count(cluster);
    for (const std::int64_t rank : {from, to}) {
        if (rank < 0 || rank >= devices) {
            return Error{ErrorCode::bad_input, std::string(where),
                         "there is no device " + std::to_string(rank) + ": the cluster has " +
                             std::to_string(devices) + ", counted from 0",
                         "write numbers from 0 to " + std::to_string(devices - 1)};
        }
    }
    if (from == to) {
        return Error{ErrorCode::bad_input, std::string(where),
                     "from device " + std::to_string(from) + " to itself there is no link",
                     "write two different devices"};
    }
    return Done{};
}

} // namespace

Seconds Route::latency() const {
    return std::accumulate(links.begin(), links.end(), Seconds(),
                           [](Seconds sum, const RouteLink& link) { return sum + link.latency; });
}

std::int64_t Route::hops() const {
    return std::accumulate(links.begin(), links.end(), std::int64_t{0},
                           [](std::int64_t sum, const RouteLink& link) { return sum + link.hops; });
}

DeviceAt device_at(const Cluster& cluster, std::int64_t rank) {
    DeviceAt out;
    for (std::size_t g = 0; g < cluster.node_groups.size(); ++g) {
        const NodeGroup& group = cluster.node_groups[g];
        const std::int64_t held = group.count * group.node.devices;
        if (rank < held || g + 1 == cluster.node_groups.size()) {
            out.node_group = static_cast<std::int64_t>(g);
            out.node += rank / group.node.devices;
            out.local = rank % group.node.devices;
            return out;
        }
        rank -= held;
        out.node += group.count;
    }
    return out;
}

Result<Route> route_between(const Cluster& cluster, std::int64_t from, std::int64_t to,
                            std::string_view where) {
    if (Status status = check_numbers(cluster, from, to, where); !status) {
        return status.error();
    }
    const bool one_node = node_count(cluster) == 1;
    End a = end_of(cluster, from, one_node);
    const End b = end_of(cluster, to, one_node);
    Route route;
    if (share_domain(cluster, a, b, from, to)) {
        const NodeWay way = way_in_domain(*a.node, a.at.local, b.at.local, a.prefix, b.prefix);
        if (!way.found) return no_way(where, from, to, "the graph of their node is in parts");
        append(way, route);
        find_narrowest(route);
        return route;
    }
    const Fabric& fabric = cluster.fabric;
    if (fabric.kind == FabricKind::none) {
        return no_way(where, from, to, "\"fabric\" is of kind \"none\"");
    }
    const bool has_cards = a.node->nics.count > 0 && b.node->nics.count > 0;
    if (!has_cards && fabric.torus.empty()) {
        return no_way(where, from, to, "a node has no network card");
    }
    pass_to_rail(fabric, a, b, route);
    if (has_cards) {
        const NodeWay out = way_to_card(*a.node, a.at.local, a.card, a.prefix);
        if (!out.found) return no_way(where, from, to, "a card is not linked to its device");
        append(out, route);
    }
    if (fabric.torus.empty()) {
        add_switches(fabric, a, b, route);
    } else {
        append(way_through_torus(fabric, std::max(a.node->devices, b.node->devices), a.at.node,
                                 b.at.node),
               route);
    }
    if (has_cards) {
        const NodeWay in = way_to_card(*b.node, b.at.local, b.card, b.prefix);
        if (!in.found) return no_way(where, from, to, "a card is not linked to its device");
        append_backwards(in, route);
    }
    find_narrowest(route);
    return route;
}

} // namespace shardplan::sim
