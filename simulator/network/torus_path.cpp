#include <algorithm>
#include <cstdint>
#include <numeric>

#include "simulator/network/path_parts.hpp"

namespace shardplan::sim {

namespace {

/// Members of a group along one dimension.
struct Along {
    std::int64_t members = 1;
    std::int64_t extent = 1; ///< nodes from the first member to where the next group begins
};

/// Members between `below` and `unit` neighbouring ranks: what a run has beyond those of the
/// smaller unit goes on in steps of the dimension.
Along along(const GroupRanks& ranks, std::int64_t below, std::int64_t unit) {
    Along out;
    out.members = members_within(ranks, unit) / members_within(ranks, below);
    out.extent = out.members;
    for (const StridedRanks& run : ranks.runs) {
        if (run.size <= 1 || run.stride >= unit || unit % run.stride != 0) continue;
        const std::int64_t end = run.stride * std::gcd(run.size, unit / run.stride);
        out.extent = std::max(out.extent, end / below);
    }
    return out;
}

/// The widest way through the whole torus, in hops.
std::int64_t diameter(const std::vector<TorusDimension>& torus) {
    std::int64_t hops = 0;
    for (const TorusDimension& d : torus)
        hops += d.wraps ? d.nodes / 2 : d.nodes - 1;
    return std::max<std::int64_t>(1, hops);
}

TorusLine line_of(const Along& at, const TorusDimension& dimension) {
    TorusLine line;
    const bool closed = dimension.wraps && at.extent == dimension.nodes;
    line.directions = closed ? 2 : 1;
    line.stride = std::max<std::int64_t>(1, at.extent / at.members);
    line.hop = dimension.latency;
    return line;
}

/// Nodes from one member of a ring to the next. On an open line a ring that takes every second
/// member on the way out and the others on the way back has no step longer than two.
std::int64_t ring_hops(const TorusLine& line, std::int64_t members) {
    const bool folded = line.directions == 1 && members > 2;
    return line.stride * (folded ? 2 : 1);
}

} // namespace

void add_torus_levels(const Scenario& scenario, const GroupRanks& ranks, std::int64_t devices,
                      const PathLevel& nic, bool has_cards, std::int64_t reached, GroupPath& path) {
    const Fabric& fabric = scenario.cluster.fabric;
    // the kind of link is the same for all nodes, whatever their devices
    const FabricProfile* profile = profile_of(scenario, nic.name, 0);
    const auto per_node = static_cast<double>(devices);
    std::int64_t below = devices;
    for (const TorusDimension& dimension : fabric.torus) {
        if (reached == path.ranks) return;
        const std::int64_t unit = below * dimension.nodes;
        Along at = along(ranks, below, unit);
        if (&dimension == &fabric.torus.back()) at.members = path.ranks / reached;
        below = unit;
        if (at.members <= 1) continue;
        PathLevel level = nic;
        level.members = at.members;
        level.torus = line_of(at, dimension);
        if (at.members > dimension.nodes || at.extent > dimension.nodes) {
            // ranks that do not lie along the dimensions pass as many links as the torus is wide
            level.torus = {1, diameter(fabric.torus), dimension.latency, {}};
        }
        const Bandwidth link = planned(dimension.per_link, profile);
        const auto directions = static_cast<double>(level.torus.directions);
        level.per_rank = link * directions / (static_cast<double>(level.torus.stride) * per_node);
        level.per_link = link;
        if (has_cards) {
            level.torus.injection = nic.per_rank;
            level.per_rank = std::min(level.per_rank, nic.per_rank);
            level.per_link = std::min(level.per_link, nic.per_link);
        }
        level.step_latency +=
            static_cast<double>(ring_hops(level.torus, at.members)) * dimension.latency;
        level.sharing_groups =
            level.torus.stride *
            std::max<std::int64_t>(
                1, devices / std::max<std::int64_t>(1, members_within(ranks, devices)));
        path.levels.push_back(level);
        reached *= at.members;
    }
}

} // namespace shardplan::sim
