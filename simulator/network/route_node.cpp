#include <algorithm>
#include <limits>
#include <map>

#include "simulator/network/route_parts.hpp"

namespace shardplan::sim {

namespace {

std::string gpu(const std::string& prefix, std::int64_t local) {
    return prefix + "device " + std::to_string(local);
}
std::string card_name(const std::string& prefix, std::int64_t card) {
    return prefix + "card " + std::to_string(card);
}

/// Up to host memory and down again; `staging` devices write to it and read from it at once.
void add_host(const NodeTemplate& node, double staging, const std::string& from,
              const std::string& host, const std::string& to, NodeWay& way) {
    const Bandwidth slot = usable(node.host.pcie_per_device);
    const Bandwidth memory = node.host.memory_bandwidth;
    for (const bool up : {true, false}) {
        RouteLink link;
        link.from = up ? from : host;
        link.to = up ? host : to;
        link.kind = "host memory";
        link.alone = memory.value() > 0.0 ? std::min(slot, memory) : slot;
        link.shared = slot / 2.0; // a slot carries what comes and what goes
        if (memory.value() > 0.0) {
            link.shared = std::min(link.shared, memory / (2.0 * std::max(1.0, staging)));
        }
        way.links.push_back(std::move(link));
    }
}

/// Vertices of an explicit graph as numbers.
struct Graph {
    struct Edge {
        std::size_t to = 0;
        const GraphLink* link = nullptr;
    };
    std::vector<std::vector<Edge>> edges;

    explicit Graph(const NodeTemplate& node) : edges(node.vertices.size()) {
        std::map<std::string_view, std::size_t> number;
        for (std::size_t i = 0; i < node.vertices.size(); ++i)
            number.emplace(node.vertices[i].name, i);
        for (const GraphLink& link : node.links) {
            const auto a = number.find(link.from);
            const auto b = number.find(link.to);
            if (a == number.end() || b == number.end()) continue;
            edges[a->second].push_back({b->second, &link});
            edges[b->second].push_back({a->second, &link});
        }
    }
};

Bandwidth width(const GraphLink& link) {
    return static_cast<double>(link.count) * usable(link.bandwidth);
}

/// Shortest ways from one vertex to all others.
struct Reached {
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    std::int64_t hops = never;
    std::int64_t paths = 0;
    Bandwidth widest; ///< of the widest of them
    std::size_t before = 0;
    const GraphLink* by = nullptr;
};
std::vector<Reached> reach(const Graph& graph, std::size_t from) {
    std::vector<Reached> out(graph.edges.size());
    out[from] = {0, 1, Bandwidth(std::numeric_limits<double>::infinity()), from, nullptr};
    std::vector<std::size_t> wave = {from};
    while (!wave.empty()) {
        std::vector<std::size_t> next;
        for (const std::size_t at : wave) {
            for (const Graph::Edge& edge : graph.edges[at]) {
                Reached& r = out[edge.to];
                if (r.hops <= out[at].hops) continue;
                if (r.hops == Reached::never) {
                    r.hops = out[at].hops + 1;
                    next.push_back(edge.to);
                }
                r.paths = std::min(most_paths, r.paths + out[at].paths);
                const Bandwidth here = std::min(out[at].widest, width(*edge.link));
                if (here > r.widest) {
                    r.widest = here;
                    r.before = at;
                    r.by = edge.link;
                }
            }
        }
        wave = std::move(next);
    }
    return out;
}

/// Whether an explicit graph says how devices reach one another: with a switch between them, or
/// where none is said to be.
bool draws_devices(const NodeTemplate& node) {
    const bool has_switch =
        std::any_of(node.vertices.begin(), node.vertices.end(),
                    [](const Vertex& v) { return v.kind == VertexKind::scaleup_switch; });
    return !node.vertices.empty() && (has_switch || node.scaleup.kind != ScaleupKind::nvswitch);
}

std::string_view kind_between(const NodeTemplate& node, VertexKind a, VertexKind b) {
    const bool switched = a == VertexKind::scaleup_switch || b == VertexKind::scaleup_switch;
    const bool devices = a == VertexKind::device && b == VertexKind::device;
    return name_of(switched || devices ? node.scaleup.kind : ScaleupKind::pcie);
}

} // namespace

std::size_t vertex_of(const NodeTemplate& node, VertexKind kind, std::int64_t number) {
    for (std::size_t i = 0; i < node.vertices.size(); ++i) {
        if (node.vertices[i].kind == kind && number-- == 0) return i;
    }
    return node.vertices.size();
}

NodeWay way_in_graph(const NodeTemplate& node, std::size_t from, std::size_t to,
                     const std::string& prefix) {
    const Graph graph(node);
    const std::vector<Reached> reached = reach(graph, from);
    NodeWay way;
    way.found = reached[to].hops != Reached::never;
    if (!way.found) return way;
    way.paths = reached[to].paths;
    for (std::size_t at = to; at != from; at = reached[at].before) {
        const Reached& r = reached[at];
        RouteLink link;
        link.from = prefix + node.vertices[r.before].name;
        link.to = prefix + node.vertices[at].name;
        link.kind = kind_between(node, node.vertices[r.before].kind, node.vertices[at].kind);
        link.alone = width(*r.by);
        link.shared = link.alone;
        link.latency = r.by->latency;
        way.links.push_back(std::move(link));
    }
    std::reverse(way.links.begin(), way.links.end());
    return way;
}

std::int64_t card_of(const NodeTemplate& node, std::int64_t local) {
    const std::int64_t cards = node.nics.count;
    const std::int64_t devices = std::max<std::int64_t>(1, node.devices);
    if (node.vertices.empty() || cards < 1) return cards * local / devices;
    const std::vector<Reached> reached =
        reach(Graph(node), vertex_of(node, VertexKind::device, local));
    std::int64_t nearest = 0;
    for (std::int64_t card = 0; card < cards; ++card) {
        const Reached& best = reached[vertex_of(node, VertexKind::nic, nearest)];
        if (reached[vertex_of(node, VertexKind::nic, card)].hops < best.hops) nearest = card;
    }
    return nearest;
}

NodeWay way_in_domain(const NodeTemplate& node, std::int64_t from, std::int64_t to,
                      const std::string& from_prefix, const std::string& to_prefix) {
    const Scaleup& s = node.scaleup;
    if (draws_devices(node) && from_prefix == to_prefix) {
        return way_in_graph(node, vertex_of(node, VertexKind::device, from),
                            vertex_of(node, VertexKind::device, to), from_prefix);
    }
    NodeWay way;
    const std::string a = gpu(from_prefix, from);
    const std::string b = gpu(to_prefix, to);
    const std::int64_t domain = s.domain_devices > 0 ? s.domain_devices : node.devices;
    const bool apart = domain < node.devices && from / domain != to / domain;
    if (s.kind == ScaleupKind::none || !s.peer_access) {
        add_host(node, static_cast<double>(node.devices), a, from_prefix + "host", b, way);
        return way;
    }
    const bool mesh = s.kind == ScaleupKind::nvlink_mesh || s.kind == ScaleupKind::xgmi_mesh;
    RouteLink link;
    link.kind = apart ? name_of(ScaleupKind::pcie) : name_of(s.kind);
    link.alone = apart ? usable(node.host.pcie_per_device) : usable(s.per_device);
    link.latency = apart ? Seconds() : s.latency;
    if (mesh && !apart) {
        // every pair has links of its own
        link.alone = link.alone / static_cast<double>(std::max<std::int64_t>(1, domain - 1));
    }
    link.shared = link.alone;
    link.from = a;
    link.to = b;
    if (mesh && !apart) {
        way.links.push_back(std::move(link));
        return way;
    }
    const std::string middle = link.kind == name_of(ScaleupKind::pcie)
                                   ? from_prefix + "PCIe"
                                   : from_prefix + std::string(link.kind);
    RouteLink down = link;
    link.to = middle;
    down.from = middle;
    way.links = {std::move(link), std::move(down)};
    return way;
}

NodeWay way_to_card(const NodeTemplate& node, std::int64_t local, std::int64_t card,
                    const std::string& prefix) {
    NodeWay way;
    const auto cards = static_cast<double>(std::max<std::int64_t>(1, node.nics.count));
    const double per_card = static_cast<double>(node.devices) / cards;
    const std::string from = gpu(prefix, local);
    const std::string to = card_name(prefix, card);
    if (is_staged(node.nics, card)) {
        add_host(node, per_card * static_cast<double>(staged_cards(node.nics)), from,
                 prefix + "host", to, way);
        if (node.nics.staged_rate) {
            for (RouteLink& link : way.links) {
                link.alone = *node.nics.staged_rate;
                link.shared = *node.nics.staged_rate / std::max(1.0, per_card);
            }
        }
        return way;
    }
    if (!node.vertices.empty()) {
        return way_in_graph(node, vertex_of(node, VertexKind::device, local),
                            vertex_of(node, VertexKind::nic, card), prefix);
    }
    const Bandwidth slot = usable(node.host.pcie_per_device);
    if (slot.value() <= 0.0) return way; // not stated: no bound of its own
    RouteLink link;
    link.from = from;
    link.to = to;
    link.kind = "pcie";
    link.alone = slot;
    link.shared = slot;
    way.links.push_back(std::move(link));
    return way;
}

} // namespace shardplan::sim
