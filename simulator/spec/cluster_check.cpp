#include "simulator/spec/cluster_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

Error problem(const std::string& where, std::string what, std::string hint) {
    return Error{ErrorCode::bad_input, where, std::move(what), std::move(hint)};
}

std::string at(const std::string& where, std::string_view list, std::size_t i) {
    return where + "/" + std::string(list) + "/" + std::to_string(i);
}

/// Software may beat a sheet by rounding, not by more.
constexpr double sheet_tolerance = 1.05;

Status check_link(const LinkBandwidth& link, const std::string& where) {
    for (const auto& [key, value] :
         {std::pair{"achievable", link.achievable}, std::pair{"measured", link.measured}}) {
        if (value && *value > link.physical * sheet_tolerance) {
            return problem(
                where + "/" + key,
                to_text(*value) + " is more than the physical bandwidth " + to_text(link.physical),
                "give every bandwidth for one direction, and mend the wrong one");
        }
    }
    return Done{};
}

// --- explicit graphs -------------------------------------------------------------------------

using Neighbours = std::map<std::string, std::vector<std::string>>;

std::set<std::string> reachable_from(const std::string& start, const Neighbours& neighbours) {
    std::set<std::string> seen = {start};
    std::vector<std::string> open = {start};
    while (!open.empty()) {
        const std::string name = open.back();
        open.pop_back();
        for (const std::string& next : neighbours.at(name)) {
            if (seen.insert(next).second) {
                open.push_back(next);
            }
        }
    }
    return seen;
}

Status check_links(const NodeTemplate& node, const std::map<std::string, VertexKind>& kinds,
                   Neighbours& neighbours, const std::string& where) {
    for (std::size_t i = 0; i < node.links.size(); ++i) {
        const GraphLink& link = node.links[i];
        const std::string here = at(where, "links", i);
        for (const auto& [key, end] : {std::pair{"from", &link.from}, std::pair{"to", &link.to}}) {
            if (kinds.count(*end) == 0) {
                return problem(here + "/" + key, "there is no vertex \"" + *end + "\"",
                               "name one of the vertices of this node");
            }
        }
        if (link.from == link.to) {
            return problem(here, "links \"" + link.from + "\" to itself", "name two vertices");
        }
        if (usable(link.bandwidth) <= Bandwidth(0.0)) {
            return problem(here + "/bandwidth", "the link has no bandwidth",
                           "write \"physical\": \"25 GB/s\"");
        }
        if (Status status = check_link(link.bandwidth, here + "/bandwidth"); !status) {
            return status;
        }
        neighbours[link.from].push_back(link.to);
        neighbours[link.to].push_back(link.from);
    }
    return Done{};
}

Status check_counts(const NodeTemplate& node, const std::map<std::string, VertexKind>& kinds,
                    const std::string& where) {
    const auto count = [&](VertexKind kind) {
        return static_cast<std::int64_t>(std::count_if(
            kinds.begin(), kinds.end(), [&](const auto& entry) { return entry.second == kind; }));
    };
    const std::int64_t devices = count(VertexKind::device);
    const std::int64_t nics = count(VertexKind::nic);
    if (devices != node.devices) {
        return problem(where + "/vertices",
                       "the graph has " + std::to_string(devices) + " devices, the node " +
                           std::to_string(node.devices),
                       "add or remove vertices of kind \"device\", or mend \"devices\"");
    }
    if (nics != node.nics.count) {
        return problem(where + "/vertices",
                       "the graph has " + std::to_string(nics) + " network cards, the node " +
                           std::to_string(node.nics.count),
                       "add or remove vertices of kind \"nic\", or mend \"nics.count\"");
    }
    return Done{};
}

Status check_reach(const NodeTemplate& node, const std::map<std::string, VertexKind>& kinds,
                   const Neighbours& neighbours, const std::string& where) {
    const std::set<std::string> seen = reachable_from(node.vertices.front().name, neighbours);
    for (std::size_t i = 0; i < node.vertices.size(); ++i) {
        const Vertex& vertex = node.vertices[i];
        const std::string here = at(where, "vertices", i);
        const std::vector<std::string>& next = neighbours.at(vertex.name);
        const bool has_host = std::any_of(next.begin(), next.end(), [&](const std::string& name) {
            const VertexKind kind = kinds.at(name);
            return kind == VertexKind::host || kind == VertexKind::pcie_switch;
        });
        if (vertex.kind == VertexKind::nic && !has_host) {
            return problem(here, "the network card \"" + vertex.name + "\" has no host",
                           "add a link from it to a vertex of kind \"host\" or \"pcie_switch\"");
        }
        if (seen.count(vertex.name) == 0) {
            return problem(here,
                           "\"" + vertex.name + "\" is not connected to \"" +
                               node.vertices.front().name + "\"",
                           "add the missing link to \"links\"");
        }
    }
    return Done{};
}

Status check_graph(const NodeTemplate& node, const std::string& where) {
    if (node.vertices.empty()) {
        if (node.links.empty()) {
            return Done{};
        }
        return problem(where + "/links", "there are links but no vertices",
                       "list the vertices too, or leave both out");
    }
    std::map<std::string, VertexKind> kinds;
    Neighbours neighbours;
    for (std::size_t i = 0; i < node.vertices.size(); ++i) {
        const Vertex& vertex = node.vertices[i];
        if (!kinds.emplace(vertex.name, vertex.kind).second) {
            return problem(at(where, "vertices", i) + "/name",
                           "there are two vertices \"" + vertex.name + "\"",
                           "give each vertex a name of its own");
        }
        neighbours[vertex.name];
    }
    if (Status status = check_counts(node, kinds, where); !status) {
        return status;
    }
    if (Status status = check_links(node, kinds, neighbours, where); !status) {
        return status;
    }
    return check_reach(node, kinds, neighbours, where);
}

// --- nodes and fabric ------------------------------------------------------------------------

/// Staged cards are cards of the node, each named once, and have a rate.
Status check_staged(const Nics& nics, const std::string& where) {
    std::set<std::int64_t> named;
    for (std::size_t i = 0; i < nics.staged.size(); ++i) {
        const std::int64_t card = nics.staged[i];
        if (card < 0 || card >= nics.count) {
            return problem(at(where, "staged", i),
                           "there is no card " + std::to_string(card) + ": the node has " +
                               std::to_string(nics.count) + ", counted from 0",
                           nics.count > 0
                               ? "write numbers from 0 to " + std::to_string(nics.count - 1)
                               : "leave \"staged\" out");
        }
        if (!named.insert(card).second) {
            return problem(at(where, "staged", i),
                           "card " + std::to_string(card) + " is named twice", "remove one");
        }
    }
    if (nics.staged_rate && *nics.staged_rate <= Bandwidth(0.0)) {
        return problem(where + "/staged_rate", "staged cards have no bandwidth",
                       "write a rate such as \"16 GB/s\", or leave it out");
    }
    if (nics.staged_rate && *nics.staged_rate > nics.per_nic.physical * sheet_tolerance) {
        return problem(where + "/staged_rate",
                       to_text(*nics.staged_rate) + " is more than the card has, " +
                           to_text(nics.per_nic.physical),
                       "give both for one direction, and mend the wrong one");
    }
    return Done{};
}

Status check_node_links(const NodeTemplate& node, const std::string& where) {
    for (const auto& [key, link] :
         {std::pair{"/scaleup/per_device", &node.scaleup.per_device},
          std::pair{"/nics/per_nic", &node.nics.per_nic},
          std::pair{"/host/pcie_per_device", &node.host.pcie_per_device}}) {
        if (Status status = check_link(*link, where + key); !status) {
            return status;
        }
    }
    const bool no_scaleup = usable(node.scaleup.per_device) <= Bandwidth(0.0);
    if (no_scaleup && (node.devices > 1 || node.scaleup.domain_devices > 1)) {
        return problem(where + "/scaleup/per_device",
                       "the devices of a node have no bandwidth between them",
                       "write \"per_device\": {\"physical\": \"450 GB/s\"}, one direction");
    }
    if (node.nics.count > 0 && usable(node.nics.per_nic) <= Bandwidth(0.0)) {
        return problem(where + "/nics/per_nic", "the network cards have no bandwidth",
                       "write \"per_nic\": {\"physical\": \"400 Gbit/s\"}, one direction");
    }
    if (Status status = check_staged(node.nics, where + "/nics"); !status) {
        return status;
    }
    const std::int64_t domain = node.scaleup.domain_devices;
    if (domain > 0 && domain % node.devices != 0 && node.devices % domain != 0) {
        return problem(where + "/scaleup/domain_devices",
                       "a domain of " + std::to_string(domain) +
                           " devices cuts through a node of " + std::to_string(node.devices),
                       "write a multiple or a divisor of the devices of a node, or 0 for one node");
    }
    return Done{};
}

Status check_group(const NodeGroup& group, const std::string& where) {
    if (group.count < 1) {
        return problem(where + "/count", "a group of no nodes", "write 1 or more");
    }
    const std::string node = where + "/node";
    if (group.node.device.empty()) {
        return problem(node + "/device", "the node names no device",
                       "write a name from `shardplan list devices`");
    }
    if (group.node.devices < 1) {
        return problem(node + "/devices", "the node holds no device", "write 1 or more");
    }
    if (group.count > most_devices || group.node.devices > most_devices / group.count) {
        return problem(where + "/count", "more than 16 777 216 devices",
                       "describe a smaller cluster");
    }
    if (Status status = check_node_links(group.node, node); !status) {
        return status;
    }
    return check_graph(group.node, node);
}

/// All devices in one scale-up domain need no other network.
bool one_domain(const Cluster& cluster) {
    const std::int64_t total = device_count(cluster);
    return std::all_of(
        cluster.node_groups.begin(), cluster.node_groups.end(),
        [&](const NodeGroup& group) { return group.node.scaleup.domain_devices >= total; });
}

Status check_between_nodes(const Cluster& cluster, const std::string& where) {
    std::int64_t nodes = 0;
    for (const NodeGroup& group : cluster.node_groups) {
        nodes += group.count;
    }
    if (nodes == 1 || one_domain(cluster)) {
        return Done{};
    }
    if (cluster.fabric.kind == FabricKind::none) {
        return problem(where + "/fabric/kind",
                       std::to_string(nodes) + " nodes, but no network between them",
                       "write \"infiniband\", \"roce\", \"ethernet\", ...");
    }
    if (cluster.fabric.kind == FabricKind::nvlink_domain || !cluster.fabric.torus.empty()) {
        return Done{}; // links of a torus may end at the devices
    }
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        if (cluster.node_groups[i].node.nics.count == 0) {
            return problem(at(where, "node_groups", i) + "/node/nics/count",
                           "the nodes have no network cards",
                           "write \"nics\": {\"count\": 8, \"per_nic\": {\"physical\": "
                           "\"400 Gbit/s\"}}");
        }
    }
    return Done{};
}

/// A torus has links with a bandwidth, as many places as there are nodes, and nothing else between
/// them.
Status check_torus(const Cluster& cluster, const std::string& where) {
    const Fabric& fabric = cluster.fabric;
    if (fabric.torus.empty()) {
        return Done{};
    }
    const std::string here = where + "/fabric/torus";
    if (!fabric.levels.empty()) {
        return problem(where + "/fabric/levels", "a torus has no levels of switches",
                       "keep \"torus\" or \"levels\"");
    }
    if (fabric.kind == FabricKind::none || fabric.kind == FabricKind::nvlink_domain) {
        return problem(where + "/fabric/kind",
                       "\"" + std::string(name_of(fabric.kind)) + "\" joins no nodes by a torus",
                       "write the kind its links are nearest to: \"infiniband\", \"roce\", ...");
    }
    std::int64_t places = 1;
    std::string product;
    for (std::size_t i = 0; i < fabric.torus.size(); ++i) {
        const TorusDimension& dimension = fabric.torus[i];
        const std::string of = here + "/" + std::to_string(i);
        if (dimension.nodes < 1) {
            return problem(of + "/nodes", "a dimension of no nodes", "write 1 or more");
        }
        if (usable(dimension.per_link) <= Bandwidth(0.0)) {
            return problem(of + "/per_link", "the links of this dimension have no bandwidth",
                           "write \"per_link\": {\"physical\": \"50 GB/s\"}, one direction");
        }
        if (Status status = check_link(dimension.per_link, of + "/per_link"); !status) {
            return status;
        }
        if (places > most_devices / dimension.nodes) {
            return problem(here, "more than 16 777 216 nodes", "describe a smaller torus");
        }
        places *= dimension.nodes;
        product += (product.empty() ? "" : " x ") + std::to_string(dimension.nodes);
    }
    if (const std::int64_t nodes = node_count(cluster); places != nodes) {
        return problem(here,
                       "the dimensions " + product + " hold " + std::to_string(places) +
                           " nodes, the cluster has " + std::to_string(nodes),
                       "write dimensions whose product is " + std::to_string(nodes) +
                           ", or node counts that add up to " + std::to_string(places));
    }
    const bool any_cards =
        std::any_of(cluster.node_groups.begin(), cluster.node_groups.end(),
                    [](const NodeGroup& group) { return group.node.nics.count > 0; });
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        const NodeTemplate& node = cluster.node_groups[i].node;
        if (node.scaleup.domain_devices > node.devices) {
            return problem(at(where, "node_groups", i) + "/node/scaleup/domain_devices",
                           "a domain over several nodes of a torus",
                           "describe such a domain as one node of the torus");
        }
        if (any_cards && node.nics.count == 0) {
            return problem(at(where, "node_groups", i) + "/node/nics/count",
                           "these nodes have no network cards, others of the torus have",
                           "give all nodes cards, or none where the links end at the devices");
        }
    }
    return Done{};
}

/// Only switches add anything up, and only of one kind of network it is known what it takes.
Status check_reduction(const Fabric& fabric, const std::string& where) {
    if (!fabric.in_network_reduction) {
        return Done{};
    }
    const std::string here = where + "/fabric/in_network_reduction";
    if (!fabric.torus.empty()) {
        return problem(here, "a torus has no switches that could reduce", "leave it out");
    }
    if (fabric.kind != FabricKind::infiniband) {
        return problem(
            here,
            "switches of \"" + std::string(name_of(fabric.kind)) + "\" are not known to reduce",
            "leave it out; \"infiniband\" has it");
    }
    return Done{};
}

Status check_levels(const Fabric& fabric, const std::string& where) {
    std::int64_t below = 1;
    for (std::size_t i = 0; i < fabric.levels.size(); ++i) {
        const std::int64_t nodes = fabric.levels[i].nodes_per_group;
        const std::string here = at(where + "/fabric", "levels", i) + "/nodes_per_group";
        const bool last = i + 1 == fabric.levels.size();
        if (nodes == 0 && !last) {
            return problem(here, "only the top level may hold all nodes",
                           "write how many nodes one switch group of this level holds");
        }
        if (nodes != 0 && (nodes < below || nodes % below != 0)) {
            return problem(here,
                           std::to_string(nodes) + " nodes do not hold whole groups of " +
                               std::to_string(below) + " of the level below",
                           "write a multiple of " + std::to_string(below));
        }
        below = nodes;
    }
    return Done{};
}

} // namespace

Status check_device(const Device& device, std::string_view source) {
    const std::string where = std::string(source) + ": ";
    if (device.name.empty()) {
        return problem(where + "/name", "the device has no name", "name the product");
    }
    if (device.memory_label <= Bytes(0.0) || device.memory_visible <= Bytes(0.0)) {
        return problem(where + "/memory_visible", "the device has no memory",
                       "write \"memory_label\": \"80 GB\" and \"memory_visible\": \"79.1 GiB\"");
    }
    // Makers write GB where they mean GiB: what is visible may be 2^30 / 10^9 of the label.
    constexpr double gib_over_gb = 1.0737418240000001;
    if (device.memory_visible > device.memory_label * gib_over_gb) {
        return problem(where + "/memory_visible",
                       to_text(device.memory_visible) + " visible is more than is sold, " +
                           to_text(device.memory_label),
                       "mend the wrong one");
    }
    if (usable(device.memory_bandwidth) <= Bandwidth(0.0)) {
        return problem(where + "/memory_bandwidth", "the memory has no bandwidth",
                       "write \"memory_bandwidth\": {\"physical\": \"3350 GB/s\"}");
    }
    if (Status status = check_link(device.memory_bandwidth, where + "/memory_bandwidth"); !status) {
        return status;
    }
    for (const auto& [format, peak] : device.peak_dense) {
        if (!enum_from<Dtype>(format) && format != "fp32_matrix") {
            return problem(where + "/peak_dense/" + format, "\"" + format + "\" is no format",
                           "write fp32, tf32, fp16, bf16, fp8, int8, fp4 or fp32_matrix");
        }
        if (peak <= FlopRate(0.0)) {
            return problem(where + "/peak_dense/" + format, "a peak of 0",
                           "leave the format out if the device has no such unit");
        }
    }
    return Done{};
}

Status check_cluster(const Cluster& cluster, std::string_view source) {
    const std::string where = std::string(source) + ": ";
    if (cluster.node_groups.empty()) {
        return problem(where + "/node_groups", "the cluster has no nodes",
                       "list at least one group of nodes");
    }
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        if (Status status = check_group(cluster.node_groups[i], at(where, "node_groups", i));
            !status) {
            return status;
        }
    }
    if (device_count(cluster) > most_devices) {
        return problem(where + "/node_groups", "more than 16 777 216 devices",
                       "describe a smaller cluster");
    }
    if (Status status = check_levels(cluster.fabric, where); !status) {
        return status;
    }
    if (Status status = check_torus(cluster, where); !status) {
        return status;
    }
    if (Status status = check_reduction(cluster.fabric, where); !status) {
        return status;
    }
    std::set<std::string> names;
    for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
        const std::string here = at(where, "devices", i);
        if (!names.insert(cluster.devices[i].name).second) {
            return problem(here + "/name",
                           "the device \"" + cluster.devices[i].name + "\" is described twice",
                           "remove one");
        }
        if (Status status = check_device(cluster.devices[i], source); !status) {
            Error error = status.error();
            error.where = here + error.where.substr(where.size());
            return error;
        }
    }
    return check_between_nodes(cluster, where);
}

} // namespace shardplan::sim
