#pragma once

#include "simulator/estimate/step_time.hpp"

/// Private to estimate: what data parallelism, the optimizer and offloading add to a step.
namespace shardplan::sim {

/// Gradient reduction and parameter gathering of one stage.
struct DataParallelTime {
    Hiding forward;          ///< per micro-batch, in the forward pass
    Hiding backward;         ///< per micro-batch, in the backward pass
    Hiding step;             ///< once per step
    double reduce = 0.0;     ///< seconds of one reduction of whole gradients, see hide_step
    double reductions = 0.0; ///< per step
    /// Of `reduce`: gradients of the token table are final only as the backward pass ends.
    double hideable = 1.0;
    double gather = 0.0;  ///< seconds in which updated parameters are gathered, once per step
    GroupTraffic traffic; ///< per step
};
/// `forward`, `backward`: what the stage's passes can still hide.
/// Sources: Rajbhandari et al. 2020 (arXiv 1910.02054) for what each kind of sharding moves; Zhao
/// et al. 2023 (arXiv 2304.11277) for gathering unit by unit.
DataParallelTime data_parallel_time(const StepContext& c, const Layout& layout,
                                    const LayoutParts& parts, const StageShape& shape,
                                    std::int64_t micro_batches, HidingBudget& forward,
                                    HidingBudget& backward);

/// Hides what happens once per step under the last backward pass and the first forward pass, and
/// adds it to `dp.step`. `forward`, `backward`: what those passes have left, and what they wait for
/// copies to the host.
void hide_step(const StepContext& c, HidingBudget& forward, HidingBudget& backward,
               DataParallelTime& dp);

/// Memory passes of the optimizer over gradients and states on one rank, seconds per step.
double optimizer_seconds(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape);

/// Moving offloaded states and activations over the host's links. Copy engines run beside kernels
/// and beside NCCL, so a pass of `forward` or `backward` seconds, waiting included, covers them;
/// but what they move is read from or written to the device's memory, which kernels wait for.
struct OffloadTime {
    Hiding forward;    ///< per micro-batch
    Hiding backward;   ///< per micro-batch
    double step = 0.0; ///< per step: gradients down, update on the host, parameters up
};
OffloadTime offload_time(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape, double forward, double backward);

/// Parameters on one rank of a stage.
RankParameters parameters_of(const LayoutParts& parts, const StageShape& shape);

} // namespace shardplan::sim
