#pragma once

#include <chrono>
#include <mutex>
#include <utility>

#include "executor/run/trainer.hpp"

namespace shardplan::exec {

/// Where spans of a rank go, and the clock they are told by.
class SpanRecorder {
public:
    void set(SpanSink sink);
    [[nodiscard]] bool on() const { return sink_ != nullptr; }
    /// Seconds since `set`.
    [[nodiscard]] double now() const;
    void record(const RunSpan& span);

    /// Records every blocking call on `communicator` from now on, for as long as this lives, as one
    /// of `group`. Spans may outlive the communicator and its name.
    void listen(Communicator& communicator, sim::Group group);

private:
    SpanSink sink_;
    std::chrono::steady_clock::time_point start_;
    std::mutex mutex_;
};

} // namespace shardplan::exec
