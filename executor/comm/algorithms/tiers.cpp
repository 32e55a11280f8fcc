#include <algorithm>
#include <cstring>

#include "executor/comm/algorithms.hpp"

namespace shardplan::exec {

namespace {

using Tiers = std::span<const int>;

/// The ranks of this one's unit of the innermost of `members`, and those at its place in the
/// others.
Exchange unit_of(const Exchange& x, int members) {
    std::vector<int> positions;
    for (int i = 0; i < members; ++i) {
        positions.push_back(x.rank() / members * members + i);
    }
    return x.among(positions);
}
Exchange across_units(const Exchange& x, int members) {
    std::vector<int> positions;
    for (int i = x.rank() % members; i < x.size(); i += members) {
        positions.push_back(i);
    }
    return x.among(positions);
}

Status all_reduce_in(Exchange& x, Reduction how, Bytes data, Tiers tiers) {
    if (tiers.size() <= 1) return ring_all_reduce(x, how, data);
    Exchange unit = unit_of(x, tiers.front());
    Exchange others = across_units(x, tiers.front());
    const Bounds bounds = even_bounds(data.size(), bytes_of(how.scalar), unit.size());
    const auto r = static_cast<std::size_t>(unit.rank());
    const Bytes own = data.subspan(bounds[r], bounds[r + 1] - bounds[r]);
    if (Status s = ring_reduce_scatter(unit, how, data, bounds, own); !s) return s;
    if (Status s = all_reduce_in(others, how, own, tiers.subspan(1)); !s) return s;
    return ring_all_gather(unit, data, bounds);
}

/// Where the part of a rank lies among all so that the parts of one place in the innermost tier
/// neighbour one another, and within them those of one place in the next.
int staged_place(int rank, int size, Tiers tiers) {
    int place = 0;
    for (const int members : tiers) {
        size /= members;
        place += rank % members * size;
        rank /= members;
    }
    return place;
}

Status gather_in(Exchange& x, Bytes staged, Tiers tiers) {
    const int members = tiers.empty() ? x.size() : tiers.front();
    Exchange unit = unit_of(x, members);
    const Bounds bounds =
        even_bounds(staged.size(), staged.size() / static_cast<std::size_t>(members), members);
    if (members < x.size()) {
        Exchange others = across_units(x, members);
        const auto r = static_cast<std::size_t>(unit.rank());
        const Bytes own = staged.subspan(bounds[r], bounds[r + 1] - bounds[r]);
        if (Status s = gather_in(others, own, tiers.subspan(1)); !s) return s;
    }
    return ring_all_gather(unit, staged, bounds);
}

Status scatter_in(Exchange& x, Reduction how, Bytes staged, Tiers tiers) {
    const int members = tiers.empty() ? x.size() : tiers.front();
    Exchange unit = unit_of(x, members);
    const Bounds bounds =
        even_bounds(staged.size(), staged.size() / static_cast<std::size_t>(members), members);
    const auto r = static_cast<std::size_t>(unit.rank());
    const Bytes own = staged.subspan(bounds[r], bounds[r + 1] - bounds[r]);
    if (Status s = ring_reduce_scatter(unit, how, staged, bounds, own); !s) return s;
    if (members == x.size()) return sim::Done{};
    Exchange others = across_units(x, members);
    return scatter_in(others, how, own, tiers.subspan(1));
}

} // namespace

std::vector<int> squarest(int ranks) {
    int side = 1;
    for (int k = 1; k * k <= ranks; ++k) {
        if (ranks % k == 0) side = k;
    }
    return {ranks / side, side};
}

Status tiered_all_reduce(Exchange& x, Reduction how, Bytes data, const std::vector<int>& tiers) {
    return all_reduce_in(x, how, data, tiers);
}

Status tiered_all_gather(Exchange& x, Bytes all, const std::vector<int>& tiers) {
    if (all.empty()) return sim::Done{};
    const std::size_t part = all.size() / static_cast<std::size_t>(x.size());
    std::vector<std::byte> staged(all.size());
    const auto staged_at = [&](int rank) {
        return staged.data() + static_cast<std::size_t>(staged_place(rank, x.size(), tiers)) * part;
    };
    const auto part_at = [&](int rank) {
        return all.data() + static_cast<std::size_t>(rank) * part;
    };
    std::memcpy(staged_at(x.rank()), part_at(x.rank()), part);
    if (Status s = gather_in(x, staged, tiers); !s) return s;
    for (int rank = 0; rank < x.size(); ++rank) {
        std::memcpy(part_at(rank), staged_at(rank), part);
    }
    return sim::Done{};
}

Status tiered_reduce_scatter(Exchange& x, Reduction how, ConstBytes in, Bytes out,
                             const std::vector<int>& tiers) {
    if (in.empty()) return sim::Done{};
    const std::size_t part = out.size();
    std::vector<std::byte> staged(in.size());
    const auto staged_at = [&](int rank) {
        return staged.data() + static_cast<std::size_t>(staged_place(rank, x.size(), tiers)) * part;
    };
    for (int rank = 0; rank < x.size(); ++rank) {
        std::memcpy(staged_at(rank), in.data() + static_cast<std::size_t>(rank) * part, part);
    }
    if (Status s = scatter_in(x, how, staged, tiers); !s) return s;
    std::memcpy(out.data(), staged_at(x.rank()), part);
    return sim::Done{};
}

} // namespace shardplan::exec
