#include "executor/run/stage_messages.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

namespace {

/// Receives that wait for their messages at the same time: that of the next pass, and the one
/// after, which may come from the other side.
constexpr std::size_t posted_ahead = 2;

} // namespace

template <class Scalar>
StageMessages<Scalar>::StageMessages(Communicator& stages, const sim::Schedule& schedule,
                                     const std::vector<StageTask>& program, Model<Scalar>& model,
                                     StagePasses<Scalar>& passes)
    : stages_(&stages), schedule_(&schedule), model_(&model), passes_(&passes) {
    for (const StageTask& task : program) {
        if (schedule.kind[task.id] == sim::TaskKind::receive) receives_.push_back(&task);
    }
}

template <class Scalar>
Index StageMessages<Scalar>::bytes() const {
    return count() * static_cast<Index>(packs() ? sizeof(Bf16) : sizeof(Scalar));
}

template <class Scalar>
View StageMessages<Scalar>::view_of(Message& m) const {
    const auto elements = static_cast<std::size_t>(count());
    return packs() ? view(std::span(m.packed.data(), elements))
                   : view(std::span(m.values.data(), elements));
}

template <class Scalar>
Status StageMessages<Scalar>::start_step() {
    posted_ = 0;
    return post_ahead();
}

template <class Scalar>
Status StageMessages<Scalar>::post_ahead() {
    while (posted_ < receives_.size() && coming_.size() < posted_ahead) {
        if (auto s = post(*receives_[posted_++]); !s) return s;
    }
    return sim::Done{};
}

template <class Scalar>
Status StageMessages<Scalar>::post(const StageTask& task) {
    Message& m = coming_.emplace_back();
    if (packs()) {
        m.packed = Scratch<Bf16>(model_->arena(), count(), sim::TensorKind::messages);
    } else {
        m.values = Scratch<Scalar>(model_->arena(), count(), sim::TensorKind::messages);
    }
    auto request = stages_->start_receive(view_of(m), task.peer, task.tag);
    if (!request) return std::move(request).error();
    m.request = std::move(*request);
    return sim::Done{};
}

template <class Scalar>
Status StageMessages<Scalar>::receive(const StageTask& task) {
    Message& m = coming_.front();
    if (auto s = stages_->wait(m.request); !s) return s;
    const Index chunk = schedule_->chunk[task.id];
    const Index micro_batch = schedule_->micro_batch[task.id];
    if (schedule_->pass[task.id] == sim::PassKind::forward) {
        passes_->input(chunk, micro_batch)
            .take(model_->arena(), model_->options().storage, std::move(m.values),
                  std::move(m.packed));
    } else {
        Scratch<Scalar>& gradient = passes_->gradient(chunk, micro_batch);
        if (packs()) {
            gradient = Scratch<Scalar>(model_->arena(), count());
            unpack(m.packed.data(), count(), gradient.data());
        } else {
            gradient = std::move(m.values);
            gradient.count_as(sim::TensorKind::temporaries);
        }
    }
    coming_.pop_front();
    return post_ahead();
}

template <class Scalar>
Status StageMessages<Scalar>::send(const StageTask& task) {
    Message& m = going_.emplace_back();
    const Index chunk = schedule_->chunk[task.id];
    const Index micro_batch = schedule_->micro_batch[task.id];
    if (schedule_->pass[task.id] == sim::PassKind::forward) {
        passes_->output(chunk, micro_batch).give(m.values, m.packed);
    } else if (packs()) {
        Scratch<Scalar>& gradient = passes_->gradient(chunk, micro_batch);
        m.packed = Scratch<Bf16>(model_->arena(), count());
        pack(gradient.data(), count(), m.packed.data());
        gradient.release();
    } else {
        m.values = std::move(passes_->gradient(chunk, micro_batch));
    }
    m.values.count_as(sim::TensorKind::messages);
    m.packed.count_as(sim::TensorKind::messages);
    auto request = stages_->start_send(view_of(m), task.peer, task.tag);
    if (!request) return std::move(request).error();
    m.request = std::move(*request);
    return sim::Done{};
}

template <class Scalar>
void StageMessages<Scalar>::hand_over(const StageTask& task) {
    const Index from = task.handed_on_by;
    const Index to = schedule_->chunk[task.id];
    const Index micro_batch = schedule_->micro_batch[task.id];
    if (schedule_->pass[task.id] != sim::PassKind::forward) {
        passes_->gradient(to, micro_batch) = std::move(passes_->gradient(from, micro_batch));
        return;
    }
    passes_->input(to, micro_batch) = std::move(passes_->output(from, micro_batch));
}

template <class Scalar>
Status StageMessages<Scalar>::drop_sent() {
    // in order: a message behind one that waits takes no more room than that one
    while (!going_.empty()) {
        auto done = stages_->test(going_.front().request);
        if (!done) return std::move(done).error();
        if (!*done) break;
        going_.pop_front();
    }
    return sim::Done{};
}

template <class Scalar>
Status StageMessages<Scalar>::progress() {
    if (auto s = drop_sent(); !s || coming_.empty()) return s;
    auto done = stages_->test(coming_.front().request);
    if (!done) return std::move(done).error();
    return sim::Done{};
}

template <class Scalar>
Status StageMessages<Scalar>::finish_step() {
    for (; !going_.empty(); going_.pop_front()) {
        if (auto s = stages_->wait(going_.front().request); !s) return s;
    }
    return sim::Done{};
}

template class StageMessages<float>;
template class StageMessages<double>;

} // namespace shardplan::exec
