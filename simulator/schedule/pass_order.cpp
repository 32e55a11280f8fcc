#include "simulator/schedule/pass_order.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

/// Forward passes before the first backward one, then one of each in turn, then what is left.
std::vector<Pass> one_forward_one_backward(const std::vector<Pass>& forward,
                                           const std::vector<Pass>& backward,
                                           std::int64_t warm_up) {
    const auto total = static_cast<std::int64_t>(forward.size());
    const std::int64_t w = std::min(warm_up, total);
    std::vector<Pass> out(forward.begin(), forward.begin() + w);
    out.reserve(static_cast<std::size_t>(2 * total));
    for (std::int64_t i = 0; i < total - w; ++i) {
        out.push_back(forward[static_cast<std::size_t>(w + i)]);
        out.push_back(backward[static_cast<std::size_t>(i)]);
    }
    out.insert(out.end(), backward.begin() + (total - w), backward.end());
    return out;
}

/// Micro-batches in groups of pp, each group through every chunk; the backward order mirrors it.
void interleaved_passes(std::int64_t pp, std::int64_t chunks, std::int64_t micro_batches,
                        std::vector<Pass>& forward, std::vector<Pass>& backward) {
    for (std::int64_t group = 0; group < micro_batches; group += pp) {
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
            for (std::int64_t i = group; i < std::min(group + pp, micro_batches); ++i) {
                forward.push_back({true, chunk, i});
                backward.push_back({false, chunks - 1 - chunk, i});
            }
        }
    }
}

} // namespace

std::vector<Pass> pass_order(ScheduleKind kind, std::int64_t pp, std::int64_t stage,
                             std::int64_t chunks, std::int64_t micro_batches) {
    std::vector<Pass> forward;
    std::vector<Pass> backward;
    if (chunks > 1) {
        interleaved_passes(pp, chunks, micro_batches, forward, backward);
        std::int64_t warm_up = 2 * (pp - stage - 1) + (chunks - 1) * pp;
        if (kind == ScheduleKind::gpipe) {
            warm_up = chunks * micro_batches;
        } else if (kind == ScheduleKind::zb_v || kind == ScheduleKind::dual_pipe) {
            // Chunk 1 of a stage runs right after chunk 0 has come back: about pp chunk pairs live,
            // the same on every stage.
            warm_up = 2 * pp - 1;
        }
        return one_forward_one_backward(forward, backward, warm_up);
    }
    for (std::int64_t i = 0; i < micro_batches; ++i) {
        forward.push_back({true, 0, i});
        backward.push_back({false, 0, i});
    }
    std::int64_t warm_up = pp - stage - 1;
    if (kind == ScheduleKind::gpipe) {
        warm_up = micro_batches;
    } else if (kind == ScheduleKind::zb_h2) {
        warm_up = 2 * (pp - stage - 1);
    }
    return one_forward_one_backward(forward, backward, warm_up);
}

std::int64_t representative_micro_batches(ScheduleKind kind, std::int64_t pp,
                                          std::int64_t micro_batches) {
    if (kind == ScheduleKind::gpipe || micro_batches <= 4 * pp) {
        return micro_batches;
    }
    return 3 * pp + micro_batches % pp;
}

} // namespace shardplan::sim
