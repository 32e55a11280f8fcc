#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

namespace {

/// ceil(log2(n)).
double rounds(std::int64_t n) {
    return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// Bytes at which a collective of this level reaches half the rate: chunks pass one neighbour after
/// the other, and libraries change to trees where that gets long.
double half_of(const PathLevel& level) {
    return level.half_size.value() * std::max(1.0, rounds(level.members));
}

/// Rate of a ring (or tree) that runs through every rank: the slowest tier, where the ranks inside
/// one unit of a tier share its way out between them. A ring enters and leaves each unit once per
/// lane, so a unit of g ranks gives it g ranks' bandwidth.
struct Chain {
    double rate = 0.0;         ///< bytes/s of each rank's stream
    double half = 0.0;         ///< bytes
    double ramp = 1.0;         ///< see transfer
    double launch = 0.0;       ///< seconds
    double tree_latency = 0.0; ///< from a leaf to the root, seconds
};
Chain chain_of(const GroupPath& path) {
    Chain c;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const double rate = level.per_rank.value() * static_cast<double>(inside);
        if (inside == 1 || rate < c.rate) {
            c.rate = rate;
            // every lane has its own ramp
            c.half = half_of(level) * static_cast<double>(inside);
            c.ramp = level.ramp;
        }
        c.launch = std::max(c.launch, level.launch_latency.value());
        c.tree_latency += rounds(level.members) * level.step_latency.value();
        inside *= level.members;
    }
    return c;
}

/// Latency of one trip past every rank. NCCL's count: of the n - 1 steps, as many as there are
/// units less one wait for the network between them, the others for the links inside.
double ring_latency(const GroupPath& path) {
    double latency = 0.0;
    std::int64_t units = 1;
    for (std::size_t i = path.levels.size(); i-- > 0;) {
        const PathLevel& level = path.levels[i];
        latency += static_cast<double>(units * (level.members - 1)) * level.step_latency.value();
        units *= level.members;
    }
    return latency;
}

/// Seconds to move `sent` bytes: at `half` bytes twice as long as at the full rate. With a ramp of
/// 1 what is lost is a fixed time; below 1 larger messages lose more, but less than in proportion,
/// because chunks and their number grow with the message.
double transfer(double sent, double half, double ramp, double rate) {
    if (rate <= 0.0 || sent <= 0.0) return 0.0;
    if (ramp == 1.0) return (sent + half) / rate;
    return sent / rate * (1.0 + std::pow(half / sent, ramp));
}

/// `trips`: how often every byte goes round, 2 for all-reduce.
double ring_seconds(const GroupPath& path, const Chain& c, double trips, double bytes) {
    const auto n = static_cast<double>(path.ranks);
    return trips * (ring_latency(path) + transfer((n - 1.0) / n * bytes, c.half, c.ramp, c.rate));
}

double tree_seconds(const Chain& c, double trips, double bytes) {
    return trips * (c.tree_latency + transfer(bytes, c.half, c.ramp, c.rate));
}

/// Scatter inside each tier, work on the shrunken piece outside, gather back. The tiers follow one
/// another. Source: Jia et al. 2018 (arXiv 1807.11205).
double hierarchical_seconds(const GroupPath& path, double trips, double bytes) {
    double seconds = 0.0;
    double piece = bytes;
    for (const PathLevel& level : path.levels) {
        const auto g = static_cast<double>(level.members);
        const double sent = (g - 1.0) / g * piece;
        seconds += trips * ((g - 1.0) * level.step_latency.value() +
                            transfer(sent, half_of(level), level.ramp, level.per_rank.value()));
        piece /= g;
    }
    return seconds;
}

/// Every rank sends a piece to every other. What leaves a unit goes over the unit's own way out;
/// the tiers work side by side and the slowest decides. Messages of one round go out together.
/// Source: NCCL's grouped send and receive.
double all_to_all_seconds(const GroupPath& path, double bytes) {
    const auto n = static_cast<double>(path.ranks);
    double slowest = 0.0;
    double latency = 0.0;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const double sent = (n - static_cast<double>(inside)) / n * bytes;
        slowest =
            std::max(slowest, transfer(sent, half_of(level), level.ramp, level.per_rank.value()));
        latency += rounds(level.members) * level.step_latency.value();
        inside *= level.members;
    }
    return latency + slowest;
}

/// One neighbour's message. In a ring of neighbours only the ranks at a unit's edge use the way
/// out, but one pair is held to one card.
double send_seconds(const GroupPath& path, double bytes) {
    double slowest = 0.0;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const double shared = level.per_rank.value() * static_cast<double>(inside);
        const double rate = std::min(shared, level.per_link.value());
        slowest = std::max(slowest, level.step_latency.value() +
                                        transfer(bytes, level.half_size.value(), level.ramp, rate));
        inside *= level.members;
    }
    return slowest;
}

} // namespace

Seconds collective_time(const GroupPath& path, Collective op, Bytes bytes) {
    if (path.ranks <= 1 || path.levels.empty() || bytes.value() <= 0.0) return {};
    const double s = bytes.value();
    const Chain c = chain_of(path);
    double seconds = 0.0;
    switch (op) {
        case Collective::all_reduce:
            seconds = std::min(ring_seconds(path, c, 2.0, s), tree_seconds(c, 2.0, s));
            if (path.levels.size() > 1) {
                seconds = std::min(seconds, hierarchical_seconds(path, 2.0, s));
            }
            break;
        case Collective::all_gather:
        case Collective::reduce_scatter:
            seconds = ring_seconds(path, c, 1.0, s);
            if (path.levels.size() > 1) {
                seconds = std::min(seconds, hierarchical_seconds(path, 1.0, s));
            }
            break;
        case Collective::broadcast:
        case Collective::reduce:
            // pipelined along the ring, every byte passes every rank once
            seconds = std::min(ring_latency(path) + transfer(s, c.half, c.ramp, c.rate),
                               tree_seconds(c, 1.0, s));
            break;
        case Collective::all_to_all:
            seconds = all_to_all_seconds(path, s);
            break;
        case Collective::send_recv:
            seconds = send_seconds(path, s);
            break;
    }
    return Seconds(c.launch + seconds);
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
