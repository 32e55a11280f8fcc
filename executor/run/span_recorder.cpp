#include "executor/run/span_recorder.hpp"

#include <memory>

namespace shardplan::exec {

namespace {

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

} // namespace

void SpanRecorder::set(SpanSink sink) {
    const std::lock_guard lock(mutex_);
    sink_ = std::move(sink);
    start_ = std::chrono::steady_clock::now();
}

double SpanRecorder::now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void SpanRecorder::record(const RunSpan& span) {
    const std::lock_guard lock(mutex_);
    if (sink_) sink_(span);
}

void SpanRecorder::listen(Communicator& communicator, sim::Group group) {
    struct Begun {
        double at = 0.0;
        std::int64_t sent = 0;
    };
    const auto begun = std::make_shared<Begun>();
    const auto sent = [&communicator] {
        return communicator.traffic().sent + communicator.traffic().through_library;
    };
    CommHooks hooks;
    hooks.begin = [this, begun, sent](const CommCall&) { *begun = {now(), sent()}; };
    hooks.end = [this, begun, sent, group](const CommCall& call, bool) {
        RunSpan span;
        span.kind = sim::TaskKind::exchange;
        span.stream = stream_of(group);
        span.begin = begun->at;
        span.end = now();
        // a message that is waited for went out before
        span.bytes = call.operation == "send" ? call.bytes : sent() - begun->sent;
        span.group = sim::name_of(group);
        record(span);
    };
    communicator.set_hooks(std::move(hooks));
}

} // namespace shardplan::exec
