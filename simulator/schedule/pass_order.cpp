#include "simulator/schedule/pass_order.hpp"

#include <algorithm>

namespace shardplan::sim {

MicroBatchGroups groups_of(std::int64_t pp, std::int64_t micro_batches) {
    MicroBatchGroups out;
    out.count = std::max<std::int64_t>(1, micro_batches / pp);
    out.least = micro_batches / out.count;
    out.larger = micro_batches % out.count;
    return out;
}

PassLists pass_lists(std::int64_t pp, std::int64_t chunks, std::int64_t micro_batches) {
    PassLists out;
    const auto passes = static_cast<std::size_t>(chunks * micro_batches);
    out.forward.reserve(passes);
    out.backward.reserve(passes);
    // Micro-batches in groups, each through every chunk; the backward order mirrors it.
    const MicroBatchGroups groups =
        chunks > 1 ? groups_of(pp, micro_batches) : MicroBatchGroups{micro_batches, 1, 0};
    std::int64_t first = 0;
    for (std::int64_t group = 0; group < groups.count; ++group) {
        const std::int64_t end = first + groups.least + (group < groups.larger ? 1 : 0);
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
            for (std::int64_t i = first; i < end; ++i) {
                out.forward.push_back({true, chunk, i});
                out.backward.push_back({false, chunks - 1 - chunk, i});
            }
        }
        first = end;
    }
    return out;
}

std::int64_t warm_up_passes(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                            std::int64_t chunks, std::int64_t micro_batches) {
    if (kind == ScheduleKind::gpipe) return chunks * micro_batches;
    if (chunks > 1) {
        return 2 * (pp - stage - 1) + (chunks - 1) * groups_of(pp, micro_batches).largest();
    }
    return (kind == ScheduleKind::zb_h2 ? 2 : 1) * (pp - stage - 1);
}

std::vector<Pass> pass_order(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                             std::int64_t chunks, std::int64_t micro_batches) {
    std::vector<Pass> out;
    for_each_pass(pass_lists(pp, chunks, micro_batches),
                  warm_up_passes(kind, pp, stage, chunks, micro_batches),
                  [&](const Pass& pass) { out.push_back(pass); });
    return out;
}

std::int64_t representative_micro_batches(ScheduleKind kind, std::int64_t pp,
                                          std::int64_t micro_batches) {
    if (kind == ScheduleKind::gpipe || micro_batches <= 4 * pp) {
        return micro_batches;
    }
    if (kind == ScheduleKind::zb_v || kind == ScheduleKind::dual_pipe) return 4 * pp;
    const MicroBatchGroups groups = groups_of(pp, micro_batches);
    constexpr std::int64_t kept = 3; // of either size
    const std::int64_t larger = std::min(kept, groups.larger);
    const std::int64_t count = larger + std::min(kept, groups.count - groups.larger);
    return count * groups.least + larger;
}

} // namespace shardplan::sim
