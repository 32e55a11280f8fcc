#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/schedule/pipeline_order.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// What a task does.
enum class TaskKind : std::uint8_t {
    forward,
    backward,
    weight, ///< gradients of weights, split off from the backward pass
    loss,
    exchange, ///< communication inside a unit: tensor, context or expert parallel
    send,     ///< of a boundary tensor to the stage that runs next
    receive,
    gather,  ///< unsharded parameters of a wrap unit come to be
    release, ///< and are dropped
    reduce_gradient,
    gather_parameter, ///< updated parameters of a bucket
    optimizer,
    offload_out,
    offload_in,
    save,
};
inline constexpr std::size_t task_kind_count = 15;
template <>
struct EnumNames<TaskKind> {
    static constexpr std::array<std::string_view, task_kind_count> names = {"forward",
                                                                            "backward",
                                                                            "weight",
                                                                            "loss",
                                                                            "exchange",
                                                                            "send",
                                                                            "receive",
                                                                            "gather",
                                                                            "release",
                                                                            "reduce_gradient",
                                                                            "gather_parameter",
                                                                            "optimizer",
                                                                            "offload_out",
                                                                            "offload_in",
                                                                            "save"};
};

/// Queues of one rank. Tasks of a stream run one after another in the order of the Schedule; tasks
/// of different streams run side by side.
enum class StreamKind : std::uint8_t {
    compute,
    tp,
    cp,
    ep,
    send,
    receive,
    gather, ///< parameters of sharded data parallelism
    reduce, ///< gradients
    copy_out,
    copy_in,
};
inline constexpr std::size_t stream_kind_count = 10;
template <>
struct EnumNames<StreamKind> {
    static constexpr std::array<std::string_view, stream_kind_count> names = {
        "compute", "tp", "cp", "ep", "send", "receive", "gather", "reduce", "copy out", "copy in"};
};

/// `unit` of the reduction over replicas.
inline constexpr std::uint16_t replica_bucket = 0xFFFFU;
/// Micro-batch of tasks that run once per step.
inline constexpr std::uint32_t no_micro_batch = 0xFFFFFFFFU;

/// What is done, on what, in which order; no times. One rank stands for all ranks of its stage.
/// Structure of arrays over tasks; ids are indices. Tasks of one stage and one stream start in the
/// order of their ids.
struct Schedule {
    PipelineShape shape;
    std::vector<TaskKind> kind;
    std::vector<StreamKind> stream;
    std::vector<std::uint16_t> stage;
    std::vector<std::uint16_t> chunk;
    /// Position on the chunk's list of units; of gathers and releases the wrap unit, of reductions
    /// and gathered parameters the bucket; of offloading, 1 where it moves states, not activations.
    std::vector<std::uint16_t> unit;
    /// Compute: which part of the unit's pass. Exchange: 2 x number + 1 where it runs under
    /// compute. Other communication: 1 where it runs under compute.
    std::vector<std::uint16_t> part;
    std::vector<PassKind> pass;                  ///< that it belongs to
    std::vector<std::uint32_t> micro_batch;      ///< no_micro_batch: once per step
    std::vector<std::uint32_t> first_dependency; ///< by task, and one past the last
    std::vector<std::uint32_t> dependencies;     ///< tasks that end before it starts

    [[nodiscard]] std::size_t size() const { return kind.size(); }
    friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// What one unit does in a pass, in order: a part of its compute, then an exchange on the given
/// stream, and so on; one more part of compute than exchanges. An exchange may have a share that
/// runs piece by piece under a part of compute: the next one, which takes in what has arrived, or
/// the one before, whose results go out as they come.
struct UnitSteps {
    enum class Under : std::uint8_t { none, next, previous };
    struct Exchange {
        StreamKind stream = StreamKind::tp;
        bool waits = true; ///< has a share that compute waits for
        Under under = Under::none;
        friend bool operator==(const Exchange&, const Exchange&) = default;
    };
    std::vector<Exchange> forward;
    std::vector<Exchange> backward;
    friend bool operator==(const UnitSteps&, const UnitSteps&) = default;
};

/// When gradients are reduced and parameters gathered.
struct DataParallelPlan {
    bool units = false;        ///< life cycle per wrap unit: gather, use, release
    bool gather_again = false; ///< and gathered again for the backward pass
    std::int32_t prefetch = 0; ///< wrap units gathered ahead of the one in use
    std::int32_t wrapped = 1;  ///< units of the model that one wrap unit holds; 0: all of a chunk
    bool reduce_under = false; ///< gradients have a share that is reduced under backward passes
    bool reduce_waits = false; ///< and one that is waited for: by the next pass of compute if
                               ///< `units`, else after all passes
    bool every_micro_batch = false; ///< else gradients are reduced with the last one only
    std::int32_t buckets = 1;       ///< per stage, unless `units`
    bool replicas = false; ///< gradients are added up over copies of the shards, once at the end
    bool gather_under = false; ///< parameters have a share that is gathered ahead: `prefetch`
                               ///< units, else bucket by bucket under the first forward pass
    bool gather_waits =
        false; ///< and one that is waited for: by its unit, else after the optimizer

    friend bool operator==(const DataParallelPlan&, const DataParallelPlan&) = default;
};

/// Everything a Schedule is made from.
struct ScheduleInput {
    PipelineShape shape;
    PassLengths lengths; ///< by which passes are ordered
    std::vector<UnitSteps> unit_kinds;
    /// By stage, then chunk: index into unit_kinds of every unit in forward order.
    std::vector<std::vector<std::vector<std::uint16_t>>> units;
    /// A message takes the stream of compute: its sender's, or at the end of the line its
    /// receiver's. Every pass pays for one.
    bool messages_block = true;
    bool messages_under = false; ///< has a share that runs under compute
    DataParallelPlan data_parallel;
    bool offload_passes = false; ///< activations or parameters move in every pass
    bool offload_states = false; ///< optimizer states are updated off the device
    bool optimizer = true;
    /// The update waits for the gradients of all stages, whose norm clips them. Zero-bubble
    /// schedules that end stages one after another check the norm afterwards instead.
    bool update_waits_for_all = true;
    bool save = false; ///< a checkpoint is written after the step
    /// More are refused, before the memory for them is taken.
    std::int64_t most_tasks = std::int64_t{1} << 31;
};

/// The tasks of one step. Errors: sizes of `units` that do not fit the shape; more than
/// `most_tasks`.
Result<Schedule> make_schedule(const ScheduleInput& input);

/// A forward and a backward pass of every unit for every micro-batch: no schedule has fewer tasks.
std::int64_t fewest_tasks(const ScheduleInput& input);
/// What is said of a schedule with more than `most_tasks`.
Error too_many_tasks(const ScheduleInput& input);

/// Sizes that do not fit together, as make_schedule refuses them.
Status check_input(const ScheduleInput& input);

/// Errors: a pass that is missing or there twice, a send without its receive, a dependency that
/// does not exist, tasks that wait for one another (in the order of their streams).
Status check_schedule(const Schedule& schedule);

/// "backward of chunk 1, micro-batch 3, on stage 2".
std::string describe_task(const Schedule& schedule, std::size_t task);

/// Index of a stream among all of the Schedule.
inline std::size_t stream_index(const Schedule& s, std::size_t task) {
    return s.stage[task] * stream_kind_count + static_cast<std::size_t>(s.stream[task]);
}

} // namespace shardplan::sim
