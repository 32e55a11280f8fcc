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

/// What one chunk of a stage spends on one micro-batch.
struct ChunkPass {
    Seconds forward;
    Seconds backward; ///< weight gradients included

    friend bool operator==(const ChunkPass&, const ChunkPass&) = default;
};

/// What all stages spend.
struct PipelinePasses {
    std::vector<StageRun> runs;
    /// By run, then chunk; adds up to the pass of the run. Empty: chunks of a stage spend the same.
    std::vector<ChunkPass> chunks;
    /// What a message takes on its way to a neighbouring stage while both go on with other passes.
    /// Counted where a stage waits for the first and the last micro-batch, not in between.
    Seconds hop;
};

/// Memory reused between calls.
struct PipelineRoom {
    std::vector<double> warm_up;
    std::vector<double> drain;
};

/// Time of a pipeline pass in closed form, and what of it the slowest stage waits.
struct PipelineTime {
    Seconds total;
    Seconds bubble; ///< total less the work of the slowest stage
    std::int64_t slowest_stage = 0;

    friend bool operator==(const PipelineTime&, const PipelineTime&) = default;
};

/// The longest of the paths that decide, which is exact for equal stages and all but exact for
/// uneven ones. With t = F + B, p stages and m micro-batches:
/// gpipe: all F and all B once, and m - 1 times the longest of each.
/// 1f1b: the largest over stages s of sum_{i<s} t_i + m t_s + max(0, S - k F_s) +
/// max(0, S - k B_s), where S = sum_{i>s} t_i is how long a micro-batch is away behind s and
/// k = min(p - 1 - s, m - 1) passes of s lie in between; the larger of the two waits alone where
/// all forward passes come before the first backward one (m - 1 <= p - 1 - s).
/// interleaved: the same chunk by chunk, with warm-up and drain that go round v - 1 times, each
/// round either with a micro-batch through all stages or through the passes of a group
/// (`groups_of`) on one of them. zb-h1: as 1f1b, the drain filled with weight passes as the order
/// has them. The others add to m max_i t_i for every stage but the slowest - zb-h2: F + B - 2 W;
/// zb-v: half of that, two chunks per stage - and dualpipe (p / 2 - 1) (F + 2 B - W) of the slowest
/// stage, with W in proportion where fewer micro-batches than fill the bubbles (p for zb-v, 2 p - 1
/// for zb-h2, p / 2 for dualpipe) run. None is shorter where a pass or hop of gpipe, 1f1b,
/// interleaved or zb-h1 is longer. Sources: Huang et al. 2019 (arXiv 1811.06965), Narayanan et al.
/// 2021 (arXiv 2104.04473), Qi et al. 2023 (arXiv 2401.10241) and 2024 (arXiv 2405.15362),
/// DeepSeek-V3 (arXiv 2412.19437); the terms for uneven stages: longest paths through the orders,
/// checked against the engine.
PipelineTime pipeline_time(ScheduleKind schedule, const PipelinePasses& passes,
                           std::int64_t micro_batches, std::int64_t chunks, PipelineRoom& room);
/// The same, stage by stage.
PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks);

} // namespace shardplan::sim
