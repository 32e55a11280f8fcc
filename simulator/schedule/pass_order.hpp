#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/spec/layout.hpp"

namespace shardplan::sim {

/// One forward or backward pass of a micro-batch through one chunk of a stage.
struct Pass {
    bool forward = true;
    std::int64_t chunk = 0;
    std::int64_t micro_batch = 0;

    friend bool operator==(const Pass&, const Pass&) = default;
};

/// Groups of micro-batches that interleaving sends through one chunk after another: as many as pp
/// goes into the micro-batches, as even as can be, so none is smaller than pp, with which passes
/// would wait for themselves. Where pp divides the micro-batches: pp each, as Megatron-LM; else as
/// torch.distributed.pipelining's Interleaved1F1B, which insists on groups of one size.
struct MicroBatchGroups {
    std::int64_t least = 1;  ///< micro-batches of a group
    std::int64_t count = 1;  ///< groups
    std::int64_t larger = 0; ///< the first of them, which have one micro-batch more

    [[nodiscard]] std::int64_t largest() const { return least + (larger > 0 ? 1 : 0); }
};
MicroBatchGroups groups_of(std::int64_t pp, std::int64_t micro_batches);

/// The passes of one stage in the order they start, for the schedules whose order is written down;
/// those of the others `pipeline_order` finds. Orders: GPipe (Huang et al. 2019), 1F1B (Narayanan
/// et al. 2019), interleaved 1F1B in the groups of `groups_of` (Narayanan et al. 2021), ZB-H1 and
/// ZB-H2 with one chunk (Qi et al. 2023; the weight passes hold no activations of their own here).
/// With chunks = 1, `interleaved` is 1F1B.
std::vector<Pass> pass_order(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                             std::int64_t chunks, std::int64_t micro_batches);

/// Of that order, what all stages have in common: which passes of either direction follow each
/// other.
struct PassLists {
    std::vector<Pass> forward;
    std::vector<Pass> backward; ///< as many
};
PassLists pass_lists(std::int64_t pp, std::int64_t chunks, std::int64_t micro_batches);
/// And what tells them apart: forward passes of a stage before its first backward one.
std::int64_t warm_up_passes(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                            std::int64_t chunks, std::int64_t micro_batches);
/// Forward passes before the first backward one, then one of each in turn, then what is left.
template <class Visit>
void for_each_pass(const PassLists& lists, std::int64_t warm_up, const Visit& visit) {
    const std::size_t total = lists.forward.size();
    const std::size_t ahead = std::min(static_cast<std::size_t>(warm_up), total);
    for (std::size_t i = 0; i < ahead; ++i)
        visit(lists.forward[i]);
    for (std::size_t i = 0; i < total; ++i) {
        if (ahead + i < total) visit(lists.forward[ahead + i]);
        visit(lists.backward[i]);
    }
}

/// The fewest micro-batches that show every live set the order of `micro_batches` passes reaches:
/// a steady state repeats itself, so memory need not replay all of it.
std::int64_t representative_micro_batches(ScheduleKind kind, std::int64_t pp,
                                          std::int64_t micro_batches);

} // namespace shardplan::sim
