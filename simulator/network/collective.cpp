#include <algorithm>
#include <cmath>

#include "simulator/network/algorithms.hpp"
#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

namespace {

/// See CostLine. With a ramp of 1 what is lost is a fixed time; below 1 larger messages lose more,
/// but less than in proportion, because chunks and their number grow with the message.
double seconds_of(const CostLine& line, double bytes) {
    const double half = line.half.value();
    const double lost = half <= 0.0        ? 0.0
                        : line.ramp == 1.0 ? half / bytes
                                           : std::pow(half / bytes, line.ramp);
    return line.latency.value() + bytes * line.seconds_per_byte * (1.0 + lost);
}

struct Choice {
    double seconds = 0.0;
    const CostLine* line = nullptr;
};

Choice fastest(const CostLines& costs, Collective op, double bytes) {
    const auto i = static_cast<std::size_t>(op);
    Choice best;
    for (std::uint32_t k = costs.begin[i]; k < costs.begin[i + 1]; ++k) {
        const double seconds = seconds_of(costs.lines[k], bytes);
        if (best.line == nullptr || seconds < best.seconds) best = {seconds, &costs.lines[k]};
    }
    return best;
}

} // namespace

Seconds collective_time(const GroupPath& path, Collective op, Bytes bytes) {
    if (path.ranks <= 1 || path.levels.empty() || bytes.value() <= 0.0) return {};
    if (path.costs.lines.empty()) {
        const CostLines costs = cost_lines(path);
        return std::max(costs.floor, Seconds(fastest(costs, op, bytes.value()).seconds));
    }
    return std::max(path.costs.floor, Seconds(fastest(path.costs, op, bytes.value()).seconds));
}

CostLine chosen_line(const GroupPath& path, Collective op, Bytes bytes) {
    if (path.ranks <= 1 || path.levels.empty() || bytes.value() <= 0.0) return {};
    const CostLines costs = path.costs.lines.empty() ? cost_lines(path) : path.costs;
    return *fastest(costs, op, bytes.value()).line;
}

Bytes sent_per_rank(const GroupPath& path, Collective op, Bytes bytes) {
    if (path.ranks <= 1) return {};
    const auto n = static_cast<double>(path.ranks);
    switch (op) {
        case Collective::all_reduce:
            return 2.0 * (n - 1.0) / n * bytes;
        case Collective::all_gather:
        case Collective::reduce_scatter:
        case Collective::all_to_all:
            return (n - 1.0) / n * bytes;
        case Collective::broadcast:
        case Collective::reduce:
        case Collective::send_recv:
            return bytes;
    }
    return {};
}

} // namespace shardplan::sim
