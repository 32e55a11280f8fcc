#pragma once

#include <string>
#include <vector>

#include "simulator/engine/timeline.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::sim {

struct SimulateOptions {
    /// One task per exchange inside a unit, or one per unit.
    bool exchanges = true;
    bool spans = true; ///< false: figures only, the timeline is left empty
    std::int64_t most_events = 1'000'000'000;
    /// Spread of a rank's speed over a step, relative; 0: all ranks are equally fast.
    double straggler_sigma = 0.0;
    std::uint64_t seed = 0;
    /// Every rank on its own instead of one per class. For clusters of few ranks.
    bool every_rank = false;
};

/// What the stream of compute of a stage does with a step.
struct StageActivity {
    std::int32_t stage = 0;
    Seconds busy;             ///< passes, optimizer, copies
    Seconds slowed;           ///< of `busy`: what communication beside it takes
    SecondsByKind exposed;    ///< waiting, by what is waited for; `bubble`: another stage's passes
    double utilisation = 0.0; ///< busy without slowed, over the step

    friend bool operator==(const StageActivity&, const StageActivity&) = default;
};

/// The largest live set of a class.
struct MemoryPeak {
    std::int32_t stage = 0;
    std::int64_t node_group = 0;
    Bytes allocated;
    BytesByKind kinds; ///< adds up to `allocated`
    Phase phase = Phase::forward;
    std::int64_t at = 0; ///< ns
    std::string during;  ///< "backward of chunk 0, micro-batch 3, on stage 2"

    friend bool operator==(const MemoryPeak&, const MemoryPeak&) = default;
};

/// What of the critical path, the tasks that the end of the step waits for one after another, lies
/// on a stage and is of a kind.
struct CriticalShare {
    std::int32_t stage = 0;
    TaskKind task = TaskKind::forward;
    StreamKind stream = StreamKind::compute;
    TimeKind kind = TimeKind::gemm; ///< gemm: all of compute but the optimizer
    Seconds seconds;

    friend bool operator==(const CriticalShare&, const CriticalShare&) = default;
};

/// A step played by the engine.
struct Simulation {
    Seconds step;            ///< between two steps, overhead outside the model included
    Seconds overhead;        ///< of `step`
    std::int64_t events = 0; ///< of the engine
    std::int64_t tasks = 0;
    std::size_t largest_queue = 0;
    std::vector<StageActivity> stages;
    std::vector<MemoryPeak> peaks;       ///< by class of the placement
    std::vector<CriticalShare> critical; ///< by stage, task, stream; adds up to step less
                                         ///< overhead unless stages step one after another
    Schedule schedule;                   ///< that was played; spans name its tasks
    Timeline timeline;

    friend bool operator==(const Simulation&, const Simulation&) = default;
};

/// Plays one step of a legal layout with the evaluator's own costs: units, exchanges and
/// messages, pipeline order, gradients and parameters, memory over time.
/// Errors: what check of the schedule or the engine finds; more events than allowed.
Result<Simulation> simulate(const Evaluator& evaluator, const Layout& layout,
                            const SimulateOptions& options = {});

} // namespace shardplan::sim
