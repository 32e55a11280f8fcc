#include "simulator/schedule/pass_order.hpp"

#include <algorithm>

namespace shardplan::sim {

PassLists pass_lists(std::int64_t pp, std::int64_t chunks, std::int64_t micro_batches) {
    PassLists out;
    const auto passes = static_cast<std::size_t>(chunks * micro_batches);
    out.forward.reserve(passes);
    out.backward.reserve(passes);
    // with one chunk there are no groups
    const std::int64_t size = chunks > 1 ? pp : micro_batches;
    // Micro-batches in groups, each through every chunk; the backward order mirrors it.
    for (std::int64_t group = 0; group < micro_batches; group += size) {
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
            for (std::int64_t i = group; i < std::min(group + size, micro_batches); ++i) {
                out.forward.push_back({true, chunk, i});
                out.backward.push_back({false, chunks - 1 - chunk, i});
            }
        }
    }
    return out;
}

std::int64_t warm_up_passes(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                            std::int64_t chunks, std::int64_t micro_batches) {
    if (kind == ScheduleKind::gpipe) return chunks * micro_batches;
    if (chunks > 1) {
        // ZB-V and DualPipe: chunk 1 of a stage runs right after chunk 0 has come back: about pp
        // chunk pairs live, the same on every stage.
        const bool folds = kind == ScheduleKind::zb_v || kind == ScheduleKind::dual_pipe;
        return folds ? 2 * pp - 1 : 2 * (pp - stage - 1) + (chunks - 1) * pp;
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
    return 3 * pp + micro_batches % pp;
}

} // namespace shardplan::sim
