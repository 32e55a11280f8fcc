#include "executor/run/rank_trainer.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/run/training_check.hpp"
#include "executor/run/training_state.hpp"
#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::exec {

namespace {

/// What each block of the model does of its activations on a stage.
std::vector<Recompute> recompute_of(const TrainingPlan& plan, const RankShare& share,
                                    const sim::PipelineShape& shape) {
    const sim::RecomputePlan recompute = plan.tables.recompute(plan.layout.recompute);
    const sim::LayoutUnits units = sim::layout_units(
        plan.model, recompute, shape, sim::stages_of(plan.model, plan.layout, plan.tables));
    std::vector<Recompute> out(
        static_cast<std::size_t>(sim::block_count(*sim::trunk_of(plan.model))), Recompute::none);
    const Recompute kind = recompute.kind == sim::Recompute::full        ? Recompute::full
                           : recompute.kind == sim::Recompute::selective ? Recompute::selective
                                                                         : Recompute::none;
    const auto& chunks = units.of[static_cast<std::size_t>(share.stage)];
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const ChunkShare& chunk = share.chunks[c];
        for (Index i = 0; i < chunk.count; ++i) {
            const auto at = static_cast<std::size_t>(i + (chunk.embeds ? 1 : 0));
            if (units.kinds[chunks[c][at]].recomputed) {
                out[static_cast<std::size_t>(chunk.first + i)] = kind;
            }
        }
    }
    return out;
}

/// Of a communicator that is a part of one of the layout's; what is added up over stages counts as
/// data parallelism.
sim::Group group_of(const Communicator& communicator) {
    return sim::enum_from<sim::Group>(communicator.name()).value_or(sim::Group::dp);
}

} // namespace

template <class Scalar>
Result<std::unique_ptr<Trainer>> RankTrainer<Scalar>::make(Communicator& world,
                                                           const TrainingPlan& plan,
                                                           TokenSource data) {
    auto share = share_of(plan.model, plan.layout, plan.tables, world.rank());
    if (!share) return std::move(share).error();
    // whole micro-batches are dealt out, so no rank's share of single samples is asked for
    auto samples = SampleStream::make(std::move(data), plan.sequence, {});
    if (!samples) return std::move(samples).error();
    const Index m = micro_batches_of(plan);
    const sim::ScheduleInput input =
        sim::executed_input(plan.model, plan.layout, plan.tables, m, plan.lengths);
    auto schedule = sim::make_schedule(input);
    if (!schedule) return std::move(schedule).error();
    ModelOptions options;
    options.sequence = plan.sequence;
    options.micro_batch = plan.layout.micro_batch;
    options.recompute = recompute_of(plan, *share, schedule->shape);
    options.storage = plan.arithmetic == Arithmetic::bf16 ? Storage::bf16 : Storage::scalar;
    options.balance = plan.balance;
    CollectiveChoice choice = plan.collectives;
    choice.rank_order = choice.rank_order || plan.deterministic;
    choice.servers = std::min(choice.servers, world.size());
    if (auto s = world.set_choice(std::move(choice)); !s) return std::move(s).error();
    Parts parts;
    parts.memory = std::make_unique<MemoryCount>();
    auto groups = LayoutGroups::make(world, plan.layout);
    if (!groups) return std::move(groups).error();
    parts.groups = std::make_unique<LayoutGroups>(std::move(*groups));
    const int threads = plan.threads > 0
                            ? plan.threads
                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    auto model = Model<Scalar>::make(plan.model, *share, parts.groups.get(), options,
                                     std::make_shared<CpuKernels<Scalar>>(threads));
    if (!model) return std::move(model).error();
    parts.model = std::move(*model);
    parts.model->arena().count_in(*parts.memory);
    parts.model->off_device().set(
        {tier_of(plan.layout.offload_tier), plan.layout.offload_activations, plan.offload_to},
        *parts.memory);
    auto shared = DataParallel<Scalar>::make(
        world, *parts.groups, parts.model->share(), parts.model->kernels(),
        parts.model->parameters(), *parts.memory,
        {plan.layout, input.data_parallel, plan.optimizer, plan.deterministic, plan.offload_to});
    if (!shared) return std::move(shared).error();
    parts.shared = std::move(*shared);
    parts.shared->start(plan.seed);
    return std::unique_ptr<Trainer>(new RankTrainer(world, plan, std::move(parts),
                                                    std::move(*samples), std::move(*schedule),
                                                    input.data_parallel.units));
}

template <class Scalar>
RankTrainer<Scalar>::RankTrainer(Communicator& world, const TrainingPlan& plan, Parts parts,
                                 SampleStream samples, sim::Schedule schedule, bool by_units)
    : world_(&world),
      plan_(plan),
      memory_(std::move(parts.memory)),
      groups_(std::move(parts.groups)),
      samples_(std::move(samples)),
      schedule_(std::move(schedule)),
      program_(stage_program(schedule_, static_cast<std::int32_t>(parts.model->share().stage))),
      model_(std::move(parts.model)),
      shared_(std::move(parts.shared)),
      passes_(
          *model_, micro_batches_of(plan),
          {1.0 / static_cast<double>(plan.global_batch * plan.sequence),
           static_cast<double>(plan.layout.micro_batch) / static_cast<double>(plan.global_batch)},
          sim::splits_backward(plan.layout.schedule)),
      messages_((*groups_)[sim::Group::pp], schedule_, program_, *model_, passes_),
      by_units_(by_units) {
    for (const StageTask& task : program_) {
        if (schedule_.kind[task.id] == sim::TaskKind::gather &&
            schedule_.stream[task.id] == sim::StreamKind::gather) {
            gathers_.push_back(&task);
        }
    }
    sent_before_ = sent();
}

template <class Scalar>
void RankTrainer<Scalar>::set_spans(SpanSink sink) {
    const bool listens = sink != nullptr;
    spans_.set(std::move(sink));
    const auto tell = [&](Communicator& communicator, sim::Group group) {
        if (listens) {
            spans_.listen(communicator, group);
        } else {
            communicator.set_hooks({});
        }
    };
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        const auto group = static_cast<sim::Group>(g);
        // messages between stages are tasks, and told as such
        if (group != sim::Group::pp) tell((*groups_)[group], group);
    }
    for (Communicator* communicator : shared_->communicators()) {
        tell(*communicator, group_of(*communicator));
    }
}

// ---- What it holds -----------------------------------------------------------------------------

template <class Scalar>
RankMemory RankTrainer<Scalar>::memory() const {
    RankMemory memory;
    memory.now = memory_->now();
    memory.peak_phase = memory_->peak_phase();
    memory.peak = memory_->peak(memory.peak_phase);
    for (std::size_t p = 0; p < sim::phase_count; ++p) {
        memory.phases[p] = memory_->peak(static_cast<sim::Phase>(p));
    }
    memory.host = memory_->off_device(sim::Tier::host);
    memory.disk = memory_->off_device(sim::Tier::nvme);
    return memory;
}

template <class Scalar>
std::vector<TensorPart> RankTrainer<Scalar>::state() {
    constexpr std::array<const char*, 3> suffixes = {"", ".first_moment", ".second_moment"};
    std::vector<TensorPart> parts;
    for (const StatePart<Scalar>& part : shared_->state()) {
        parts.push_back(state_part(model_->parameters().table()[part.parameter],
                                   suffixes[static_cast<std::size_t>(part.kind)],
                                   scalar_of<Scalar>(), part.begin, part.end,
                                   reinterpret_cast<std::byte*>(part.data)));
    }
    return parts;
}

template <class Scalar>
Status RankTrainer<Scalar>::resume(Index step, Index samples_read) {
    samples_read_ = samples_read;
    return shared_->resume(step);
}

template <class Scalar>
std::array<std::int64_t, sim::group_count> RankTrainer<Scalar>::sent() const {
    std::array<std::int64_t, sim::group_count> bytes{};
    const auto add = [&](std::size_t group, const Communicator& communicator) {
        bytes[group] += communicator.traffic().sent + communicator.traffic().through_library;
    };
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        add(g, (*groups_)[static_cast<sim::Group>(g)]);
    }
    for (const Communicator* communicator : shared_->communicators()) {
        add(static_cast<std::size_t>(group_of(*communicator)), *communicator);
    }
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        bytes[g] -= sent_before_[g];
    }
    return bytes;
}

template class RankTrainer<float>;
template class RankTrainer<double>;

} // namespace shardplan::exec
