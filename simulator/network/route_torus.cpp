#include <algorithm>
#include <array>

#include "simulator/network/route_parts.hpp"

namespace shardplan::sim {

namespace {

/// The way along one dimension: fewest hops, up where both ways are as short.
struct Walk {
    std::int64_t hops = 0;
    std::int64_t step = 1;
    bool both_ways = false; ///< down is as short as up
};
Walk walk(const TorusDimension& dimension, std::int64_t from, std::int64_t to) {
    const std::int64_t n = dimension.nodes;
    if (!dimension.wraps) return {std::abs(to - from), to >= from ? 1 : -1, false};
    const std::int64_t up = ((to - from) % n + n) % n;
    const std::int64_t down = (n - up) % n;
    // with two nodes up and down are two links of their own between the same ends
    return {std::min(up, down), up <= down ? 1 : -1, up == down && up > 0};
}

std::string text_of(const std::vector<std::int64_t>& at) {
    std::string text = "node (";
    for (std::size_t i = 0; i < at.size(); ++i)
        text += (i == 0 ? "" : ",") + std::to_string(at[i]);
    return text + ")";
}

/// a! / (b! (a - b)!), at most most_paths.
std::int64_t choose(std::int64_t a, std::int64_t b) {
    b = std::min(b, a - b);
    std::int64_t out = 1;
    for (std::int64_t i = 1; i <= b; ++i) {
        const std::int64_t factor = a - b + i;
        if (out > most_paths / factor) return most_paths;
        out = out * factor / i;
    }
    return out;
}

} // namespace

std::int64_t times_at_most(std::int64_t a, std::int64_t b) {
    return b != 0 && a > most_paths / b ? most_paths : a * b;
}

std::vector<std::int64_t> torus_coordinates(const Fabric& fabric, std::int64_t node) {
    std::vector<std::int64_t> out;
    for (const TorusDimension& dimension : fabric.torus) {
        out.push_back(node % dimension.nodes);
        node /= dimension.nodes;
    }
    return out;
}

NodeWay way_through_torus(const Fabric& fabric, std::int64_t devices_per_node, std::int64_t from,
                          std::int64_t to) {
    NodeWay way;
    std::vector<std::int64_t> at = torus_coordinates(fabric, from);
    const std::vector<std::int64_t> goal = torus_coordinates(fabric, to);
    std::int64_t walked = 0;
    for (std::size_t i = 0; i < fabric.torus.size(); ++i) {
        const TorusDimension& dimension = fabric.torus[i];
        const Walk w = walk(dimension, at[i], goal[i]);
        if (w.hops == 0) continue;
        RouteLink link;
        link.from = text_of(at);
        at[i] = goal[i];
        link.to = text_of(at);
        link.kind = "torus";
        link.hops = w.hops;
        link.alone = usable(dimension.per_link);
        // every link of the dimension carries the messages of as many nodes as one has hops
        link.shared = link.alone / static_cast<double>(w.hops * devices_per_node);
        link.latency = static_cast<double>(w.hops) * dimension.latency;
        way.links.push_back(std::move(link));
        // hops of all dimensions in any order; in one half way round, up or down
        walked += w.hops;
        way.paths = times_at_most(way.paths, choose(walked, w.hops));
        if (w.both_ways) way.paths = times_at_most(way.paths, 2);
    }
    return way;
}

} // namespace shardplan::sim
