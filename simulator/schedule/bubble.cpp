#include "simulator/schedule/bubble.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

/// Share of the bubbles for which a schedule has weight gradients to fill them with, of those it
/// could fill: the last micro-batch's come too late, and `wanted` others fill them all.
double filled(std::int64_t micro_batches, std::int64_t wanted) {
    return wanted > 0
               ? std::min(1.0, static_cast<double>(micro_batches - 1) / static_cast<double>(wanted))
               : 1.0;
}

/// What a stage that is not the slowest adds to the fill and drain of the pipeline.
double share_of(ScheduleKind schedule, const StagePass& s, double chunks, std::int64_t others,
                std::int64_t micro_batches) {
    const double f = s.forward.value();
    const double b = s.backward_input.value();
    const double w = s.backward_weight.value() *
                     filled(micro_batches, schedule == ScheduleKind::zb_h2 ? 2 * others : others);
    switch (schedule) {
        case ScheduleKind::gpipe:
        case ScheduleKind::one_f_one_b:
            return s.total().value();
        case ScheduleKind::interleaved:
            return s.total().value() / chunks;
        case ScheduleKind::zb_h1:
            return std::max(0.0, f + b - w);
        case ScheduleKind::zb_h2:
            return std::max(0.0, f + b - 2.0 * w);
        case ScheduleKind::zb_v:
            return std::max(0.0, f + b - 2.0 * w) / 2.0;
        case ScheduleKind::dual_pipe:
            return 0.0;
    }
    return s.total().value();
}

/// Waiting that depends on the whole pipeline and is not a sum over stages.
double common_share(ScheduleKind schedule, const StagePass& slowest, std::int64_t stages,
                    std::int64_t micro_batches, std::int64_t chunks) {
    const auto p = static_cast<double>(stages);
    if (schedule == ScheduleKind::interleaved) {
        const std::int64_t left = micro_batches % stages;
        if (left == 0) return 0.0;
        const double chunk = slowest.total().value() / static_cast<double>(chunks);
        return static_cast<double>(chunks - 1) * static_cast<double>(stages - left) * chunk;
    }
    if (schedule == ScheduleKind::dual_pipe) {
        const double f = slowest.forward.value();
        const double b = slowest.backward_input.value();
        const double w = slowest.backward_weight.value() * filled(micro_batches, stages / 2 - 1);
        return std::max(0.0, p / 2.0 - 1.0) * std::max(0.0, f + 2.0 * b - w);
    }
    return 0.0;
}

} // namespace

PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StageRun>& runs,
                           std::int64_t micro_batches, std::int64_t chunks) {
    PipelineTime out;
    if (runs.empty()) return out;
    std::size_t slowest = 0;
    std::int64_t p = 0; // stages
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].pass.total() > runs[slowest].pass.total()) {
            slowest = i;
            out.slowest_stage = p;
        }
        p += runs[i].count;
    }
    double bubble = 0.0;
    const auto v = static_cast<double>(std::max<std::int64_t>(1, chunks));
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const double share = share_of(schedule, runs[i].pass, v, p - 1, micro_batches);
        // one by one: the same sum however stages are put into runs
        for (std::int64_t n = i == slowest ? 1 : 0; n < runs[i].count; ++n)
            bubble += share;
    }
    if (p > 1) {
        bubble += common_share(schedule, runs[slowest].pass, p, micro_batches,
                               std::max<std::int64_t>(1, chunks));
    }
    out.bubble = Seconds(bubble);
    out.total = static_cast<double>(micro_batches) * runs[slowest].pass.total() + out.bubble;
    return out;
}

PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks) {
    std::vector<StageRun> runs;
    runs.reserve(stages.size());
    for (const StagePass& stage : stages)
        runs.push_back({stage, 1});
    return pipeline_time(schedule, runs, micro_batches, chunks);
}

} // namespace shardplan::sim
