#pragma once

#include <cstdint>
#include <vector>

#include "simulator/schedule/pipeline_passes.hpp"
#include "simulator/schedule/pipeline_path.hpp"

namespace shardplan::sim {

/// Memory reused between calls.
struct PipelineRoom {
    std::vector<double> warm_up;
    std::vector<double> drain;
    PlayedPaths played;
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
/// all forward passes come before the first backward one (m - 1 <= p - 1 - s). In between a
/// micro-batch may be away for longer than those after it cover, S > k t_s, once in every k + 1.
/// interleaved: the same chunk by chunk, with warm-up and drain that go round v - 1 times, each
/// round either with a micro-batch through all stages or through the passes of a group
/// (`groups_of`) on one of them, and with every group a path that stays on the last stage while
/// that works on its last chunk, where this is longer. zb-h1: as 1f1b, the drain filled with weight
/// passes as the order has them. None of these is shorter where a pass or hop is longer, but for
/// zb-h1. zb-h1 with fewer micro-batches than stages, zb-h2, zb-v and dualpipe: `PlayedPaths`.
/// Sources: Huang et al. 2019 (arXiv 1811.06965), Narayanan et al. 2021 (arXiv 2104.04473), Qi et
/// al. 2023 (arXiv 2401.10241) and 2024 (arXiv 2405.15362), DeepSeek-V3 (arXiv 2412.19437); the
/// terms for uneven stages: longest paths through the orders, checked against the engine.
PipelineTime pipeline_time(ScheduleKind schedule, const PipelinePasses& passes,
                           std::int64_t micro_batches, std::int64_t chunks, PipelineRoom& room);
/// The same, stage by stage.
PipelineTime pipeline_time(ScheduleKind schedule, const std::vector<StagePass>& stages,
                           std::int64_t micro_batches, std::int64_t chunks);

} // namespace shardplan::sim
