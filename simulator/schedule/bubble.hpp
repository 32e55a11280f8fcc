#pragma once

#include <cstdint>
#include <vector>

#include "simulator/spec/layout.hpp"
#include "simulator/units/quantity.hpp"

namespace shardplan::sim {

/// What one stage spends on one micro-batch, all its chunks together.
struct StagePass {
    Seconds forward;
    Seconds backward_input;  ///< gradients of activations, recomputation included
    Seconds backward_weight; ///< gradients of weights

    [[nodiscard]] Seconds total() const { return forward + backward_input + backward_weight; }
    friend bool operator==(const StagePass&, const StagePass&) = default;
};

/// Neighbouring stages that spend the same.
struct StageRun {
    StagePass pass;
    std::int64_t count = 1; ///< stages

    friend bool operator==(const StageRun&, const StageRun&) = default;
};

/// Time of a pipeline pass in closed form, and what of it the slowest stage waits.
struct PipelineTime {
    Seconds total;
    Seconds bubble; ///< total less the work of the slowest stage
    std::int64_t slowest_stage = 0;

    friend bool operator==(const PipelineTime&, const PipelineTime&) = default;
};

/// T = m max_i t_i + fill and drain, where every stage but the slowest adds its share once:
/// gpipe, 1f1b: t_i (so that T = sum t_i + (m - 1) max t_i, exact for equal stages); interleaved:
/// t_i / v, and (v - 1) ((p - m) mod p) chunk times where p does not divide m; zb-h1: F + B - W;
/// zb-h2: F + B - 2 W; zb-v: half of that, two chunks per stage; dualpipe: (p / 2 - 1) (F + 2 B -
/// W) of the slowest stage. Zero-bubble schedules with fewer micro-batches than fill their bubbles
/// (p for zb-h1 and zb-v, 2 p - 1 for zb-h2, p / 2 for dualpipe) count W in proportion. Sources:
/// Huang et al. 2019 (arXiv 1811.06965), Narayanan et al. 2021 (arXiv 2104.04473), Qi et al. 2023
/// (arXiv 2401.10241) and 2024 (arXiv 2405.15362), DeepSeek-V3 (arXiv 2412.19437).
PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StageRun>& runs,
                           std::int64_t micro_batches, std::int64_t chunks);
/// The same, stage by stage.
PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks);

} // namespace shardplan::sim
