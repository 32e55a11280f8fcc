#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/comm/communicator.hpp"
#include "executor/kernels/tensor.hpp"
#include "executor/optimizer/optimizer.hpp"
#include "executor/run/token_source.hpp"
#include "simulator/estimate/kinds.hpp"
#include "simulator/schedule/schedule.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/model.hpp"

namespace shardplan::exec {

/// What is computed in, and what weights and activations are kept in between.
enum class Arithmetic : std::uint8_t {
    fp32,
    bf16, ///< weights and activations kept in 16 bits; sums, master weights and states in fp32
    fp64, ///< for tests
};

/// What all ranks train, and how.
struct TrainingPlan {
    sim::ModelSpec model;
    sim::Layout layout;
    sim::LayoutTables tables; ///< what ids in the layout stand for
    Index sequence = 0;       ///< tokens of a sample
    Index global_batch = 1;   ///< samples of a step over all ranks: a multiple of dp x micro_batch
    Arithmetic arithmetic = Arithmetic::fp32;
    OptimizerOptions optimizer;
    RateSchedule rate;
    double balance = 0.01; ///< factor of the experts' load-balance loss
    std::uint64_t seed = 1;
    CollectiveChoice collectives = {.library = false};
    /// Adds in the order of ranks: the same bits whatever the back end; slower.
    bool deterministic = false;
    int threads = 0;          ///< of this rank's operators; 0: as many as the machine has cores
    std::string offload_to;   ///< folder for states offloaded to disk; empty: the current one
    sim::PassLengths lengths; ///< by which zb-v and dualpipe find the order of passes
};

/// What one step came to; alike on all ranks.
struct TrainStep {
    Index step = 0;       ///< counted from 1
    double loss = 0.0;    ///< mean cross entropy per token, natural units
    double balance = 0.0; ///< mean load-balance loss of the micro-batches, before its factor
    double gradient_norm = 0.0;
    double rate = 0.0;
    Index tokens = 0;
};

/// A stretch of one rank's time, as it happens. Seconds since the call of `set_spans`.
struct RunSpan {
    sim::TaskKind kind = sim::TaskKind::forward;
    sim::StreamKind stream = sim::StreamKind::compute;
    std::int64_t task = -1; ///< number in `schedule()`; -1: inside of one, as an exchange
    Index chunk = 0;
    Index unit = 0;
    std::int64_t micro_batch = -1; ///< -1: once per step
    double begin = 0.0;
    double end = 0.0;
    std::int64_t bytes = 0; ///< sent by this rank, of communication; a receive's: received
    std::string_view group; ///< "tp": the communicator, of communication
    /// Bytes the rank holds, of tasks: the most meanwhile, and in the end; -1: not told.
    std::int64_t most_held = -1;
    std::int64_t held = -1;
};
using SpanSink = std::function<void(const RunSpan&)>;

/// Bytes a rank holds.
struct RankMemory {
    std::array<std::int64_t, sim::tensor_kind_count> now{};  ///< by TensorKind, on the device
    std::array<std::int64_t, sim::tensor_kind_count> peak{}; ///< at the instant of the largest sum
    sim::Phase peak_phase = sim::Phase::forward;
    /// By Phase, then TensorKind: at the instant of the largest sum within the phase.
    std::array<std::array<std::int64_t, sim::tensor_kind_count>, sim::phase_count> phases{};
    std::int64_t host = 0; ///< offloaded to host memory
    std::int64_t disk = 0; ///< offloaded to disk
};

/// One rank's part in a training run under a layout. Every rank calls the same functions in the
/// same order. Errors of communication name rank, operation and peer; after one the trainer is done
/// for.
class Trainer {
public:
    /// Errors: what the model, the layout or the batch cannot be trained with, by field.
    /// `world` outlives the trainer.
    static Result<std::unique_ptr<Trainer>> make(Communicator& world, const TrainingPlan& plan,
                                                 TokenSource data);
    virtual ~Trainer() = default;
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    virtual Result<TrainStep> step() = 0;

    /// The tasks of a step, of all stages.
    [[nodiscard]] virtual const sim::Schedule& schedule() const = 0;
    /// Called for every task and every exchange of this rank from now on; empty: nothing is
    /// measured. Exchanges that block are spans of their own inside the task that waits for them;
    /// that of a receive is the time waited. Several threads of a rank call it, never two at once.
    virtual void set_spans(SpanSink sink) = 0;
    [[nodiscard]] virtual RankMemory memory() const = 0;
    /// What a checkpoint saves of this rank: parameters and states of the optimizer. Boxes stay
    /// where they are for the trainer's life.
    [[nodiscard]] virtual std::vector<TensorPart> state() = 0;
    /// Samples of the data that all ranks together have trained on.
    [[nodiscard]] virtual Index samples_read() const = 0;
    /// Goes on after `step` steps, once the boxes of `state` have been filled.
    virtual Status resume(Index step, Index samples_read) = 0;
    /// Errors, on every rank: the first parameter whose copies differ between ranks that should
    /// hold the same, and those ranks. Every rank calls it.
    virtual Status check_replicas() = 0;
    /// Bytes this rank has sent by group since the trainer was made.
    [[nodiscard]] virtual std::array<std::int64_t, sim::group_count> sent() const = 0;

protected:
    Trainer() = default;
};

} // namespace shardplan::exec
