#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

namespace {

/// Runs of a group before those of one rank are left out: at most one per dimension it is cut from.
struct Runs {
    std::array<StridedRanks, 2> of{};
    std::size_t count = 0;

    Runs() = default;
    Runs(StridedRanks run) : of{run}, count(1) {} // NOLINT: a run is one
    Runs(StridedRanks inner, StridedRanks outer) : of{inner, outer}, count(2) {}
    void add(StridedRanks run) { of[count++] = run; }
};

/// Degrees and strides of a layout in its rank order, with the expert dimensions cut out of the
/// ranks of one stage (tp x cp x dp).
class RankGrid {
public:
    explicit RankGrid(const Layout& layout) : layout_(layout) {
        std::int64_t stride = 1;
        bool ep_seen = false;
        for (const Dim dim : order_of(layout.order)) {
            switch (dim) {
                case Dim::ep:
                    ep_seen = true;
                    continue;
                case Dim::pp:
                    below_pp_ = stride;
                    break;
                case Dim::dp:
                    ep_before_dp_ = ep_seen;
                    break;
                case Dim::tp:
                case Dim::cp:
                    break;
            }
            stride_[static_cast<std::size_t>(dim)] = stride;
            stride *= degree(dim);
        }
    }

    [[nodiscard]] std::int64_t degree(Dim dim) const {
        switch (dim) {
            case Dim::tp:
                return layout_.tp;
            case Dim::cp:
                return layout_.cp;
            case Dim::ep:
                return layout_.ep;
            case Dim::dp:
                return layout_.dp;
            case Dim::pp:
                return layout_.pp;
        }
        return 1;
    }
    [[nodiscard]] StridedRanks along(Dim dim) const {
        return {stride_[static_cast<std::size_t>(dim)], degree(dim)};
    }
    /// The expert grid: etp innermost, then ep and the copies of the experts in the order in which
    /// ep and dp stand. Source: Megatron-Core, parallel_state.py, expert rank generator.
    [[nodiscard]] Runs experts(Group group) const {
        const std::int64_t stage_ranks =
            std::int64_t{layout_.tp} * layout_.cp * std::int64_t{layout_.dp};
        const std::int64_t etp = etp_of(layout_);
        const std::int64_t ep = layout_.ep;
        const std::int64_t copies = std::max<std::int64_t>(1, stage_ranks / (etp * ep));
        if (group == Group::etp) return spread({1, etp});
        const bool is_ep = group == Group::ep;
        const bool is_inner = is_ep == ep_before_dp_;
        const std::int64_t size = is_ep ? ep : copies;
        const std::int64_t other = is_ep ? copies : ep;
        return spread({is_inner ? etp : etp * other, size});
    }

private:
    /// A run over the ranks of one stage, as ranks of the cluster: pipeline stages may stand
    /// between them.
    [[nodiscard]] Runs spread(StridedRanks run) const {
        const std::int64_t pp = layout_.pp;
        if (pp == 1 || run.stride * run.size <= below_pp_) return run;
        if (run.stride >= below_pp_) return StridedRanks{run.stride * pp, run.size};
        const std::int64_t inner = below_pp_ / run.stride;
        return {{run.stride, inner}, {below_pp_ * pp, run.size / inner}};
    }

    const Layout& layout_;
    std::array<std::int64_t, 5> stride_{};
    std::int64_t below_pp_ = 1; ///< ranks of a stage that neighbour one another
    bool ep_before_dp_ = true;
};

/// The innermost `wanted` ranks of a product of runs, or the rest.
Runs split(const Runs& runs, std::int64_t wanted, bool inner) {
    Runs out;
    for (std::size_t i = 0; i < runs.count; ++i) {
        const StridedRanks& run = runs.of[i];
        const std::int64_t taken = std::gcd(run.size, std::max<std::int64_t>(1, wanted));
        if (inner && taken > 1) out.add({run.stride, taken});
        if (!inner && run.size / taken > 1) out.add({run.stride * taken, run.size / taken});
        wanted /= taken;
    }
    return out;
}

Runs runs_in(const RankGrid& grid, const Layout& layout, Group group) {
    switch (group) {
        case Group::tp:
            return grid.along(Dim::tp);
        case Group::cp:
            return grid.along(Dim::cp);
        case Group::pp:
            return grid.along(Dim::pp);
        case Group::dp:
            return grid.along(Dim::dp);
        case Group::ep:
        case Group::etp:
        case Group::expert_dp:
            return grid.experts(group);
        case Group::dp_cp:
        case Group::shard:
        case Group::replica:
            break;
    }
    const StridedRanks cp = grid.along(Dim::cp);
    const StridedRanks dp = grid.along(Dim::dp);
    const Runs runs = dp.stride < cp.stride ? Runs(dp, cp) : Runs(cp, dp);
    return group == Group::dp_cp ? runs : split(runs, shard_ranks(layout), group == Group::shard);
}

GroupRanks ranks_in(const RankGrid& grid, const Layout& layout, Group group) {
    const Runs runs = runs_in(grid, layout, group);
    GroupRanks out;
    out.all = rank_count(layout);
    if (runs.count > 0) out.first_stride = runs.of[0].stride;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < runs.count; ++i) {
        if (runs.of[i].size > 1) out.runs[kept++] = runs.of[i];
    }
    return out;
}

} // namespace

std::vector<StridedRanks> ranks_of(const Layout& layout, Group group) {
    const Runs runs = runs_in(RankGrid(layout), layout, group);
    return {runs.of.begin(), runs.of.begin() + static_cast<std::ptrdiff_t>(runs.count)};
}

GroupRanks group_ranks(const Layout& layout, Group group) {
    return ranks_in(RankGrid(layout), layout, group);
}

std::array<GroupRanks, group_count> all_group_ranks(const Layout& layout) {
    const RankGrid grid(layout);
    std::array<GroupRanks, group_count> out;
    for (std::size_t i = 0; i < group_count; ++i) {
        out[i] = ranks_in(grid, layout, static_cast<Group>(i));
    }
    return out;
}

} // namespace shardplan::sim
