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

/// Streams that exchanges of a group run on.
sim::StreamKind stream_of(sim::Group group) {
    switch (group) {
        case sim::Group::tp:
            return sim::StreamKind::tp;
        case sim::Group::cp:
            return sim::StreamKind::cp;
        case sim::Group::ep:
        case sim::Group::etp:
            return sim::StreamKind::ep;
        default:
            return sim::StreamKind::reduce;
    }
}

bool is_message(sim::TaskKind kind) {
    return kind == sim::TaskKind::send || kind == sim::TaskKind::receive;
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
    auto schedule =
        sim::make_schedule(sim::executed_input(plan.model, plan.layout, plan.tables, m));
    if (!schedule) return std::move(schedule).error();
    ModelOptions options;
    options.sequence = plan.sequence;
    options.micro_batch = plan.layout.micro_batch;
    options.recompute = recompute_of(plan, *share, schedule->shape);
    options.storage = plan.arithmetic == Arithmetic::bf16 ? Storage::bf16 : Storage::scalar;
    options.balance = plan.balance;
    CollectiveChoice choice = world.choice();
    choice.rank_order = choice.rank_order || plan.deterministic;
    if (auto s = world.set_choice(std::move(choice)); !s) return std::move(s).error();
    auto groups = LayoutGroups::make(world, plan.layout);
    if (!groups) return std::move(groups).error();
    auto kept_groups = std::make_unique<LayoutGroups>(std::move(*groups));
    const int threads = plan.threads > 0
                            ? plan.threads
                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    auto model = Model<Scalar>::make(plan.model, std::move(*share), kept_groups.get(), options,
                                     std::make_shared<CpuKernels<Scalar>>(threads));
    if (!model) return std::move(model).error();
    (*model)->parameters().start(plan.seed);
    return std::unique_ptr<Trainer>(new RankTrainer(world, plan, std::move(kept_groups),
                                                    std::move(*samples), std::move(*schedule),
                                                    std::move(*model)));
}

template <class Scalar>
RankTrainer<Scalar>::RankTrainer(Communicator& world, const TrainingPlan& plan,
                                 std::unique_ptr<LayoutGroups> groups, SampleStream samples,
                                 sim::Schedule schedule, std::unique_ptr<Model<Scalar>> model)
    : world_(&world),
      plan_(plan),
      groups_(std::move(groups)),
      samples_(std::move(samples)),
      schedule_(std::move(schedule)),
      program_(stage_program(schedule_, static_cast<std::int32_t>(model->share().stage))),
      model_(std::move(model)),
      optimizer_(plan.optimizer, model_->parameters().table()),
      passes_(
          *model_, micro_batches_of(plan),
          {1.0 / static_cast<double>(plan.global_batch * plan.sequence),
           static_cast<double>(plan.layout.micro_batch) / static_cast<double>(plan.global_batch)},
          sim::splits_backward(plan.layout.schedule)),
      messages_((*groups_)[sim::Group::pp], schedule_, program_, *model_, passes_) {}

template <class Scalar>
void RankTrainer<Scalar>::set_spans(SpanSink sink) {
    const bool listens = sink != nullptr;
    spans_.set(std::move(sink));
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        const auto group = static_cast<sim::Group>(g);
        // messages between stages are tasks, and told as such
        if (group == sim::Group::pp) continue;
        if (listens) {
            spans_.listen((*groups_)[group], stream_of(group));
        } else {
            (*groups_)[group].set_hooks({});
        }
    }
}

// ---- A step ------------------------------------------------------------------------------------

template <class Scalar>
Result<TrainStep> RankTrainer<Scalar>::step() {
    auto done = run_step();
    // others wait for what this rank will not do any more
    if (!done) world_->stop("stopped: " + sim::to_text(done.error()));
    return done;
}

template <class Scalar>
Result<TrainStep> RankTrainer<Scalar>::run_step() {
    TrainStep out;
    out.step = optimizer_.steps() + 1;
    out.rate = plan_.rate.at(out.step);
    out.tokens = plan_.global_batch * plan_.sequence;
    if (auto s = load_samples(); !s) return std::move(s).error();
    if (auto s = messages_.start_step(); !s) return std::move(s).error();
    for (const StageTask& task : program_) {
        if (auto s = run_task(task, out); !s) return std::move(s).error();
    }
    if (auto s = messages_.finish_step(); !s) return std::move(s).error();
    if (auto s = add_losses(out); !s) return std::move(s).error();
    samples_read_ += plan_.global_batch;
    return out;
}

/// Micro-batch j of data-parallel rank r is number j x dp + r of the step, so that all ranks
/// together pass over what one rank would, cut in the same way.
template <class Scalar>
Status RankTrainer<Scalar>::load_samples() {
    const PartOf dp = model_->share().dp;
    const auto per_pass = static_cast<std::size_t>(plan_.layout.micro_batch * plan_.sequence);
    const Index m = micro_batches_of(plan_);
    std::vector<Token> tokens(per_pass * static_cast<std::size_t>(m));
    std::vector<Token> targets(tokens.size());
    for (Index j = 0; j < m; ++j) {
        samples_.seek(samples_read_ + (j * dp.parts + dp.part) * plan_.layout.micro_batch);
        const auto at = static_cast<std::size_t>(j) * per_pass;
        samples_.next(std::span(tokens).subspan(at, per_pass),
                      std::span(targets).subspan(at, per_pass));
    }
    return passes_.start_step(std::move(tokens), std::move(targets));
}

template <class Scalar>
Status RankTrainer<Scalar>::run_task(const StageTask& task, TrainStep& out) {
    if (!spans_.on()) return do_task(task, out);
    RunSpan span;
    span.kind = schedule_.kind[task.id];
    span.stream = schedule_.stream[task.id];
    span.task = task.id;
    span.chunk = schedule_.chunk[task.id];
    span.unit = schedule_.unit[task.id];
    if (schedule_.micro_batch[task.id] != sim::no_micro_batch) {
        span.micro_batch = schedule_.micro_batch[task.id];
    }
    if (is_message(span.kind)) {
        span.bytes = messages_.bytes();
        span.group = sim::name_of(sim::Group::pp);
    }
    span.begin = spans_.now();
    Status status = do_task(task, out);
    span.end = spans_.now();
    spans_.record(span);
    return status;
}

template <class Scalar>
Status RankTrainer<Scalar>::do_task(const StageTask& task, TrainStep& out) {
    const Index chunk = schedule_.chunk[task.id];
    const Index unit = schedule_.unit[task.id];
    const Index micro_batch = schedule_.micro_batch[task.id];
    if (task.handed_on_by >= 0) messages_.hand_over(task);
    switch (schedule_.kind[task.id]) {
        case sim::TaskKind::forward:
            passes_.forward(chunk, unit, micro_batch);
            break;
        case sim::TaskKind::backward:
            passes_.backward(chunk, unit, micro_batch);
            break;
        case sim::TaskKind::weight:
            passes_.weight(chunk, unit, micro_batch);
            break;
        case sim::TaskKind::receive:
            return messages_.receive(task);
        case sim::TaskKind::send:
            return messages_.send(task);
        case sim::TaskKind::reduce_gradient: {
            Parameters<Scalar>& p = model_->parameters();
            return (*groups_)[sim::Group::dp].all_reduce(
                view(std::span(p.gradients(), static_cast<std::size_t>(p.table().count))),
                ReduceOp::sum);
        }
        case sim::TaskKind::optimizer: {
            auto report = optimizer_.step(model_->kernels(), model_->parameters(), out.rate);
            if (!report) return std::move(report).error();
            out.gradient_norm = report->gradient_norm;
            return sim::Done{};
        }
        default: // the loss: done with the head
            break;
    }
    return model_->failure();
}

/// Every loss is added once: by the first of the ranks that compute it together.
template <class Scalar>
Status RankTrainer<Scalar>::add_losses(TrainStep& out) {
    const bool speaks = model_->share().tp.part == 0;
    const StageLoss& own = passes_.loss_of_step();
    std::array<double, 2> sums = {speaks ? own.sum : 0.0, speaks ? own.balance : 0.0};
    if (auto s = world_->all_reduce(view(std::span<double>(sums)), ReduceOp::sum); !s) return s;
    out.loss = sums[0] / static_cast<double>(out.tokens);
    out.balance = sums[1] * static_cast<double>(plan_.layout.micro_batch) /
                  static_cast<double>(plan_.global_batch);
    return sim::Done{};
}

// ---- What it holds -----------------------------------------------------------------------------

template <class Scalar>
RankMemory RankTrainer<Scalar>::memory() const {
    RankMemory memory;
    const auto put = [&](sim::TensorKind kind, Index bytes) {
        memory.now[static_cast<std::size_t>(kind)] = bytes;
        memory.peak[static_cast<std::size_t>(kind)] = bytes;
    };
    const Index count = model_->parameters().table().count;
    const Index bytes = count * static_cast<Index>(sizeof(Scalar));
    const bool packs = model_->options().storage == Storage::bf16;
    put(sim::TensorKind::weights, packs ? count * static_cast<Index>(sizeof(Bf16)) : bytes);
    put(sim::TensorKind::master_weights, packs ? bytes : 0);
    put(sim::TensorKind::gradients, bytes);
    put(sim::TensorKind::optimizer_states,
        plan_.optimizer.kind == OptimizerKind::adamw ? 2 * bytes : bytes);
    const auto activations = static_cast<std::size_t>(sim::TensorKind::activations);
    memory.now[activations] = model_->arena().bytes_in_use();
    memory.peak[activations] = model_->arena().high_water();
    memory.peak_phase = sim::Phase::backward;
    return memory;
}

template <class Scalar>
std::vector<TensorPart> RankTrainer<Scalar>::state() {
    std::vector<TensorPart> parts;
    Parameters<Scalar>& p = model_->parameters();
    for (const Parameter& parameter : p.table().parameters) {
        const auto add = [&](const std::string& suffix, Scalar* values) {
            parts.push_back(state_part(parameter, suffix, scalar_of<Scalar>(),
                                       reinterpret_cast<std::byte*>(values + parameter.offset)));
        };
        add("", p.values());
        add(".first_moment", optimizer_.first().data());
        if (!optimizer_.second().empty()) add(".second_moment", optimizer_.second().data());
    }
    return parts;
}

template <class Scalar>
Status RankTrainer<Scalar>::resume(Index step, Index samples_read) {
    optimizer_.resume(step);
    samples_read_ = samples_read;
    model_->parameters().changed();
    return sim::Done{};
}

template <class Scalar>
std::array<std::int64_t, sim::group_count> RankTrainer<Scalar>::sent() const {
    std::array<std::int64_t, sim::group_count> bytes{};
    for (std::size_t g = 0; g < sim::group_count; ++g) {
        const Traffic& traffic = (*groups_)[static_cast<sim::Group>(g)].traffic();
        bytes[g] = traffic.sent + traffic.through_library;
    }
    return bytes;
}

template class RankTrainer<float>;
template class RankTrainer<double>;

} // namespace shardplan::exec
