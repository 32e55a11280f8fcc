#pragma once

#include <cstdint>
#include <vector>

#include "simulator/schedule/pipeline_order.hpp"
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

/// What one chunk of a stage spends on one micro-batch that comes there.
struct ChunkPass {
    Seconds forward;
    Seconds backward; ///< weight gradients included
    Seconds weight;   ///< of `backward`: weight gradients

    friend bool operator==(const ChunkPass&, const ChunkPass&) = default;
};

/// What all stages spend.
struct PipelinePasses {
    std::vector<StageRun> runs;
    /// By run, then chunk. Those of a run add up to its pass, under dualpipe with two chunks to
    /// twice its pass, for half of the micro-batches come to each. Empty: chunks of a stage spend
    /// the same.
    std::vector<ChunkPass> chunks;
    /// What a message takes on its way to a neighbouring stage while both go on with other passes.
    /// The closed forms of zb-h1 and interleaving count it where a stage waits for the first and
    /// the last micro-batch, not in between.
    Seconds hop;
    /// By which passes are ordered, where the order is found.
    PassLengths lengths;
};

} // namespace shardplan::sim
