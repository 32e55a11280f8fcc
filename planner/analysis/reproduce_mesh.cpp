#include <algorithm>

#include "planner/analysis/reproduce.hpp"

// Links from device to device, which records name by kind alone.
namespace shardplan::plan {
namespace {

bool is_card(const sim::NodeTemplate& node, const std::string& name) {
    return std::any_of(node.vertices.begin(), node.vertices.end(), [&](const sim::Vertex& vertex) {
        return vertex.name == name && vertex.kind == sim::VertexKind::nic;
    });
}

/// Hangs the cards of a node on the switches and hosts of its graph in turn.
void hang_cards(sim::NodeTemplate& node, const sim::LinkBandwidth& slot) {
    std::vector<std::string> places;
    for (const sim::VertexKind kind : {sim::VertexKind::pcie_switch, sim::VertexKind::host}) {
        for (const sim::Vertex& vertex : node.vertices) {
            if (vertex.kind == kind && (places.empty() || kind == sim::VertexKind::pcie_switch)) {
                places.push_back(vertex.name);
            }
        }
    }
    for (std::int64_t card = 0; card < node.nics.count && !places.empty(); ++card) {
        const std::string name = "card" + std::to_string(card);
        node.vertices.push_back({name, sim::VertexKind::nic});
        sim::GraphLink link;
        link.from = name;
        link.to = places[static_cast<std::size_t>(card) % places.size()];
        link.bandwidth = slot;
        node.links.push_back(std::move(link));
    }
}

} // namespace

void draw_links(const sim::NodeTemplate& drawn, sim::NodeTemplate& node) {
    node.vertices = drawn.vertices;
    node.links = drawn.links;
    std::erase_if(node.links, [&](const sim::GraphLink& link) {
        return is_card(drawn, link.from) || is_card(drawn, link.to);
    });
    std::erase_if(node.vertices,
                  [](const sim::Vertex& vertex) { return vertex.kind == sim::VertexKind::nic; });
    hang_cards(node, drawn.host.pcie_per_device);
}

sim::Result<const sim::NodeTemplate*> Reproducer::drawn_mesh(const sim::Device& device,
                                                             std::int64_t devices) {
    if (!drawn_) {
        auto clusters = sim::load_clusters();
        if (!clusters) {
            return clusters.error();
        }
        drawn_.emplace();
        for (sim::Cluster& cluster : *clusters) {
            for (sim::NodeGroup& group : cluster.node_groups) {
                const bool has_links = group.node.scaleup.kind == sim::ScaleupKind::nvlink_mesh &&
                                       !group.node.vertices.empty();
                if (has_links) {
                    drawn_->push_back(std::move(group.node));
                }
            }
        }
    }
    for (const sim::NodeTemplate& node : *drawn_) {
        const auto other = sim::find_device(catalogue_.devices, node.device, "cluster");
        // products that differ in memory alone sit on the same board
        const bool same = other && other->value.arch == device.arch &&
                          other->value.scaleup_kind == device.scaleup_kind &&
                          other->value.scaleup_per_direction == device.scaleup_per_direction;
        if (same && node.devices == devices) {
            return &node;
        }
    }
    return static_cast<const sim::NodeTemplate*>(nullptr);
}

} // namespace shardplan::plan
