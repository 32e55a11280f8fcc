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
    double slowed_forward = 0.0;  ///< seconds that gathering delays exchanges, once per step
    double slowed_backward = 0.0; ///< the same of one reduction
};
/// Links that a rank's data parallelism shares with the exchanges of experts.
struct SharedLinks {
    double reduce = 1.0;   ///< share of them that reducing takes alone
    double gather = 1.0;   ///< the same of gathering
    double capacity = 0.0; ///< bytes/s
    bool ep = false;       ///< exchanges cross the same tier
};
/// What data parallelism moves on a rank of one stage, whatever the micro-batch.
struct DataParallelMoves {
    bool by_unit = false;   ///< gathered and reduced unit by unit for every micro-batch
    bool after = false;     ///< reduced and gathered in one piece after the backward pass
    GroupTraffic gather;    ///< of parameters, all units or buckets; none of its own if `after`
    GroupTraffic reduce;    ///< of gradients, the same; if `after`, with what is gathered
    GroupTraffic replicate; ///< pieces of a hybrid sharding, once per step
    GroupTraffic tied;      ///< what other stages hold as well, once per step
    /// Shares of `gather` that are there already where the passes of a stage turn round: forward to
    /// backward, backward to forward.
    double kept_backward = 0.0, kept_forward = 0.0;
    bool last = false;          ///< the stage has the head
    double unpack = 0.0;        ///< seconds in which gathered parameters are copied
    double pack_gradient = 0.0; ///< the same for gradients on their way out
    double buckets = 0.0;       ///< seconds in which gradients go into buckets and back, per step
    double slices = 0.0;        ///< seconds in which the host puts gathered slices in their places
    double ready = 1.0;         ///< see DataParallelTime::hideable
    SharedLinks links;
};
/// Sources: Rajbhandari et al. 2020 (arXiv 1910.02054) for what each kind of sharding moves; Zhao
/// et al. 2023 (arXiv 2304.11277) for gathering unit by unit.
DataParallelMoves data_parallel_moves(const StepContext& c, const Layout& layout,
                                      const LayoutParts& parts, const StageShape& shape);
/// `forward`, `backward`: what the stage's passes can still hide.
DataParallelTime data_parallel_time(const StepContext& c, const Layout& layout,
                                    const DataParallelMoves& moves, std::int64_t micro_batches,
                                    HidingBudget& forward, HidingBudget& backward);

/// Exchanges of experts in a pass, beside which data parallelism goes on. Those of tensor and
/// context parallelism are short, and whatever reduction gets done between them is not counted.
/// `ep`: traffic of both passes.
Exchanges exchanges_of(const PassTime& pass, const PassTime& recompute, const GroupTraffic& ep,
                       const SharedLinks& links);

/// Hides what happens once per step under the last backward pass and the first forward pass, and
/// beside what those wait for, and adds it to `dp.step`. `forward`, `backward`: what those passes
/// have left, and what they wait for copies to the host.
void hide_step(const StepContext& c, const SharedLinks& links, const HidingBudget& forward,
               const HidingBudget& backward, const Exchanges& in_forward,
               const Exchanges& in_backward, DataParallelTime& dp);

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
/// What of it no micro-batch changes.
struct OffloadFixed {
    double step = 0.0;       ///< as in OffloadTime
    double parameters = 0.0; ///< bytes copied in for every pass
    double rate = 0.0;       ///< bytes/s; 0: nothing is offloaded
    double lost = 0.0;       ///< seconds of a pass per second of copying beside it
};
OffloadFixed offload_fixed(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                           const StageShape& shape);
OffloadTime offload_time(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape, const OffloadFixed& fixed, double forward,
                         double backward);

/// Parameters on one rank of a stage.
RankParameters parameters_of(const LayoutParts& parts, const StageShape& shape);

} // namespace shardplan::sim
