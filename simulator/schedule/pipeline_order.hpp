#pragma once

#include <cstdint>
#include <vector>

#include "simulator/spec/layout.hpp"

namespace shardplan::sim {

/// What a stage does with one micro-batch at a time.
enum class PassKind : std::uint8_t {
    forward,
    backward, ///< gradients of activations, and of weights where they are not split off
    weight,   ///< gradients of weights alone
};

/// One pass of a micro-batch through one chunk of a stage.
struct ScheduledPass {
    PassKind kind = PassKind::forward;
    std::int32_t chunk = 0;
    std::int32_t micro_batch = 0;

    friend bool operator==(const ScheduledPass&, const ScheduledPass&) = default;
};

/// Where a chunk lies on the way of a micro-batch.
struct Position {
    std::int32_t stage = 0;
    std::int32_t chunk = 0;
    friend bool operator==(const Position&, const Position&) = default;
};

/// The pipeline that a schedule orders.
struct PipelineShape {
    ScheduleKind kind = ScheduleKind::one_f_one_b;
    std::int32_t stages = 1;
    std::int32_t chunks = 1; ///< of every stage
    std::int32_t micro_batches = 1;

    friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

/// How long passes are, in any unit; only their ratios count. At least 1.
struct PassLengths {
    std::int32_t forward = 1;
    std::int32_t backward = 1;
    std::int32_t weight = 1;

    [[nodiscard]] std::int32_t of(PassKind kind) const {
        return kind == PassKind::forward ? forward : kind == PassKind::backward ? backward : weight;
    }
    friend bool operator==(const PassLengths&, const PassLengths&) = default;
};

/// The ratios of passes, in 32nds of the longest kind.
PassLengths lengths_of(double forward, double backward, double weight);

/// Weight gradients are passes of their own: zb-h1, zb-h2, zb-v, dualpipe.
bool splits_backward(ScheduleKind kind);

/// The positions a micro-batch visits, first to last. Chunk after chunk through all stages; under
/// zb-v odd chunks run back; under dualpipe with two chunks the first half of the micro-batches
/// runs through chunk 0 upwards and the others through chunk 1 downwards, one visit per stage.
std::vector<Position> way_of(const PipelineShape& shape, std::int32_t micro_batch);

/// Boundary tensors that each stage hands to another in one step: activations on the way,
/// gradients back. By stage.
std::vector<std::int64_t> messages_sent(const PipelineShape& shape);

/// How often a micro-batch visits a stage.
std::int32_t visits_of(ScheduleKind kind, std::int32_t chunks);
/// How many positions that is.
std::size_t way_length(const PipelineShape& shape);
/// The index of a position on the way of the micro-batches that come there.
std::size_t step_on_way(const PipelineShape& shape, const Position& at);

/// The passes of every stage in the order they start. GPipe, 1F1B and interleaved 1F1B are those of
/// `pass_order`; so are zb-h1 and zb-h2, where the weight pass of micro-batch j follows the
/// backward pass of j + i on stage i (zb-h2: j + 2 i), and what is left of them comes last. zb-v
/// and dualpipe are as the software has them, which writes them down for two chunks per stage,
/// dualpipe for pairs of stages and at least as many pairs of micro-batches as stages. What is not
/// written down a greedy list scheduler finds with passes of the given lengths: backward before
/// forward before weight passes, with the live sets that the schedules allow (zb-v: p micro-batches
/// on the stage; dualpipe: p - i of one direction and i + 1 of the other between F and B). No order
/// so found can wait for itself. Sources: Qi et al. 2023 (arXiv 2401.10241) and 2024 (arXiv
/// 2405.15362), DeepSeek-V3 (arXiv 2412.19437), Narayanan et al. 2021 (arXiv 2104.04473);
/// ScheduleZBVZeroBubble of torch.distributed.pipelining, deepseek-ai/DualPipe.
std::vector<std::vector<ScheduledPass>> pipeline_order(const PipelineShape& shape,
                                                       const PassLengths& lengths = {});

/// Is that order found by list scheduling, and not written down?
bool order_is_found(const PipelineShape& shape);

} // namespace shardplan::sim
