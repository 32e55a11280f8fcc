#include "simulator/network/torus_lines.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace shardplan::sim {

namespace {

double doublings(std::int64_t n) {
    return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

} // namespace

double all_to_all_share(const PathLevel& level) {
    const std::int64_t m = level.members;
    return static_cast<double>(m * m / 4) / static_cast<double>(m);
}

double halving_share(const PathLevel& level) {
    return doublings(level.members) / 2.0 * static_cast<double>(level.torus.directions);
}

double tree_crossings(const PathLevel& level) { return std::max(1.0, doublings(level.members)); }

Seconds farther_hops(const PathLevel& level) {
    const std::int64_t hops = std::max<std::int64_t>(0, level.members / 2 - 1);
    return static_cast<double>(hops * level.torus.stride) * level.torus.hop;
}

Bandwidth one_direction(const PathLevel& level) {
    return level.per_rank / static_cast<double>(level.torus.directions);
}

TorusTrip torus_trip(const PathLevel* first, std::size_t dimensions) {
    TorusTrip out;
    double sent = 0.0;
    for (std::size_t phase = 0; phase < dimensions; ++phase) {
        double longest = 0.0;
        double longest_lost = 0.0;
        double longest_latency = 0.0;
        for (std::size_t part = 0; part < dimensions; ++part) {
            double piece = 1.0 / static_cast<double>(dimensions);
            for (std::size_t done = 0; done < phase; ++done) {
                piece /= static_cast<double>(first[(part + done) % dimensions].members);
            }
            const PathLevel& level = first[(part + phase) % dimensions];
            const auto m = static_cast<double>(level.members);
            const double rate = level.per_rank.value();
            longest = std::max(longest, (m - 1.0) / m * piece / rate);
            sent += (m - 1.0) / m * piece;
            longest_lost =
                std::max(longest_lost, level.half_size.value() * doublings(level.members) / rate);
            longest_latency = std::max(longest_latency, (m - 1.0) * level.step_latency.value());
        }
        out.seconds_per_byte += longest;
        out.lost += longest_lost;
        out.latency += longest_latency;
    }
    const double injection = first[0].torus.injection.value();
    if (injection > 0.0) out.seconds_per_byte = std::max(out.seconds_per_byte, sent / injection);
    return out;
}

} // namespace shardplan::sim
