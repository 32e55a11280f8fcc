#include "simulator/network/algorithms.hpp"

#include <algorithm>

#include "simulator/network/algorithm_parts.hpp"
#include "simulator/network/torus_lines.hpp"

namespace shardplan::sim {

namespace {

// --- rings -----------------------------------------------------------------------------------

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
    std::int64_t in_node = inside;
    for (std::size_t i = first; i < path.levels.size(); ++i) {
        const PathLevel& level = path.levels[i];
        const bool has_tree = protocol == Protocol::simple && level.tree.share > 0.0;
        const Lane lane = has_tree ? over(level, level.tree) : lane_of(level, protocol);
        double rate = lane.rate * static_cast<double>(lanes_out(level, inside, in_node)) / sends;
        if (is_torus(level.torus)) {
            const auto directions = static_cast<double>(level.torus.directions);
            rate *= sends / (directions * std::max(sends, tree_crossings(level)));
        } else {
            in_node = inside * level.members;
        }
        if (i == first || rate < t.rate) {
            t.rate = rate;
            t.ramp = level.ramp;
        }
        const double steps = rounds(level.members);
        t.up_latency += steps * lane.step;
        if (is_torus(level.torus)) t.up_latency += farther_hops(level).value();
        if (lane.rate > 0.0) t.lost += 2.0 * steps * lane.half / lane.rate;
        inside *= level.members;
    }
    return t;
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

/// Bandwidth of a reduction in the switch over g ranks, against the one over eight that its share
/// was measured on. Every rank sends its buffer to the switch and takes the sum from it, and one
/// g-th of it passes once more, to the rank that began with it: S (1 + 1/g). Larger domains add a
/// stage of switches, which takes what they gain.
double in_switch_gain(std::int64_t g) {
    constexpr double measured_on = 8.0;
    const auto n = static_cast<double>(g);
    return std::min(1.0, (1.0 + 1.0 / measured_on) / (1.0 + 1.0 / n));
}

/// Whether NCCL may take a reduction in the switch instead of a ring. Its estimate gives each
/// rank a channel of at most a sixth of the links, which is too little for few ranks, whatever they
/// would reach. Source: NCCL src/graph/search.cc and tuning.cc (speed table of compute
/// capability 9.0).
bool prefers_switch(const GroupPath& path, const Lane& lane, std::int64_t g, const Lines& lines) {
    constexpr std::int64_t channels_to_fill = 6;
    if (g >= channels_to_fill || !lines.allows(Algorithm::ring)) return true;
    const double estimate =
        lane.rate * static_cast<double>(g) / static_cast<double>(channels_to_fill);
    const auto n = static_cast<double>(path.ranks);
    const double ring = ring_of(path, Protocol::simple).rate * n / (2.0 * (n - 1.0));
    constexpr double rounding = 1e-9; // five of eight ranks are even where the shares are round
    return estimate >= ring * (1.0 - rounding);
}

/// Whether the switches of every tier between nodes add up what passes.
bool reduces_in_network(const GroupPath& path) {
    const std::size_t first = scaleup_ranks(path) > 1 ? 1 : 0;
    return first < path.levels.size() &&
           std::all_of(path.levels.begin() + static_cast<std::ptrdiff_t>(first), path.levels.end(),
                       [](const PathLevel& level) {
                           return level.in_network.share > 0.0 && !is_torus(level.torus);
                       });
}

/// The way of every byte into the network and back, once each; `g` ranks of a node share its cards.
struct Trunk {
    double rate = 0.0;
    double step = 0.0;
    double lost = 0.0; ///< seconds at the half size
    double ramp = 1.0;
};
Trunk trunk_of(const GroupPath& path, std::int64_t g) {
    // sums leave a leaf once, however many nodes there are below: the cards decide
    const PathLevel& cards = path.levels[g > 1 ? 1 : 0];
    const Lane lane = over(cards, cards.in_network);
    const double rate = lane.rate * static_cast<double>(g);
    return {rate, lane.step, lane.half / lane.rate, cards.ramp};
}

/// Reduction in the network below a chain, or below ranks that each serve a card. NCCL counts half
/// the bandwidth of the rings inside a node for both.
/// Source: NCCL src/graph/tuning.cc, CollNetChain and CollNetDirect.
void add_collnet(const GroupPath& path, Lines& lines) {
    constexpr double direct_us_per_rank = 0.4;
    if (!reduces_in_network(path) || !lines.allows(Protocol::simple)) return;
    const std::int64_t g = scaleup_ranks(path);
    const Trunk trunk = trunk_of(path, g);
    double rate = trunk.rate;
    double lost = trunk.lost;
    double inner_step = 0.0;
    if (g > 1) {
        const Lane lane = plain(path.levels.front());
        rate = std::min(rate, lane.rate / 2.0);
        lost += rounds(g) * lane.half / lane.rate;
        inner_step = lane.step;
    }
    const auto others = static_cast<double>(g - 1);
    if (lines.allows(Algorithm::collnet_chain)) {
        lines.add(Algorithm::collnet_chain, Protocol::simple,
                  2.0 * others * inner_step + trunk.step, 1.0 / rate, rate * lost, trunk.ramp);
    }
    if (lines.allows(Algorithm::collnet_direct)) {
        const double inside = inner_step + direct_us_per_rank * 1e-6 * others;
        lines.add(Algorithm::collnet_direct, Protocol::simple, 2.0 * inside + trunk.step,
                  1.0 / rate, rate * lost, trunk.ramp);
    }
}

void add_in_switch(const GroupPath& path, Lines& lines) {
    const PathLevel& inner = path.levels.front();
    const std::int64_t g = scaleup_ranks(path);
    if (g < 2 || inner.in_switch.share <= 0.0 || !lines.allows(Protocol::simple)) return;
    const Lane lane = over(inner, inner.in_switch);
    if (!prefers_switch(path, lane, g, lines)) return;
    const double rate = lane.rate * in_switch_gain(g);
    if (path.levels.size() == 1) {
        if (!lines.allows(Algorithm::nvls)) return;
        lines.add(Algorithm::nvls, Protocol::simple, lane.step, 1.0 / rate, lane.half, inner.ramp);
        return;
    }
    if (lines.allows(Algorithm::nvls) && reduces_in_network(path)) {
        const Trunk trunk = trunk_of(path, g);
        const double slowest = std::min(rate, trunk.rate);
        lines.add(Algorithm::nvls, Protocol::simple, lane.step + trunk.step, 1.0 / slowest,
                  slowest * (lane.half / lane.rate + trunk.lost), trunk.ramp);
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
        const bool torus = is_torus(level.torus);
        const double sent = torus ? all_to_all_share(level) : (n - static_cast<double>(inside)) / n;
        if (sent / lane.rate > slowest) {
            slowest = sent / lane.rate;
            half = lane.half * std::max(1.0, rounds(level.members)) / sent;
            ramp = level.ramp;
        }
        latency += rounds(level.members) * lane.step;
        if (torus) latency += farther_hops(level).value();
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
        const Bandwidth own = is_torus(level.torus) ? one_direction(level) : level.per_rank;
        const double shared = own.value() * static_cast<double>(inside);
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
        // of two trees a rank has two children in one, which send half of the data each
        lines.set_summed(path.ranks > 2 ? 1.0 : 0.5);
        if (lines.allows(Algorithm::tree)) add_trees(path, lines);
        lines.set_summed(0.0);
        add_in_switch(path, lines);
        add_collnet(path, lines);
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
