#include "simulator/network/ring_search.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace shardplan::sim {

namespace {

/// Steps after which the search keeps what it has.
constexpr std::int64_t most_steps = 200000;

/// Looks for cycles through all members that use each link once.
class CycleSearch {
public:
    CycleSearch(const LinkGraph& graph, const std::vector<std::int64_t>& members, bool relays)
        : n_(static_cast<std::int64_t>(members.size())), relays_(relays) {
        for (const std::int64_t a : members) {
            for (const std::int64_t b : members)
                free_.push_back(graph.between(a, b));
        }
        limit_ = n_; // no more cycles than half the links of the poorest member
        for (std::int64_t i = 0; i < n_; ++i) {
            std::int64_t degree = 0;
            for (std::int64_t j = 0; j < n_; ++j)
                degree += at(i, j);
            limit_ = std::min(limit_, degree / 2);
        }
    }
    std::int64_t most_cycles() {
        start_cycle(0);
        return best_;
    }

private:
    std::int64_t& at(std::int64_t i, std::int64_t j) {
        return free_[static_cast<std::size_t>(i * n_ + j)];
    }
    void use(std::int64_t i, std::int64_t j, std::int64_t links) {
        at(i, j) -= links;
        at(j, i) -= links;
    }
    [[nodiscard]] bool done() const { return best_ >= limit_ || steps_ > most_steps; }

    void start_cycle(std::int64_t found) {
        best_ = std::max(best_, found);
        if (done()) return;
        extend(0, 1U, 1, found);
    }
    /// From the end of a path through the members of `seen`.
    void extend(std::int64_t from, std::uint64_t seen, std::int64_t length, std::int64_t found) {
        ++steps_;
        if (length == n_) {
            take(from, 0, [&] { start_cycle(found + 1); });
            return;
        }
        for (std::int64_t to = 1; to < n_ && !done(); ++to) {
            if ((seen >> static_cast<unsigned>(to) & 1U) != 0) continue;
            const std::uint64_t with = seen | std::uint64_t{1} << static_cast<unsigned>(to);
            take(from, to, [&] { extend(to, with, length + 1, found); });
        }
    }
    /// Goes on over a link from `from` to `to` if there is a free one, or over a relay.
    template <class GoOn>
    void take(std::int64_t from, std::int64_t to, const GoOn& go_on) {
        if (at(from, to) > 0) {
            use(from, to, 1);
            go_on();
            use(from, to, -1);
            return;
        }
        for (std::int64_t via = 0; relays_ && via < n_ && !done(); ++via) {
            if (via == from || via == to || at(from, via) < 1 || at(via, to) < 1) continue;
            use(from, via, 1);
            use(via, to, 1);
            go_on();
            use(from, via, -1);
            use(via, to, -1);
            return;
        }
    }

    std::int64_t n_;
    bool relays_;
    std::vector<std::int64_t> free_;
    std::int64_t limit_ = 0;
    std::int64_t best_ = 0;
    std::int64_t steps_ = 0;
};

} // namespace

LinkGraph link_graph(const NodeTemplate& node) {
    LinkGraph graph;
    std::map<std::string_view, std::int64_t> number;
    for (const Vertex& vertex : node.vertices) {
        if (vertex.kind == VertexKind::device) number.emplace(vertex.name, graph.devices++);
    }
    graph.links.assign(static_cast<std::size_t>(graph.devices * graph.devices), 0);
    bool any = false;
    for (const GraphLink& link : node.links) {
        const auto from = number.find(link.from);
        const auto to = number.find(link.to);
        if (from == number.end() || to == number.end()) continue;
        const std::int64_t a = from->second;
        const std::int64_t b = to->second;
        graph.links[static_cast<std::size_t>(a * graph.devices + b)] += link.count;
        graph.links[static_cast<std::size_t>(b * graph.devices + a)] += link.count;
        // one slow link holds up its ring
        graph.per_link =
            any ? std::min(graph.per_link, link.bandwidth.physical) : link.bandwidth.physical;
        any = true;
    }
    return any ? graph : LinkGraph{};
}

Rings disjoint_rings(const LinkGraph& graph, const std::vector<std::int64_t>& members) {
    if (members.size() < 2) return {};
    if (members.size() == 2) {
        const std::int64_t direct = graph.between(members[0], members[1]);
        return {direct, false};
    }
    const std::int64_t direct = CycleSearch(graph, members, false).most_cycles();
    if (direct > 0) return {2 * direct, false};
    return {2 * CycleSearch(graph, members, true).most_cycles(), true};
}

Rings fewest_rings(const LinkGraph& graph, std::int64_t used, std::int64_t stride,
                   std::int64_t size) {
    Rings fewest;
    bool any = false;
    for (std::int64_t block = 0; block + stride * size <= used; block += stride * size) {
        for (std::int64_t first = block; first < block + stride; ++first) {
            std::vector<std::int64_t> members;
            for (std::int64_t i = 0; i < size; ++i)
                members.push_back(first + i * stride);
            const Rings rings = disjoint_rings(graph, members);
            const bool worse = rings.count < fewest.count ||
                               (rings.count == fewest.count && rings.relayed && !fewest.relayed);
            if (!any || worse) fewest = rings;
            any = true;
        }
    }
    return fewest;
}

std::vector<MeshRings> mesh_rings(const Cluster& cluster) {
    std::vector<MeshRings> out;
    for (std::size_t g = 0; g < cluster.node_groups.size(); ++g) {
        const NodeTemplate& node = cluster.node_groups[g].node;
        if (node.scaleup.kind != ScaleupKind::nvlink_mesh) continue;
        const LinkGraph graph = link_graph(node);
        for (std::int64_t used = 2; used <= graph.devices; ++used) {
            for (std::int64_t size = 2; size <= used; ++size) {
                for (std::int64_t stride = 1; stride * size <= used; ++stride) {
                    const Rings rings = fewest_rings(graph, used, stride, size);
                    out.push_back({static_cast<std::int64_t>(g), used, stride, size, rings.count,
                                   rings.relayed});
                }
            }
        }
    }
    return out;
}

} // namespace shardplan::sim
