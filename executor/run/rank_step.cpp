#include <array>
#include <utility>

#include "executor/run/rank_trainer.hpp"
#include "executor/run/training_check.hpp"
#include "simulator/units/hash_mix.hpp"

/// A step of a RankTrainer: the tasks of its stage, one after another.
namespace shardplan::exec {

namespace {

bool is_message(sim::TaskKind kind) {
    return kind == sim::TaskKind::send || kind == sim::TaskKind::receive;
}

} // namespace

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
    out.step = shared_->steps() + 1;
    out.rate = plan_.rate.at(out.step);
    out.tokens = plan_.global_batch * plan_.sequence;
    done_.assign(schedule_.size(), false);
    gathers_started_ = 0;
    reduced_ = false;
    memory_->enter(sim::Phase::forward); // what is gathered and posted ahead belongs to it
    if (auto s = load_samples(); !s) return std::move(s).error();
    if (auto s = messages_.start_step(); !s) return std::move(s).error();
    for (const StageTask& task : program_) {
        if (auto s = messages_.progress(); !s) return std::move(s).error();
        const bool makes_room = schedule_.kind[task.id] == sim::TaskKind::release;
        if (auto s = start_ready_gathers(makes_room); !s) return std::move(s).error();
        if (auto s = run_task(task, out); !s) return std::move(s).error();
        done_[task.id] = true;
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
    const std::size_t draw =
        sim::hash_mix(plan_.seed, static_cast<std::uint64_t>(shared_->steps()));
    return passes_.start_step(std::move(tokens), std::move(targets), draw);
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
    memory_->take_most();
    span.begin = spans_.now();
    Status status = do_task(task, out);
    span.end = spans_.now();
    span.most_held = memory_->take_most();
    span.held = memory_->held();
    spans_.record(span);
    return status;
}

template <class Scalar>
void RankTrainer<Scalar>::enter_phase(const StageTask& task) {
    switch (schedule_.kind[task.id]) {
        case sim::TaskKind::forward: {
            const ChunkShare& chunk = model_->share().chunks[schedule_.chunk[task.id]];
            const Index head = chunk.count + (chunk.embeds ? 1 : 0);
            const bool is_head = chunk.has_head && schedule_.unit[task.id] == head;
            memory_->enter(is_head ? sim::Phase::loss : sim::Phase::forward);
            break;
        }
        case sim::TaskKind::backward:
        case sim::TaskKind::weight:
            memory_->enter(sim::Phase::backward);
            break;
        case sim::TaskKind::optimizer:
        case sim::TaskKind::gather_parameter:
            memory_->enter(sim::Phase::step);
            break;
        default:
            break;
    }
}

template <class Scalar>
Status RankTrainer<Scalar>::do_task(const StageTask& task, TrainStep& out) {
    const Index chunk = schedule_.chunk[task.id];
    const Index unit = schedule_.unit[task.id];
    const Index micro_batch = schedule_.micro_batch[task.id];
    enter_phase(task);
    if (task.handed_on_by >= 0) messages_.hand_over(task);
    switch (schedule_.kind[task.id]) {
        case sim::TaskKind::forward:
            passes_.forward(chunk, unit, micro_batch);
            return model_->failure();
        case sim::TaskKind::backward:
            passes_.backward(chunk, unit, micro_batch);
            return model_->failure();
        case sim::TaskKind::weight:
            passes_.weight(chunk, unit, micro_batch);
            return model_->failure();
        case sim::TaskKind::receive:
            return messages_.receive(task);
        case sim::TaskKind::send:
            return messages_.send(task);
        default:
            return do_shared_task(task, out);
    }
}

// ---- With the ranks that hold the same ---------------------------------------------------------

template <class Scalar>
Status RankTrainer<Scalar>::do_shared_task(const StageTask& task, TrainStep& out) {
    switch (schedule_.kind[task.id]) {
        case sim::TaskKind::gather:
            return gather(task);
        case sim::TaskKind::release:
            shared_->release(portion_of(task));
            return sim::Done{};
        case sim::TaskKind::reduce_gradient:
            if (schedule_.unit[task.id] == sim::replica_bucket) return finish_reduction();
            return shared_->reduce(portion_of(task));
        case sim::TaskKind::optimizer:
            return update(out);
        case sim::TaskKind::gather_parameter:
            return shared_->gather_parameters(portion_of(task));
        default: // the loss is done with the head
            return sim::Done{};
    }
}

template <class Scalar>
Index RankTrainer<Scalar>::portion_of(const StageTask& task) const {
    const Index unit = schedule_.unit[task.id];
    return by_units_ ? shared_->portion_of(schedule_.chunk[task.id], unit) : unit;
}

/// As soon as what they wait for has been done, so that they arrive under compute.
template <class Scalar>
Status RankTrainer<Scalar>::start_ready_gathers(bool makes_room) {
    for (; gathers_started_ < gathers_.size(); ++gathers_started_) {
        const StageTask& task = *gathers_[gathers_started_];
        for (std::uint32_t d = schedule_.first_dependency[task.id];
             d < schedule_.first_dependency[task.id + 1]; ++d) {
            if (!done_[schedule_.dependencies[d]]) return sim::Done{};
        }
        if (makes_room && !shared_->is_gathered(portion_of(task))) return sim::Done{};
        if (auto s = shared_->start_gather(portion_of(task)); !s) return s;
    }
    return sim::Done{};
}

template <class Scalar>
Status RankTrainer<Scalar>::gather(const StageTask& task) {
    const Index portion = portion_of(task);
    if (schedule_.stream[task.id] != sim::StreamKind::gather) {
        if (auto s = shared_->start_gather(portion); !s) return s;
    }
    return shared_->finish_gather(portion);
}

template <class Scalar>
Status RankTrainer<Scalar>::finish_reduction() {
    reduced_ = true;
    return shared_->finish_reduction();
}

template <class Scalar>
Status RankTrainer<Scalar>::update(TrainStep& out) {
    if (!reduced_) {
        if (auto s = finish_reduction(); !s) return s;
    }
    auto report = shared_->norm();
    if (!report) return std::move(report).error();
    out.gradient_norm = report->gradient_norm;
    shared_->update(out.rate, *report);
    return sim::Done{};
}

/// Every loss is added once: by the first of the ranks that compute it together.
template <class Scalar>
Status RankTrainer<Scalar>::add_losses(TrainStep& out) {
    const RankShare& share = model_->share();
    const bool speaks = share.tp.part == 0 && share.cp.part == 0;
    const StageLoss& own = passes_.loss_of_step();
    std::array<double, 2> sums = {speaks ? own.sum : 0.0, speaks ? own.balance : 0.0};
    if (auto s = world_->all_reduce(view(std::span<double>(sums)), ReduceOp::sum); !s) return s;
    out.loss = sums[0] / static_cast<double>(out.tokens);
    out.balance = sums[1] * static_cast<double>(plan_.layout.micro_batch) /
                  static_cast<double>(plan_.global_batch);
    return sim::Done{};
}

template Result<TrainStep> RankTrainer<float>::step();
template Result<TrainStep> RankTrainer<double>::step();

} // namespace shardplan::exec
