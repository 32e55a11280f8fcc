#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/import/foreign_cluster.hpp"
#include "simulator/spec/device.hpp"

/// What follows from the paths between the parts of a node.
namespace shardplan::plan {

/// Marks the cards that carry no training traffic: bonds, cards of another maker than the others,
/// cards that no device reaches over PCIe alone where other cards are near.
void set_cards_aside(NodeView& view);

/// Parts behind one PCIe switch, and the sockets (NUMA nodes) those hang on.
struct PcieGroup {
    std::vector<std::size_t> parts; ///< by their place in NodeView
    std::size_t socket = 0;
};
struct PcieTree {
    std::vector<PcieGroup> groups;
    std::size_t sockets = 0;
};
/// From the paths: PIX and PXB lead through switches alone, PHB and NODE through one socket.
PcieTree pcie_tree(const NodeView& view);

/// How devices are linked.
struct LinkShape {
    bool any = false;             ///< there are links at all
    bool uniform = false;         ///< all pairs have the same number
    std::int64_t least_links = 0; ///< of one device, to all others; of one pair if switched
    std::int64_t most_links = 0;
    std::int64_t domain = 0;   ///< devices linked to one another, directly or not: smallest set
    bool equal_domains = true; ///< all sets are of that size
    bool switched = false;     ///< each pair sees all links of a device
};
/// `device`: nullptr where it is not known.
LinkShape link_shape(const NodeView& view, const sim::Device* device);
/// Links of one device: to all others together, or to the switch.
std::int64_t links_of(const NodeView& view, std::size_t gpu, const LinkShape& shape);

/// The nearest path from a device to a card that carries training traffic.
Path nearest_rail(const NodeView& view, std::size_t gpu);
/// Over PCIe switches alone.
inline bool is_near(PathKind kind) { return kind == PathKind::pix || kind == PathKind::pxb; }

/// Adds what is wrong with the node: devices that cannot reach one another, cards far from their
/// devices, fewer or slower links than the device has, rails that are not shared evenly. `device`:
/// nullptr where it is not known.
void diagnose_node(ForeignCluster& file, const sim::Device* device);

} // namespace shardplan::plan
