#include <algorithm>
#include <bit>

#include "simulator/network/algorithm_parts.hpp"
#include "simulator/network/torus_lines.hpp"

namespace shardplan::sim {

namespace {

/// Adds up phases that follow one another. Their ramps are joined: at large sizes the time lost is
/// the sum of theirs.
struct Phases {
    double latency = 0.0;
    double seconds_per_byte = 0.0;
    double lost = 0.0; ///< seconds at the half sizes
    double ramp = 1.0;

    /// `share` of the collective's bytes sent over a lane.
    void send(double steps, double share, const Lane& lane, double doublings, double level_ramp) {
        latency += steps * lane.step;
        if (share <= 0.0) return;
        seconds_per_byte += share / lane.rate;
        lost += lane.half * std::max(1.0, doublings) / lane.rate;
        ramp = level_ramp;
    }
    void give(Algorithm a, double trips, Lines& lines) const {
        const double half = seconds_per_byte > 0.0 ? lost / seconds_per_byte : 0.0;
        lines.add(a, Protocol::simple, trips * latency, trips * seconds_per_byte, half, ramp);
    }
};

/// Tiers of a path before its torus, all of them where it has none.
std::size_t tiers_before_torus(const GroupPath& path) {
    std::size_t i = 0;
    while (i < path.levels.size() && !is_torus(path.levels[i].torus))
        ++i;
    return i;
}

/// Scatter inside a node, then over all dimensions of the torus at once, and back.
void add_torus_dimensions(const GroupPath& path, double trips, std::size_t first, Lines& lines) {
    Phases phases;
    double piece = 1.0;
    for (std::size_t i = 0; i < first; ++i) {
        const PathLevel& level = path.levels[i];
        const auto g = static_cast<double>(level.members);
        phases.send(g - 1.0, (g - 1.0) / g * piece, plain(level), rounds(level.members),
                    level.ramp);
        piece /= g;
    }
    const TorusTrip trip = torus_trip(&path.levels[first], path.levels.size() - first);
    phases.latency += trip.latency;
    phases.seconds_per_byte += piece * trip.seconds_per_byte;
    phases.lost += trip.lost;
    phases.ramp = path.levels[first].ramp;
    phases.give(Algorithm::torus_2d, trips, lines);
}

} // namespace

/// Scatter inside each tier by a ring, work on the shrunken piece outside, gather back. The tiers
/// follow one another. Source: Jia et al. 2018 (arXiv 1807.11205).
void add_hierarchical(const GroupPath& path, double trips, Lines& lines) {
    Phases phases;
    double piece = 1.0;
    for (const PathLevel& level : path.levels) {
        const auto g = static_cast<double>(level.members);
        phases.send(g - 1.0, (g - 1.0) / g * piece, plain(level), rounds(level.members),
                    level.ramp);
        piece /= g;
    }
    phases.give(Algorithm::hierarchical, trips, lines);
}

/// Rows of one tier (the innermost, or where there is one tier the squarest split of it), columns
/// of the rest: scatter along the rows, reduce along the columns, gather along the rows.
/// Source: Mikami et al. 2018 (arXiv 1811.05233).
void add_torus(const GroupPath& path, double trips, Lines& lines) {
    if (const std::size_t first = tiers_before_torus(path); first < path.levels.size()) {
        add_torus_dimensions(path, trips, first, lines);
        return;
    }
    if (path.levels.size() > 1) {
        Phases phases;
        const PathLevel& rows = path.levels.front();
        const auto g = static_cast<double>(rows.members);
        phases.send(g - 1.0, (g - 1.0) / g, plain(rows), rounds(rows.members), rows.ramp);
        GroupPath columns = path;
        columns.levels.erase(columns.levels.begin());
        columns.ranks = path.ranks / rows.members;
        const Chain ring = ring_of(columns, Protocol::simple);
        const auto n = static_cast<double>(columns.ranks);
        phases.latency += ring.latency;
        phases.seconds_per_byte += (n - 1.0) / n / g / ring.rate;
        phases.lost += ring.half / ring.rate;
        phases.ramp = ring.ramp;
        phases.give(Algorithm::torus_2d, trips, lines);
        return;
    }
    const PathLevel& level = path.levels.front();
    std::int64_t row = 1;
    for (std::int64_t k = 1; k * k <= level.members; ++k) {
        if (level.members % k == 0) row = k;
    }
    const auto a = static_cast<double>(row);
    const auto b = static_cast<double>(level.members / row);
    Phases phases;
    phases.send(b - 1.0, (b - 1.0) / b, plain(level), rounds(level.members / row), level.ramp);
    phases.send(a - 1.0, (a - 1.0) / a / b, plain(level), rounds(row), level.ramp);
    phases.give(Algorithm::torus_2d, trips, lines);
}

/// Recursive halving: in every round a rank exchanges half of what it still works on with a
/// partner, the nearest first. Ranks beyond a power of two hand their data over before and take
/// the result after. Source: Rabenseifner 2004; Thakur et al. 2005.
void add_halving_doubling(const GroupPath& path, double trips, Lines& lines) {
    Phases phases;
    double piece = 1.0;
    for (const PathLevel& level : path.levels) {
        const auto g = static_cast<double>(level.members);
        const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(level.members));
        const double extra = is_power ? 0.0 : piece;
        const bool torus = is_torus(level.torus);
        const double share = torus ? halving_share(level) : (g - 1.0) / g;
        phases.send(rounds(level.members), share * piece + extra, plain(level), 1.0, level.ramp);
        if (torus) phases.latency += farther_hops(level).value();
        piece /= g;
    }
    phases.give(Algorithm::halving_doubling, trips, lines);
}

/// Every rank pushes its buffer to the servers and pulls the result; each of s servers holds 1/s of
/// it and has one link of the outermost tier. Source: Li et al. 2014 (synchronous form).
void add_parameter_server(const GroupPath& path, Lines& lines) {
    const PathLevel& level = path.levels.back();
    const auto n = static_cast<double>(path.ranks);
    const double worker = level.per_rank.value();
    const double server = level.per_link.value() * static_cast<double>(path.servers);
    const double rate = std::min(worker, server / n);
    if (rate <= 0.0) return;
    lines.add(Algorithm::parameter_server, Protocol::simple, 2.0 * level.step_latency.value(),
              2.0 / rate, level.half_size.value() * rate / worker, level.ramp);
}

/// One rank per node: all-gather and reduce-scatter in logarithmic steps.
/// Source: NCCL src/graph/tuning.cc, algorithm PAT: steps overlap 3.5-fold, three quarters of the
/// ring's bandwidth, and the work of 2.8 us for every rank that a plan of n pieces takes.
void add_pat(const GroupPath& path, Lines& lines) {
    constexpr double overlapping_steps = 3.5;
    constexpr double share_of_ring = 0.75;
    constexpr double plan_us_per_rank = 2.8;
    if (scaleup_ranks(path) > 1 || !lines.allows(Protocol::simple)) return;
    if (is_torus(path.levels.back().torus)) return; // made for switches
    const Chain ring = ring_of(path, Protocol::simple);
    if (ring.rate <= 0.0) return;
    const auto n = static_cast<double>(path.ranks);
    const double latency =
        rounds(path.ranks) * path.levels.back().step_latency.value() / overlapping_steps +
        plan_us_per_rank * 1e-6 * n;
    lines.add(Algorithm::pat, Protocol::simple, latency, (n - 1.0) / n / ring.rate / share_of_ring,
              ring.half, ring.ramp);
}

} // namespace shardplan::sim
