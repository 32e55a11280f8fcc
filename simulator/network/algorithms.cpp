#include "simulator/network/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace shardplan::sim {

namespace {

/// ceil(log2(n)).
double rounds(std::int64_t n) {
    return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// A Transport of a level as plain numbers: bytes/s of one rank, seconds, bytes.
struct Lane {
    double rate = 0.0;
    double step = 0.0;
    double half = 0.0;
};
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

// --- rings -----------------------------------------------------------------------------------

/// A ring that runs through every rank: the slowest tier decides, where the ranks inside one unit
/// of a tier share its way out between them. A ring enters and leaves each unit once per lane, so a
/// unit of g ranks gives it g ranks' bandwidth.
struct Chain {
    double rate = 0.0;    ///< bytes/s of each rank's stream; 0: a tier lacks the protocol
    double half = 0.0;    ///< bytes
    double ramp = 1.0;    ///< of the tier that decides
    double latency = 0.0; ///< of one trip past every rank, seconds
};
Chain ring_of(const GroupPath& path, Protocol protocol) {
    Chain c;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const Lane lane = lane_of(level, protocol);
        double rate = lane.rate * static_cast<double>(inside);
        if (inside * level.members < path.ranks) rate *= level.chain_gain;
        if (inside == 1 || rate < c.rate) {
            c.rate = rate;
            // Chunks pass one neighbour after the other, and every lane has its own ramp.
            c.half = lane.half * std::max(1.0, rounds(level.members)) * static_cast<double>(inside);
            c.ramp = level.ramp;
        }
        inside *= level.members;
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

/// `trips`: how often every byte goes round: 2 for all-reduce, 1 for its halves. `share`: of the
/// bytes each rank sends per trip, (n - 1) / n, or 1 where all of them pass everywhere.
void add_rings(const GroupPath& path, double trips, double share, Lines& lines) {
    for (const Protocol p : {Protocol::simple, Protocol::ll128, Protocol::ll}) {
        if (!lines.allows(p)) continue;
        const Chain c = ring_of(path, p);
        if (c.rate <= 0.0) continue;
        lines.add(Algorithm::ring, p, trips * c.latency, trips * share / c.rate, c.half / share,
                  c.ramp);
    }
}

// --- trees -----------------------------------------------------------------------------------

/// A double binary tree over the units of the outer tiers, a chain inside the innermost. Up and
/// down together a node sends every byte twice, as each half of the data has its own tree and an
/// inner node of one is a leaf of the other.
/// Source: NCCL src/graph/tuning.cc (half the bus bandwidth) and trees.cc.
struct Tree {
    double up_latency = 0.0; ///< from a leaf to the root
    double rate = 0.0;       ///< bytes of the buffer per second, up and down at once
    double lost = 0.0;       ///< seconds at the half size, all steps
    double ramp = 1.0;
};
/// The outer tiers alone, from node to node. `sends`: how often a node sends every byte.
Tree outer_tree(const GroupPath& path, std::size_t first, std::int64_t inside, Protocol protocol,
                double sends) {
    Tree t;
    for (std::size_t i = first; i < path.levels.size(); ++i) {
        const PathLevel& level = path.levels[i];
        const bool has_tree = protocol == Protocol::simple && level.tree.share > 0.0;
        const Lane lane = has_tree ? over(level, level.tree) : lane_of(level, protocol);
        const double rate = lane.rate * static_cast<double>(inside) / sends;
        if (i == first || rate < t.rate) {
            t.rate = rate;
            t.ramp = level.ramp;
        }
        const double steps = rounds(level.members);
        t.up_latency += steps * lane.step;
        if (lane.rate > 0.0) t.lost += 2.0 * steps * lane.half / lane.rate;
        inside *= level.members;
    }
    return t;
}

/// Ranks of the innermost tier if that is a scale-up network, else 1.
std::int64_t scaleup_ranks(const GroupPath& path) {
    return path.levels.front().is_scaleup ? path.levels.front().members : 1;
}

void add_trees(const GroupPath& path, Lines& lines) {
    const PathLevel& inner = path.levels.front();
    const std::int64_t g = scaleup_ranks(path);
    const std::size_t first = g > 1 ? 1 : 0;
    for (const Protocol p : {Protocol::simple, Protocol::ll128, Protocol::ll}) {
        if (!lines.allows(p)) continue;
        Tree t = outer_tree(path, first, g, p, 2.0);
        if (g > 1) {
            const Lane lane = lane_of(inner, p);
            // the chain passes every byte up and down one link after the other
            const double rate = lane.rate / 2.0;
            if (first == path.levels.size() || rate < t.rate) {
                t.rate = rate;
                t.ramp = inner.ramp;
            }
            t.up_latency += static_cast<double>(g - 1) * lane.step;
            if (lane.rate > 0.0) t.lost += 2.0 * rounds(g) * lane.half / lane.rate;
        }
        if (t.rate <= 0.0) continue;
        lines.add(Algorithm::tree, p, 2.0 * t.up_latency, 1.0 / t.rate, t.rate * t.lost, t.ramp);
    }
}

// --- reduction in the switch -------------------------------------------------------------------

/// Every rank sends its buffer to the switch and takes the sum from it. NCCL gives each rank a
/// channel of its own of at most a sixth of the links, so few ranks do not fill them.
/// Source: NCCL src/graph/search.cc, speed table of compute capability 9.0.
constexpr double channels_to_fill = 6.0;

void add_in_switch(const GroupPath& path, Lines& lines) {
    const PathLevel& inner = path.levels.front();
    const std::int64_t g = scaleup_ranks(path);
    if (g < 2 || inner.in_switch.share <= 0.0 || !lines.allows(Protocol::simple)) return;
    const Lane lane = over(inner, inner.in_switch);
    const double rate = lane.rate * std::min(1.0, static_cast<double>(g) / channels_to_fill);
    if (path.levels.size() == 1) {
        if (!lines.allows(Algorithm::nvls)) return;
        lines.add(Algorithm::nvls, Protocol::simple, lane.step, 1.0 / rate, lane.half, inner.ramp);
        return;
    }
    if (!lines.allows(Algorithm::nvls_tree)) return;
    // Of two nodes each is the root of one tree, and the switch adds what both have: once is
    // enough.
    const bool is_pair = path.ranks == 2 * g;
    Tree t = outer_tree(path, 1, g, Protocol::simple, is_pair ? 1.0 : 2.0);
    if (t.rate <= 0.0) return;
    const double lost = t.lost + lane.half / lane.rate;
    const double slowest = std::min(rate, t.rate);
    lines.add(Algorithm::nvls_tree, Protocol::simple, lane.step + 2.0 * t.up_latency, 1.0 / slowest,
              slowest * lost, t.ramp);
}

// --- in several phases -------------------------------------------------------------------------

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
        phases.send(rounds(level.members), (g - 1.0) / g * piece + extra, plain(level), 1.0,
                    level.ramp);
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
    const Chain ring = ring_of(path, Protocol::simple);
    if (ring.rate <= 0.0) return;
    const auto n = static_cast<double>(path.ranks);
    const double latency =
        rounds(path.ranks) * path.levels.back().step_latency.value() / overlapping_steps +
        plan_us_per_rank * 1e-6 * n;
    lines.add(Algorithm::pat, Protocol::simple, latency, (n - 1.0) / n / ring.rate / share_of_ring,
              ring.half, ring.ramp);
}

// --- point to point ----------------------------------------------------------------------------

/// Every rank sends a piece to every other. What leaves a unit goes over the unit's own way out;
/// the tiers work side by side and the slowest decides. Messages of one round go out together.
/// Source: NCCL's grouped send and receive.
void add_all_to_all(const GroupPath& path, Lines& lines) {
    const auto n = static_cast<double>(path.ranks);
    double slowest = 0.0;
    double half = 0.0;
    double ramp = 1.0;
    double latency = 0.0;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const Lane lane = plain(level);
        const double sent = (n - static_cast<double>(inside)) / n;
        if (sent / lane.rate > slowest) {
            slowest = sent / lane.rate;
            half = lane.half * std::max(1.0, rounds(level.members)) / sent;
            ramp = level.ramp;
        }
        latency += rounds(level.members) * lane.step;
        inside *= level.members;
    }
    lines.add(Algorithm::ring, Protocol::simple, latency, slowest, half, ramp);
}

/// One neighbour's message. In a ring of neighbours only the ranks at a unit's edge use the way
/// out, but one pair is held to one card. The slowest tier at large sizes decides.
void add_send(const GroupPath& path, Lines& lines) {
    double slowest = 0.0;
    double half = 0.0;
    double ramp = 1.0;
    double latency = 0.0;
    std::int64_t inside = 1;
    for (const PathLevel& level : path.levels) {
        const double shared = level.per_rank.value() * static_cast<double>(inside);
        const double rate = std::min(shared, level.per_link.value());
        if (1.0 / rate > slowest) {
            slowest = 1.0 / rate;
            half = level.half_size.value();
            ramp = level.ramp;
        }
        latency = std::max(latency, level.step_latency.value());
        inside *= level.members;
    }
    lines.add(Algorithm::ring, Protocol::simple, latency, slowest, half, ramp);
}

/// True if `other` is as fast at every size, so that `line` is never needed.
bool is_dominated(const CostLine& line, const CostLine& other) {
    const bool same_ramp = line.ramp == other.ramp || other.half.value() <= 0.0;
    return same_ramp && other.latency <= line.latency &&
           other.seconds_per_byte <= line.seconds_per_byte && other.half <= line.half;
}

/// Leaves out the lines from `first` on that others make superfluous; of equals the first stays.
void prune(std::vector<CostLine>& lines, std::size_t first) {
    for (std::size_t i = lines.size(); i-- > first;) {
        for (std::size_t k = first; k < lines.size(); ++k) {
            const bool equal = is_dominated(lines[k], lines[i]);
            if (k != i && is_dominated(lines[i], lines[k]) && (!equal || k < i)) {
                lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
        }
    }
}

/// Reductions and gathers by everything that is allowed and does them.
void add_exchange(const GroupPath& path, Collective op, Lines& lines) {
    const bool reduces_and_gathers = op == Collective::all_reduce;
    const double trips = reduces_and_gathers ? 2.0 : 1.0;
    const auto n = static_cast<double>(path.ranks);
    // each part is added up on its way past the other ranks
    lines.set_summed(op == Collective::all_gather ? 0.0 : (n - 1.0) / n);
    if (lines.allows(Algorithm::ring)) add_rings(path, trips, (n - 1.0) / n, lines);
    if (lines.allows(Algorithm::hierarchical)) add_hierarchical(path, trips, lines);
    if (lines.allows(Algorithm::torus_2d)) add_torus(path, trips, lines);
    if (lines.allows(Algorithm::halving_doubling)) add_halving_doubling(path, trips, lines);
    if (reduces_and_gathers) {
        // the root of a binomial tree adds what each of its children sends
        lines.set_summed(rounds(path.ranks));
        if (lines.allows(Algorithm::tree)) add_trees(path, lines);
        lines.set_summed(0.0);
        add_in_switch(path, lines);
        lines.set_summed((n - 1.0) / static_cast<double>(std::max<std::int64_t>(1, path.servers)));
        if (lines.allows(Algorithm::parameter_server)) add_parameter_server(path, lines);
    } else if (lines.allows(Algorithm::pat)) {
        add_pat(path, lines);
    }
}

void add_lines(const GroupPath& path, Collective op, Lines& lines) {
    switch (op) {
        case Collective::all_reduce:
        case Collective::all_gather:
        case Collective::reduce_scatter:
            add_exchange(path, op, lines);
            break;
        case Collective::broadcast:
        case Collective::reduce:
            break; // by rings alone, below
        case Collective::all_to_all:
            add_all_to_all(path, lines);
            break;
        case Collective::send_recv:
            add_send(path, lines);
            break;
    }
}

} // namespace

CostLines cost_lines(const GroupPath& path) {
    CostLines out;
    if (path.ranks <= 1 || path.levels.empty()) return out;
    constexpr std::size_t collectives = EnumNames<Collective>::names.size();
    out.lines.reserve(4 * collectives);
    for (const PathLevel& level : path.levels) {
        out.floor = std::max(out.floor, level.floor_latency);
    }
    Lines lines(path, out);
    for (std::size_t i = 0; i < collectives; ++i) {
        const auto op = static_cast<Collective>(i);
        lines.set_summed(0.0);
        out.begin[i] = static_cast<std::uint32_t>(out.lines.size());
        add_lines(path, op, lines);
        prune(out.lines, out.begin[i]);
        if (out.lines.size() == out.begin[i]) {
            // pipelined along the ring every byte passes every rank once per trip
            const auto n = static_cast<double>(path.ranks);
            const bool all_pass = op == Collective::broadcast || op == Collective::reduce;
            GroupPath any = path;
            any.protocols |= 1U << static_cast<unsigned>(Protocol::simple);
            Lines rings(any, out);
            const bool adds = op == Collective::all_reduce || op == Collective::reduce_scatter;
            rings.set_summed(op == Collective::reduce ? 1.0 : adds ? (n - 1.0) / n : 0.0);
            add_rings(any, op == Collective::all_reduce ? 2.0 : 1.0, all_pass ? 1.0 : (n - 1.0) / n,
                      rings);
        }
    }
    out.begin[collectives] = static_cast<std::uint32_t>(out.lines.size());
    return out;
}

} // namespace shardplan::sim
