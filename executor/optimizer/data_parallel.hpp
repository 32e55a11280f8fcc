#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/layout_groups.hpp"
#include "executor/kernels/memory_count.hpp"
#include "executor/model/parameters.hpp"
#include "executor/model/segments.hpp"
#include "executor/optimizer/gather_queue.hpp"
#include "executor/optimizer/optimizer.hpp"
#include "executor/optimizer/shards.hpp"
#include "executor/optimizer/share_groups.hpp"
#include "simulator/schedule/schedule.hpp"
#include "simulator/spec/layout.hpp"

namespace shardplan::exec {

/// How the ranks that hold the same parameters share the work on them.
struct DataParallelOptions {
    sim::Layout layout;
    /// As the Schedule has it: `units` and `wrapped`, or else `buckets`, cut the portions.
    sim::DataParallelPlan plan;
    OptimizerOptions optimizer;
    /// The norm of gradients does not depend on how they are split.
    bool deterministic = false;
    std::string offload_to; ///< folder for what is offloaded to disk; empty: the current one
};

/// Elements of one state that this rank keeps: `begin` to `end` - 1 of its part of a parameter, in
/// row-major order of that part's rows and columns. Other ranks may keep the same ones.
template <class Scalar>
struct StatePart {
    Index parameter = 0; ///< number in the table
    StateKind kind = StateKind::value;
    Index begin = 0;
    Index end = 0;
    Scalar* data = nullptr; ///< of element `begin`
};

/// Hashes of what this rank holds of one parameter.
struct ReplicaHash {
    Index parameter = 0;
    std::uint64_t values = 0; ///< of what operators read; 0 where that comes and goes
    std::uint64_t states = 0; ///< of the elements this rank keeps: values and moments
};

/// What a rank keeps of the parameters it computes with, and what it does about them together with
/// the ranks that hold the same: gathers values, adds up gradients, steps the optimizer.
///
/// Portions. Parameters are gathered, reduced and split portion by portion: wrap units of the
/// Schedule, or its buckets. A portion has one segment for its dense parameters, one for experts,
/// and one for a tied table that stands on two stages.
///
/// Memory. A segment of c elements is split over n ranks into pieces of p = ceil(c / n) elements,
/// the last one filled up by zeros; r = n p. For dense parameters n is the shard group (dp x cp
/// without one), for experts the largest divisor of the ranks that hold the same experts that is no
/// larger; under zero0 n = 1. What stays between steps, with s the bytes of a Scalar, of every
/// segment:
///
///     weights          zero0-2: r, zero3: p elements of s bytes (16-bit storage: 2)
///     master weights   p elements of s bytes, with 16-bit storage only
///     gradients        zero0-1: r, zero2-3: p elements of s bytes
///     optimizer states AdamW: 2 p, SGD: p elements of s bytes
///
/// of which floor(p f / 1000) elements of each of the master weights and states, and under zero3 of
/// the weights, are kept off the device at an offloaded fraction of f thousandths. For a time come
/// r gathered weights (zero3) of a portion in use, r gradients (zero2-3) from the first backward
/// pass through it until it is reduced (both only where n > 1), and of buckets what ranks of a
/// tensor-parallel group add up of parameters they hold alike.
///
/// Every function that communicates is called by all ranks of the stage in the same order, those of
/// a step's end by all ranks of the layout. After an error of communication the object is done for.
template <class Scalar>
class DataParallel {
public:
    /// `parameters` are split now; values they have are kept. All but `options` outlive the object.
    /// Errors: buckets that reach over chunks of mirrored stages, a disk without room.
    static Result<std::unique_ptr<DataParallel>> make(
        Communicator& world, const LayoutGroups& groups, const RankShare& share,
        Kernels<Scalar>& kernels, Parameters<Scalar>& parameters, MemoryCount& count,
        const DataParallelOptions& options);
    /// Of a rank that holds the whole model.
    static std::unique_ptr<DataParallel> make(Kernels<Scalar>& kernels,
                                              Parameters<Scalar>& parameters,
                                              const OptimizerOptions& options);
    DataParallel(const DataParallel&) = delete;
    DataParallel& operator=(const DataParallel&) = delete;

    /// See `Parameters::start`.
    void start(std::uint64_t seed);

    // --- portions --------------------------------------------------------------------------------

    [[nodiscard]] Index portions() const { return static_cast<Index>(portions_.size()); }
    /// Segments are those of the Parameters.
    [[nodiscard]] const Portion& portion(Index p) const {
        return portions_[static_cast<std::size_t>(p)];
    }
    /// Of a wrap unit, as the Schedule counts them in a chunk. Bucket b is portion b.
    [[nodiscard]] Index portion_of(Index chunk, Index wrap_unit) const;

    /// Values of the portion come to be, with those of a tied table that its units read; nothing to
    /// do where they stay. What has been started is finished before another one is waited for.
    /// Every start has its release; portions in use twice are gathered once.
    Status start_gather(Index portion);
    Status finish_gather(Index portion);
    /// Started and not released: another start costs nothing.
    [[nodiscard]] bool is_gathered(Index portion);
    void release(Index portion);

    /// Adds up the gradients of a portion over the ranks of a shard: zero0 and zero1 at the end of
    /// the accumulation, zero2 and zero3 at the end of any pass; their whole gradients are dropped.
    Status reduce(Index portion);

    // --- the end of a step, in this order --------------------------------------------------------

    /// What is left to add up: portions not reduced, copies of shards, tokens of tensor-parallel
    /// ranks, the tied table, mirrored stages.
    Status finish_reduction();
    /// Norm of the gradients of the whole model, and the factor that clips them. An error on all
    /// ranks if it is not finite; nothing has changed then.
    Result<StepReport> norm();
    /// Changes the elements this rank keeps and clears the gradients.
    void update(double rate, const StepReport& report);
    /// Updated values of a portion come to all ranks (zero1, zero2). Before any pass reads them.
    Status gather_parameters(Index portion);

    /// All of these.
    Result<StepReport> step(double rate);

    [[nodiscard]] Index steps() const { return steps_; }
    void clear_gradients();

    // --- states ----------------------------------------------------------------------------------

    /// Every element this rank keeps. Places stay as they are.
    [[nodiscard]] std::vector<StatePart<Scalar>> state();
    /// Goes on after `steps` steps, once the elements of `state` have been filled.
    Status resume(Index steps);

    /// Of every parameter this rank holds something of.
    [[nodiscard]] std::vector<ReplicaHash> hashes();
    /// Errors, on every rank: the first parameter that ranks which should hold the same hold
    /// differently, and those ranks.
    Status check_replicas();

    [[nodiscard]] const MemoryCount& memory() const { return *memory_; }
    /// Communicators beside those of the layout: copies and parts of them.
    [[nodiscard]] std::vector<Communicator*> communicators();

private:
    /// Who uses a portion's gathered values.
    struct Use {
        Index count = 0;
        std::uint64_t ticket = 0; ///< of the queue
    };
    /// Gradients to be added up over tensor-parallel ranks.
    struct Alike {
        std::span<Scalar> values;
        std::size_t slots = 1; ///< sets of ranks that add up among themselves
        std::size_t slot = 0;  ///< that of this rank
    };
    DataParallel(Kernels<Scalar>& kernels, Parameters<Scalar>& parameters, MemoryCount* count,
                 DataParallelOptions options);
    Status split(std::vector<Segment> segments);
    void fill_from(const Buffer<Scalar>& values);
    [[nodiscard]] sim::Shard shard() const { return options_.layout.shard; }
    template <class F>
    void each_segment(Index p, F&& f) const;
    template <class F>
    void each_use(Index p, F&& f);
    Status gather_segment(Index s);
    Status gather(Index p);
    Status wait_for_gathers();

    [[nodiscard]] std::span<Scalar> piece_gradients(Index s);
    [[nodiscard]] bool has_new_gradients(Index p) const;
    Status reduce_segment(Index s);
    Status add_copies();
    [[nodiscard]] std::vector<Alike> alike_over_tp();
    Status add_tokens();
    Status add_stages();

    /// Of the elements of the whole model this rank speaks for this one's.
    [[nodiscard]] bool counts(Index parameter) const;
    [[nodiscard]] Index counted_of(const Stretch& stretch) const;
    [[nodiscard]] std::vector<std::span<const Scalar>> counted_gradients();
    Result<double> exact_norm();
    Result<double> plain_norm();
    /// What ranks that should hold the same hold differently; empty: nothing.
    Result<std::string> drift();

    Kernels<Scalar>* kernels_;
    Parameters<Scalar>* parameters_;
    MemoryCount own_memory_; ///< of a rank alone
    MemoryCount* memory_;
    DataParallelOptions options_;
    RankShare share_;
    ShareGroups groups_;
    std::vector<Portion> portions_;
    std::vector<Use> uses_;           ///< by portion
    std::vector<bool> reduced_;       ///< by portion, in this step: zero0, zero1
    std::vector<Index> mirror_order_; ///< segments as the mirrored stage has them too
    std::optional<Shards<Scalar>> shards_;
    Index steps_ = 0;
    std::unique_ptr<GatherQueue> queue_; ///< null: gathered where it is started
};

} // namespace shardplan::exec
