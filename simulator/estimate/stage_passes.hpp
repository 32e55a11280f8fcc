#pragma once

#include <cstdint>
#include <vector>

#include "simulator/estimate/step_parts.hpp"
#include "simulator/estimate/unit_time.hpp"
#include "simulator/schedule/pipeline_passes.hpp"

/// Private to estimate: what the units of a stage take in one micro-batch.
namespace shardplan::sim {

/// The passes of a stage for one micro-batch, which how parameters are sharded does not concern.
struct StagePasses {
    PassTime forward;
    PassTime backward;
    double backward_weight = 0.0;
    PassTime recompute;
    std::vector<ChunkPass> chunks; ///< where there are several: units alone
    ChunkPass all_chunks;          ///< their sum
    GroupTraffic ep;               ///< of both passes
    double message = 0.0;          ///< seconds of one direction, all chunks
    Hiding message_forward;        ///< activations
    Hiding message_backward;
    HidingBudget under_forward; ///< what messages leave
    HidingBudget under_backward;
};
/// Passes of all stages, by run.
using RunPasses = std::vector<StagePasses>;

/// What one unit takes in all.
struct UnitTotals {
    double forward = 0.0;
    double backward = 0.0;
    double weight = 0.0; ///< of `backward`
    double again = 0.0;  ///< recomputation, for each that is
};

/// A boundary tensor, as one rank sends it to a neighbouring stage.
double message_bytes(const StepContext& c, const Layout& layout);
/// Recomputation of the units in one micro-batch.
PassTime recompute_of(const UnitUse& use, const UnitTime& unit, Recompute kind);

/// By run, those of equal shapes at the first of them. `made`: overwritten, its memory is used
/// again, as is that of `totals`.
void set_run_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                    const std::vector<ShapeRun>& runs, Recompute recompute,
                    std::vector<UnitTotals>& totals, RunPasses& made);

/// Appends the chunks of a stage, which share evenly in what its units do not say. `pass`: of the
/// whole stage; `visits`: of a micro-batch to it.
void add_chunk_passes(const StagePasses& own, const StagePass& pass, double visits,
                      std::vector<ChunkPass>& chunks);

/// Ratios of the passes of the stage with the most to do, units alone.
PassLengths pass_lengths(const std::vector<ShapeRun>& runs, const RunPasses& own);

} // namespace shardplan::sim
