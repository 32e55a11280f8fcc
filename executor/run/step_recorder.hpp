#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "executor/run/trainer.hpp"
#include "simulator/engine/measurement.hpp"

namespace shardplan::exec {

/// Where the seconds of [begin, end] went on one rank: exchanges of a layer before the pass they
/// stand in, a pass before communication beside it, nothing at all as `overhead`. `gemm` stands
/// for all passes; waiting for a message of another stage is `bubble`. Adds up to end - begin.
sim::SecondsByKind seconds_by_kind(const std::vector<RunSpan>& spans, double begin, double end);

/// What spans cost one rank in one step, and which they were.
struct StepSpans {
    sim::SecondsByKind seconds;
    double length = 0.0;

    /// Share of the step that the rank spent in communication, or waiting in it.
    [[nodiscard]] double communication() const;
};

/// One step of one rank as a timeline of its own, with the tasks its spans name.
struct RankTimeline {
    std::vector<sim::MeasuredTask> tasks;
    sim::Timeline timeline;
};

/// Spans of one step as tracks of `rank`, times counted from `begin`. Of more than `most` spans the
/// last ones are dropped.
RankTimeline timeline_of(const std::vector<RunSpan>& spans, std::int64_t rank, std::int64_t stage,
                         double begin, std::size_t most);
/// Puts the timelines of all ranks together, in the order given. Counters, what a rank holds, are
/// those of the first rank of each stage.
RankTimeline join(const std::vector<RankTimeline>& ranks, std::int64_t clock_error);

/// Listens to the spans of one rank's trainer, step by step. Spans may come from several threads.
class StepRecorder {
public:
    /// What the trainer calls. The recorder outlives it.
    [[nodiscard]] SpanSink sink();

    void begin_step();
    /// Ends the step; what the spans came to since `begin_step`.
    StepSpans end_step();

    /// Spans of the step that ended last, and when it began, in the trainer's seconds.
    [[nodiscard]] const std::vector<RunSpan>& spans() const { return last_; }
    [[nodiscard]] double began() const { return to_span_clock(begin_); }
    /// Seconds on the steady clock of this machine when the trainer's clock was at 0.
    [[nodiscard]] double offset() const { return offset_; }

private:
    [[nodiscard]] double to_span_clock(double steady) const { return steady - offset_; }

    std::mutex mutex_;
    std::vector<RunSpan> spans_;
    std::vector<RunSpan> last_;
    /// A span is told as soon as it has ended: the least difference between the clocks seen.
    double offset_ = 0.0;
    bool has_offset_ = false;
    double begin_ = 0.0;
};

/// Seconds on the steady clock of this machine.
double steady_seconds();

} // namespace shardplan::exec
