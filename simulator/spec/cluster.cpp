#include "simulator/spec/cluster.hpp"

#include <algorithm>

namespace shardplan::sim {

std::int64_t device_count(const Cluster& cluster) {
    std::int64_t total = 0;
    for (const NodeGroup& group : cluster.node_groups) {
        total += group.count * group.node.devices;
    }
    return total;
}

std::int64_t node_count(const Cluster& cluster) {
    std::int64_t total = 0;
    for (const NodeGroup& group : cluster.node_groups) {
        total += group.count;
    }
    return total;
}

bool is_staged(const Nics& nics, std::int64_t card) {
    return !nics.gpudirect ||
           std::find(nics.staged.begin(), nics.staged.end(), card) != nics.staged.end();
}

std::int64_t staged_cards(const Nics& nics) {
    return nics.gpudirect ? static_cast<std::int64_t>(nics.staged.size()) : nics.count;
}

void describe(FieldVisitor& v, Scaleup& x) {
    field(v, {"kind", "kind", "none, nvswitch, nvlink_mesh, xgmi_mesh, or pcie (no other link)."},
          x.kind);
    field(
        v,
        {"per_device", "bandwidth per device", "All links of one device together, one direction."},
        x.per_device);
    field(v,
          {"domain_devices", "devices per domain",
           "Devices that reach one another over this network: a multiple of the devices of a node, "
           "or "
           "a divisor (bridged pairs: 2); 0: those of the node.",
           false, 0.0, 1e6},
          x.domain_devices);
    field(v,
          {"peer_access", "peer access",
           "Devices read one another directly; false: messages are staged through host memory."},
          x.peer_access);
    field(v, {"latency", "latency", "Of one hop; 0: the default of the kind.", false, 0.0, 1.0},
          x.latency);
}

void describe(FieldVisitor& v, Nics& x) {
    field(v,
          {"count", "cards", "Network cards of one node that carry training traffic.", false, 0.0,
           1024},
          x.count);
    field(v, {"per_nic", "bandwidth per card", "One card, one direction."}, x.per_nic);
    field(v,
          {"gpudirect", "direct access",
           "Cards read device memory directly; false: staged through host memory."},
          x.gpudirect);
    field(v,
          {"staged", "staged cards",
           "Cards, by number from 0, that are staged through host memory where the others read "
           "device memory directly.",
           false, 0.0, 1023.0},
          x.staged);
    field(v,
          {"staged_rate", "bandwidth of a staged card",
           "Measured, one direction; left out: what the slot and host memory leave.", false, 0.0},
          x.staged_rate);
}

void describe(FieldVisitor& v, Host& x) {
    field(v, {"cores", "cores", "CPU cores of one node; 0: not known.", false, 0.0, 1e5}, x.cores);
    field(v,
          {"memory", "memory", "Host memory of one node; 0: not known, offload is refused then.",
           false, 0.0},
          x.memory);
    field(v,
          {"memory_bandwidth", "memory bandwidth",
           "Host memory bandwidth of one node; 0: not known.", false, 0.0},
          x.memory_bandwidth);
    field(v, {"nvme", "local storage", "NVMe of one node; 0: none or not known.", false, 0.0},
          x.nvme);
    field(v,
          {"nvme_bandwidth", "local storage bandwidth", "NVMe bandwidth of one node; 0: not known.",
           false, 0.0},
          x.nvme_bandwidth);
    field(
        v,
        {"pcie_per_device", "bandwidth to a device", "Device to host, one direction, one device."},
        x.pcie_per_device);
}

void describe(FieldVisitor& v, Vertex& x) {
    field(v, {"name", "name", "Name of the vertex, unique in its node.", true}, x.name);
    field(v, {"kind", "kind", "device, nic, pcie_switch, scaleup_switch or host.", true}, x.kind);
}

void describe(FieldVisitor& v, GraphLink& x) {
    field(v, {"from", "from", "Name of one vertex.", true}, x.from);
    field(v, {"to", "to", "Name of the other vertex.", true}, x.to);
    field(v,
          {"count", "parallel links", "Number of equal links between the two.", false, 1.0, 1024},
          x.count);
    field(v, {"bandwidth", "bandwidth", "Of one link, one direction.", true}, x.bandwidth);
    field(v, {"latency", "latency", "Of one link; 0: the default of its kind.", false, 0.0, 1.0},
          x.latency);
}

void describe(FieldVisitor& v, NodeTemplate& x) {
    field(
        v,
        {"device", "device", "Name or alias of a product in the catalogue or in this file.", true},
        x.device);
    field(v, {"devices", "devices", "Devices of one node.", true, 1.0, 1e6}, x.devices);
    field(v,
          {"processors", "processors",
           "That the devices compute on, in turns where there are fewer of them, as ranks of a job "
           "on the cores of a host; 0: each device has its own.",
           false, 0.0, 1e6},
          x.processors);
    field(v, {"scaleup", "scale-up network", "The network between the devices of a node."},
          x.scaleup);
    field(v, {"nics", "network cards", "The cards that carry training traffic."}, x.nics);
    field(v, {"host", "host", "What the devices are plugged into."}, x.host);
    field(v,
          {"vertices", "vertices",
           "Explicit graph of the node, where the fields above cannot say it; empty: implied."},
          x.vertices);
    field(v, {"links", "links", "Links of the explicit graph."}, x.links);
}

void describe(FieldVisitor& v, NodeGroup& x) {
    field(v, {"name", "name", "Name of the group, for messages."}, x.name);
    field(v, {"count", "nodes", "Number of equal nodes.", false, 1.0, 1e6}, x.count);
    field(v, {"node", "node", "What one node is made of.", true}, x.node);
    field(v,
          {"price_per_device_hour", "price per device hour",
           "In the currency of the cluster; 0: not known.", false, 0.0, 1e6},
          x.price_per_device_hour);
    field(
        v,
        {"mean_time_to_failure", "mean time to failure", "Of one node; 0: not known.", false, 0.0},
        x.mean_time_to_failure);
}

void describe(FieldVisitor& v, FabricLevel& x) {
    field(v, {"name", "name", "leaf, spine, core, ...", true}, x.name);
    field(v,
          {"nodes_per_group", "nodes per group",
           "Nodes below one switch group of this level; 0: all.", false, 0.0, 1e6},
          x.nodes_per_group);
    field(v,
          {"oversubscription", "oversubscription",
           "Capacity towards the nodes over capacity towards the next level; 1: none.", false, 1.0,
           1000.0},
          x.oversubscription);
    field(v, {"latency", "latency", "Added by crossing this level once.", false, 0.0, 1.0},
          x.latency);
    field(v,
          {"switches", "switches",
           "Switches of one group of this level that a message can choose among; 0: not known.",
           false, 0.0, 1e6},
          x.switches);
}

void describe(FieldVisitor& v, TorusDimension& x) {
    field(v, {"nodes", "nodes", "Nodes along this dimension.", true, 1.0, 1e6}, x.nodes);
    field(v,
          {"per_link", "bandwidth per link",
           "From a node to the next one along this dimension, one direction.", true},
          x.per_link);
    field(v, {"latency", "latency", "Of one hop.", false, 0.0, 1.0}, x.latency);
    field(v, {"wraps", "closed", "The last node is linked to the first; false: an open line."},
          x.wraps);
}

void describe(FieldVisitor& v, Fabric& x) {
    field(v,
          {"kind", "kind",
           "none (one node), infiniband, roce, ethernet, efa, tcpx, omnipath, slingshot, "
           "nvlink_domain (all devices in one NVLink domain, the cards idle)."},
          x.kind);
    field(v, {"rails", "rails", "Card i of every node hangs on leaf i."}, x.rails);
    field(
        v,
        {"levels", "levels", "Levels of the switch tree, from the leaf up; empty: one flat level."},
        x.levels);
    field(v,
          {"in_network_reduction", "reduction in the network",
           "The switches add up what all-reduces send through them (SHARP)."},
          x.in_network_reduction);
    field(v,
          {"torus", "dimensions of the torus",
           "Nodes joined by links without switches, the dimension of neighbouring nodes first; "
           "together they hold all nodes. Empty: a tree of switches."},
          x.torus);
}

void describe(FieldVisitor& v, StorageTier& x) {
    field(v, {"name", "name", "Name of the storage.", true}, x.name);
    field(v, {"capacity", "capacity", "0: not known.", false, 0.0}, x.capacity);
    field(v, {"read_per_node", "read rate per node", "0: not known.", false, 0.0}, x.read_per_node);
    field(v, {"write_per_node", "write rate per node", "0: not known.", false, 0.0},
          x.write_per_node);
    field(v,
          {"write_total", "write rate in all", "Of all nodes together; 0: no common limit.", false,
           0.0},
          x.write_total);
}

void describe(FieldVisitor& v, Cluster& x) {
    field(v, {"name", "name", "Name of the cluster.", true}, x.name);
    field(v, {"note", "note", "Where the figures are from, and what else one should know."},
          x.note);
    field(v, {"node_groups", "node groups", "Groups of equal nodes, in rank order.", true},
          x.node_groups);
    field(v, {"fabric", "fabric", "The network between nodes."}, x.fabric);
    field(v, {"storage", "storage", "Shared storage."}, x.storage);
    field(v, {"currency", "currency", "Currency of the prices."}, x.currency);
    field(
        v,
        {"scalable", "scalable",
         "The node count is an example, --gpus adds nodes of the same kind; false: no more can be "
         "asked for than the file lists."},
        x.scalable);
    field(v,
          {"processors", "processors",
           "That the devices of all nodes compute on in turns, where the nodes are virtual ones of "
           "one machine; 0: each node has its own.",
           false, 0.0, 1e6},
          x.processors);
    field(v,
          {"devices", "devices", "Products described in this file; they win over the catalogue."},
          x.devices);
}

} // namespace shardplan::sim
