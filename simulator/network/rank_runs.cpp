#include <algorithm>
#include <array>
#include <numeric>

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

namespace {

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
    [[nodiscard]] std::vector<StridedRanks> experts(Group group) const {
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
    [[nodiscard]] std::vector<StridedRanks> spread(StridedRanks run) const {
        const std::int64_t pp = layout_.pp;
        if (pp == 1 || run.stride * run.size <= below_pp_) return {run};
        if (run.stride >= below_pp_) return {{run.stride * pp, run.size}};
        const std::int64_t inner = below_pp_ / run.stride;
        return {{run.stride, inner}, {below_pp_ * pp, run.size / inner}};
    }

    const Layout& layout_;
    std::array<std::int64_t, 5> stride_{};
    std::int64_t below_pp_ = 1; ///< ranks of a stage that neighbour one another
    bool ep_before_dp_ = true;
};

/// Splits the product of runs into its innermost `wanted` ranks and the rest.
void split_runs(const std::vector<StridedRanks>& runs, std::int64_t wanted,
                std::vector<StridedRanks>& inner, std::vector<StridedRanks>& outer) {
    for (const StridedRanks& run : runs) {
        const std::int64_t taken = std::gcd(run.size, std::max<std::int64_t>(1, wanted));
        if (taken > 1) inner.push_back({run.stride, taken});
        if (run.size / taken > 1) outer.push_back({run.stride * taken, run.size / taken});
        wanted /= taken;
    }
}

} // namespace

std::vector<StridedRanks> ranks_of(const Layout& layout, Group group) {
    const RankGrid grid(layout);
    std::vector<StridedRanks> runs;
    switch (group) {
        case Group::tp:
            return {grid.along(Dim::tp)};
        case Group::cp:
            return {grid.along(Dim::cp)};
        case Group::pp:
            return {grid.along(Dim::pp)};
        case Group::dp:
            return {grid.along(Dim::dp)};
        case Group::ep:
        case Group::etp:
        case Group::expert_dp:
            return grid.experts(group);
        case Group::dp_cp:
        case Group::shard:
        case Group::replica:
            break;
    }
    runs = {grid.along(Dim::cp), grid.along(Dim::dp)};
    std::sort(runs.begin(), runs.end(),
              [](const StridedRanks& a, const StridedRanks& b) { return a.stride < b.stride; });
    if (group == Group::dp_cp) return runs;
    std::vector<StridedRanks> inner;
    std::vector<StridedRanks> outer;
    split_runs(runs, shard_ranks(layout), inner, outer);
    return group == Group::shard ? inner : outer;
}

} // namespace shardplan::sim
