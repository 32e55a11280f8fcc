#include "simulator/network/algorithm_parts.hpp"

#include <algorithm>
#include <bit>

namespace shardplan::sim {

double rounds(std::int64_t n) {
    return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

Lane plain(const PathLevel& level) {
    return {level.per_rank.value(), level.step_latency.value(), level.half_size.value()};
}
Lane over(const PathLevel& level, const Transport& t) {
    return {level.per_rank.value() * t.share, t.step_latency.value(), t.half_size.value()};
}
Lane lane_of(const PathLevel& level, Protocol protocol) {
    switch (protocol) {
        case Protocol::ll:
            return over(level, level.low_latency);
        case Protocol::ll128:
            return over(level, level.low_latency_128);
        case Protocol::simple:
            break;
    }
    return plain(level);
}

std::int64_t lanes_out(const PathLevel& next, std::int64_t inside, std::int64_t in_node) {
    return is_torus(next.torus) ? in_node : inside;
}

std::int64_t scaleup_ranks(const GroupPath& path) {
    return path.levels.front().is_scaleup ? path.levels.front().members : 1;
}

Chain ring_of(const GroupPath& path, Protocol protocol) {
    Chain c;
    std::int64_t inside = 1;
    std::int64_t in_node = 1;
    for (const PathLevel& level : path.levels) {
        const Lane lane = lane_of(level, protocol);
        const auto lanes = static_cast<double>(lanes_out(level, inside, in_node));
        double rate = lane.rate * lanes;
        if (inside * level.members < path.ranks) rate *= level.chain_gain;
        if (inside == 1 || rate < c.rate) {
            c.rate = rate;
            // Chunks pass one neighbour after the other, and every lane has its own ramp.
            c.half = lane.half * std::max(1.0, rounds(level.members)) * lanes;
            c.ramp = level.ramp;
        }
        inside *= level.members;
        if (!is_torus(level.torus)) in_node = inside;
    }
    // NCCL's count: of the n - 1 steps, as many as there are units less one wait for the network
    // between them, the others for the links inside.
    std::int64_t units = 1;
    for (std::size_t i = path.levels.size(); i-- > 0;) {
        const PathLevel& level = path.levels[i];
        c.latency +=
            static_cast<double>(units * (level.members - 1)) * lane_of(level, protocol).step;
        units *= level.members;
    }
    return c;
}

} // namespace shardplan::sim
