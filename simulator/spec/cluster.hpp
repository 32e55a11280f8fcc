#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/spec/device.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// The network between nodes. `nvlink_domain`: all ranks share one NVLink domain, the NICs idle.
enum class FabricKind {
    none,
    infiniband,
    roce,
    ethernet,
    efa,
    tcpx,
    omnipath,
    slingshot,
    nvlink_domain
};
template <>
struct EnumNames<FabricKind> {
    static constexpr std::array<std::string_view, 9> names = {
        "none", "infiniband", "roce",      "ethernet",     "efa",
        "tcpx", "omnipath",   "slingshot", "nvlink_domain"};
};

/// The scale-up network of a node: NVLink, xGMI or PCIe.
struct Scaleup {
    ScaleupKind kind = ScaleupKind::none;
    LinkBandwidth per_device; ///< one device, one direction, all links
    std::int64_t domain_devices =
        0;                   ///< devices in one domain (bridged pairs: 2); 0 = those of the node
    bool peer_access = true; ///< false: every message is staged through host memory
    Seconds latency;         ///< 0 = the default of the kind

    friend bool operator==(const Scaleup&, const Scaleup&) = default;
};

/// The network cards of a node that carry training traffic.
struct Nics {
    std::int64_t count = 0;
    LinkBandwidth per_nic; ///< one card, one direction
    bool gpudirect = true; ///< false: all are staged through host memory
    /// Cards, by number from 0, that are staged through host memory where the others are not.
    std::vector<std::int64_t> staged = {};
    /// Of a staged card, one direction, as measured; none: what its slot and host memory leave.
    std::optional<Bandwidth> staged_rate = {};

    friend bool operator==(const Nics&, const Nics&) = default;
};

/// What the devices of a node are plugged into.
struct Host {
    std::int64_t cores = 0;
    Bytes memory; ///< 0 = not known; offload is refused then
    Bandwidth memory_bandwidth;
    Bytes nvme;
    Bandwidth nvme_bandwidth;
    LinkBandwidth pcie_per_device; ///< device to host, one direction

    friend bool operator==(const Host&, const Host&) = default;
};

/// Vertex kinds of an explicit node graph.
enum class VertexKind { device, nic, pcie_switch, scaleup_switch, host };
template <>
struct EnumNames<VertexKind> {
    static constexpr std::array<std::string_view, 5> names = {"device", "nic", "pcie_switch",
                                                              "scaleup_switch", "host"};
};

/// A vertex of the node graph, for topologies that the summary fields cannot say (hybrid cube mesh,
/// NICs behind particular switches).
struct Vertex {
    std::string name;
    VertexKind kind = VertexKind::device;

    friend bool operator==(const Vertex&, const Vertex&) = default;
};

/// A link of the node graph between two named vertices.
struct GraphLink {
    std::string from;
    std::string to;
    std::int64_t count = 1;  ///< parallel links
    LinkBandwidth bandwidth; ///< of one link, one direction
    Seconds latency;

    friend bool operator==(const GraphLink&, const GraphLink&) = default;
};

/// One kind of node.
struct NodeTemplate {
    std::string device; ///< name in the catalogue
    std::int64_t devices = 0;
    /// That the devices compute on, in turns where there are fewer of them; 0: each has its own.
    std::int64_t processors = 0;
    Scaleup scaleup;
    Nics nics;
    Host host;
    std::vector<Vertex> vertices; ///< explicit graph; empty = implied by the fields above
    std::vector<GraphLink> links;

    friend bool operator==(const NodeTemplate&, const NodeTemplate&) = default;
};

/// `count` equal nodes.
struct NodeGroup {
    std::string name;
    std::int64_t count = 1;
    NodeTemplate node;
    double price_per_device_hour = 0.0; ///< in the currency of the cluster; 0 = not known
    Seconds mean_time_to_failure;       ///< of one node; 0 = not known

    friend bool operator==(const NodeGroup&, const NodeGroup&) = default;
};

/// One level of the network tree, from the leaf up.
struct FabricLevel {
    std::string name;                 ///< "leaf", "spine"
    std::int64_t nodes_per_group = 0; ///< nodes below one switch group of this level; 0 = all
    double oversubscription = 1.0;    ///< down over up capacity towards the next level
    Seconds latency;                  ///< added by crossing this level once
    /// Switches of one group that a message can choose among; 0: not known.
    std::int64_t switches = 0;

    friend bool operator==(const FabricLevel&, const FabricLevel&) = default;
};

/// One dimension of a torus of nodes: each node has a link to the next one and to the one before.
struct TorusDimension {
    std::int64_t nodes = 0; ///< along this dimension
    LinkBandwidth per_link; ///< one link, one direction
    Seconds latency;        ///< of one hop
    bool wraps = true;      ///< the last node is linked to the first; false: an open line

    friend bool operator==(const TorusDimension&, const TorusDimension&) = default;
};

/// The network between nodes: a tree of switches (`levels`) or a torus without any.
struct Fabric {
    FabricKind kind = FabricKind::none;
    bool rails = false; ///< NIC i of every node hangs on leaf i
    std::vector<FabricLevel> levels;
    /// The switches add up what all-reduces send through them (SHARP).
    bool in_network_reduction = false;
    /// Node n has coordinate n % nodes of the first dimension, n / nodes goes on with the next one.
    std::vector<TorusDimension> torus = {};

    friend bool operator==(const Fabric&, const Fabric&) = default;
};

/// Shared storage, for checkpoints and offload.
struct StorageTier {
    std::string name;
    Bytes capacity;
    Bandwidth read_per_node;
    Bandwidth write_per_node;
    Bandwidth write_total; ///< 0 = no common limit

    friend bool operator==(const StorageTier&, const StorageTier&) = default;
};

/// A described cluster: the schema is the graph. Everything the planner knows about hardware.
struct Cluster {
    std::string name;
    std::string note; ///< source of the figures
    std::vector<NodeGroup> node_groups;
    Fabric fabric;
    std::vector<StorageTier> storage;
    std::string currency = "USD";
    /// The node count is an example: asking for more devices adds nodes of the same kind. False:
    /// the file lists what exists, and no more can be asked for.
    bool scalable = false;
    /// That the devices of all nodes compute on, where the nodes are virtual ones of one machine;
    /// 0: each node has its own.
    std::int64_t processors = 0;
    /// Devices described in this file; they win over the catalogue.
    std::vector<Device> devices;

    friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// Devices of all node groups.
std::int64_t device_count(const Cluster& cluster);
/// Nodes of all node groups.
std::int64_t node_count(const Cluster& cluster);
/// Cards of a node whose traffic is staged through host memory.
std::int64_t staged_cards(const Nics& nics);
/// Whether card `card` of a node is.
bool is_staged(const Nics& nics, std::int64_t card);

void describe(FieldVisitor& v, Scaleup& x);
void describe(FieldVisitor& v, Nics& x);
void describe(FieldVisitor& v, Host& x);
void describe(FieldVisitor& v, Vertex& x);
void describe(FieldVisitor& v, GraphLink& x);
void describe(FieldVisitor& v, NodeTemplate& x);
void describe(FieldVisitor& v, NodeGroup& x);
void describe(FieldVisitor& v, FabricLevel& x);
void describe(FieldVisitor& v, TorusDimension& x);
void describe(FieldVisitor& v, Fabric& x);
void describe(FieldVisitor& v, StorageTier& x);
void describe(FieldVisitor& v, Cluster& x);

} // namespace shardplan::sim
