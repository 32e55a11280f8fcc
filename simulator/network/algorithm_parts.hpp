#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "simulator/network/group_path.hpp"

/// What the algorithms of collectives share.
namespace shardplan::sim {

/// ceil(log2(n)).
double rounds(std::int64_t n);

/// A Transport of a level as plain numbers: bytes/s of one rank, seconds, bytes.
struct Lane {
    double rate = 0.0;
    double step = 0.0;
    double half = 0.0;
};
Lane plain(const PathLevel& level);
Lane over(const PathLevel& level, const Transport& transport);
Lane lane_of(const PathLevel& level, Protocol protocol);

/// Ranks whose bandwidth a unit of `inside` of them gives to what leaves it: behind a switch all of
/// them; the links of a torus are those of one node, since a ring through the unit turns there.
std::int64_t lanes_out(const PathLevel& next, std::int64_t inside, std::int64_t in_node);

/// Ranks of the innermost tier if that is a scale-up network, else 1.
std::int64_t scaleup_ranks(const GroupPath& path);

/// Collects the lines of one collective.
class Lines {
public:
    Lines(const GroupPath& path, CostLines& out) : path_(path), out_(out) {
        for (const PathLevel& level : path.levels) {
            launch_ = std::max(launch_, level.launch_latency.value());
            per_sum_ = std::max(per_sum_, level.seconds_per_sum);
        }
    }
    /// Bytes a rank adds to its own, of those of the collective, in the lines that follow.
    void set_summed(double share) { summed_ = share; }
    [[nodiscard]] bool allows(Algorithm a) const {
        return (path_.algorithms & 1U << static_cast<unsigned>(a)) != 0;
    }
    [[nodiscard]] bool allows(Protocol p) const {
        return (path_.protocols & 1U << static_cast<unsigned>(p)) != 0;
    }
    /// `half`: bytes of the collective.
    void add(Algorithm a, Protocol p, double latency, double seconds_per_byte, double half,
             double ramp) {
        if (!std::isfinite(seconds_per_byte)) return;
        const double sums = summed_ * per_sum_;
        out_.lines.push_back(
            {Seconds(launch_ + latency), seconds_per_byte + sums, Bytes(half), ramp, a, p});
    }

private:
    const GroupPath& path_;
    CostLines& out_;
    double launch_ = 0.0;
    double per_sum_ = 0.0;
    double summed_ = 0.0;
};

/// A ring that runs through every rank: the slowest tier decides, where the ranks inside one unit
/// of a tier share its way out between them. A ring enters and leaves each unit once per lane, so a
/// unit of g ranks gives it g ranks' bandwidth.
struct Chain {
    double rate = 0.0;    ///< bytes/s of each rank's stream; 0: a tier lacks the protocol
    double half = 0.0;    ///< bytes
    double ramp = 1.0;    ///< of the tier that decides
    double latency = 0.0; ///< of one trip past every rank, seconds
};
Chain ring_of(const GroupPath& path, Protocol protocol);

/// Reductions and gathers in several phases that follow one another, of `trips` trips (2 for
/// all-reduce, 1 for its halves), and those that do not run along rings or trees.
void add_hierarchical(const GroupPath& path, double trips, Lines& lines);
void add_torus(const GroupPath& path, double trips, Lines& lines);
void add_halving_doubling(const GroupPath& path, double trips, Lines& lines);
void add_parameter_server(const GroupPath& path, Lines& lines);
void add_pat(const GroupPath& path, Lines& lines);

} // namespace shardplan::sim
