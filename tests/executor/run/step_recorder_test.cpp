#include "executor/run/step_recorder.hpp"

#include <thread>

#include <gtest/gtest.h>

namespace shardplan::exec {
namespace {

using sim::StreamKind;
using sim::TaskKind;
using sim::TimeKind;

RunSpan task(TaskKind kind, double begin, double end, std::int64_t micro_batch = 0) {
    RunSpan span;
    span.kind = kind;
    span.task = 1;
    span.micro_batch = micro_batch;
    span.begin = begin;
    span.end = end;
    return span;
}

/// Communication of a group, inside a task.
RunSpan inside(const char* group, double begin, double end) {
    RunSpan span = task(TaskKind::exchange, begin, end);
    span.task = -1;
    span.group = group;
    return span;
}

/// Communication beside compute.
RunSpan beside(TaskKind kind, StreamKind stream, double begin, double end) {
    RunSpan span = task(kind, begin, end);
    span.stream = stream;
    return span;
}

TEST(SecondsByKind, ExchangeInsideAPassIsTakenOutOfThePass) {
    const auto seconds =
        seconds_by_kind({task(TaskKind::forward, 1.0, 5.0), inside("tp", 2.0, 3.0)}, 0.0, 6.0);
    EXPECT_DOUBLE_EQ(3.0, seconds[TimeKind::gemm].value());
    EXPECT_DOUBLE_EQ(1.0, seconds[TimeKind::tp_comm].value());
    EXPECT_DOUBLE_EQ(2.0, seconds[TimeKind::overhead].value());
    EXPECT_DOUBLE_EQ(6.0, seconds.total().value());
}

TEST(SecondsByKind, CommunicationUnderComputeIsHidden) {
    const auto seconds =
        seconds_by_kind({task(TaskKind::backward, 0.0, 4.0),
                         beside(TaskKind::reduce_gradient, StreamKind::reduce, 3.0, 6.0)},
                        0.0, 6.0);
    EXPECT_DOUBLE_EQ(4.0, seconds[TimeKind::gemm].value());
    EXPECT_DOUBLE_EQ(2.0, seconds[TimeKind::dp_comm].value());
}

TEST(SecondsByKind, GatheringAheadOnAThreadOfItsOwnIsHiddenUnderThePass) {
    const auto seconds = seconds_by_kind(
        {task(TaskKind::forward, 0.0, 4.0), inside("shard", 1.0, 3.0), inside("tp", 3.0, 4.0)}, 0.0,
        4.0);
    EXPECT_DOUBLE_EQ(3.0, seconds[TimeKind::gemm].value());
    EXPECT_DOUBLE_EQ(1.0, seconds[TimeKind::tp_comm].value());
}

TEST(SecondsByKind, WaitingForAMessageIsTheBubble) {
    const auto seconds = seconds_by_kind(
        {beside(TaskKind::receive, StreamKind::receive, 0.0, 2.0),
         task(TaskKind::forward, 2.0, 3.0), beside(TaskKind::send, StreamKind::send, 3.0, 3.5)},
        0.0, 3.5);
    EXPECT_DOUBLE_EQ(2.0, seconds[TimeKind::bubble].value());
    EXPECT_DOUBLE_EQ(0.5, seconds[TimeKind::pp_comm].value());
}

TEST(SecondsByKind, GroupsThatReduceGradientsAreDataParallel) {
    const auto seconds =
        seconds_by_kind({task(TaskKind::optimizer, 0.0, 4.0), inside("shard", 0.0, 1.0),
                         inside("ep", 1.0, 2.0), inside("etp", 2.0, 3.0)},
                        0.0, 4.0);
    EXPECT_DOUBLE_EQ(1.0, seconds[TimeKind::dp_comm].value());
    EXPECT_DOUBLE_EQ(2.0, seconds[TimeKind::ep_comm].value());
    EXPECT_DOUBLE_EQ(1.0, seconds[TimeKind::optimizer].value());
}

TEST(SecondsByKind, SpansThatReachBeyondTheStepCountInsideItOnly) {
    const auto seconds = seconds_by_kind({task(TaskKind::forward, -5.0, 50.0)}, 0.0, 2.0);
    EXPECT_DOUBLE_EQ(2.0, seconds.total().value());
    EXPECT_DOUBLE_EQ(2.0, seconds[TimeKind::gemm].value());
}

TEST(StepSpans, ShareOfCommunicationCountsWaitingForOtherStages) {
    StepSpans step;
    step.length = 4.0;
    step.seconds[TimeKind::dp_comm] = sim::Seconds(1.0);
    step.seconds[TimeKind::bubble] = sim::Seconds(1.0);
    step.seconds[TimeKind::gemm] = sim::Seconds(2.0);
    EXPECT_DOUBLE_EQ(0.5, step.communication());
}

TEST(RankTimeline, HasATrackPerStreamInTheOrderOfTimeAndNamesTasksOnce) {
    const std::vector<RunSpan> spans = {
        task(TaskKind::forward, 1.0, 2.0, 0), task(TaskKind::forward, 3.0, 4.0, 1),
        inside("tp", 1.25, 1.5), task(TaskKind::forward, 4.0, 4.5, 1)};
    const RankTimeline out = timeline_of(spans, 3, 1, 1.0, 100);
    ASSERT_EQ(2U, out.timeline.tracks.size());
    EXPECT_EQ(StreamKind::compute, out.timeline.tracks[0].stream);
    EXPECT_EQ(StreamKind::tp, out.timeline.tracks[1].stream);
    EXPECT_EQ(3, out.timeline.tracks[0].rank);
    EXPECT_EQ(1, out.timeline.tracks[0].stage);
    ASSERT_EQ(4U, out.timeline.spans.size());
    EXPECT_EQ(0, out.timeline.spans[0].t0);
    EXPECT_EQ(1'000'000'000, out.timeline.spans[0].t1);
    EXPECT_EQ(250'000'000, out.timeline.spans[3].t0);
    EXPECT_EQ(3U, out.tasks.size());
    EXPECT_EQ(out.timeline.spans[1].task, out.timeline.spans[2].task);
    EXPECT_EQ(sim::WaitCause::stream, out.timeline.spans[2].cause);
    EXPECT_EQ(sim::WaitCause::none, out.timeline.spans[0].cause);
}

TEST(RankTimeline, ExchangeThatIsATaskOfCommunicationGivesItItsBytes) {
    RunSpan reduce = beside(TaskKind::reduce_gradient, StreamKind::reduce, 1.0, 2.0);
    RunSpan exchange = inside("dp_cp", 1.125, 1.875);
    exchange.stream = StreamKind::reduce;
    exchange.bytes = 64;
    const RankTimeline out =
        timeline_of({exchange, reduce, task(TaskKind::forward, 0.0, 1.0)}, 0, 0, 0.0, 9);
    ASSERT_EQ(2U, out.timeline.spans.size());
    EXPECT_EQ(TaskKind::reduce_gradient, out.timeline.spans[1].op);
    EXPECT_EQ(64.0, out.timeline.spans[1].bytes);
}

TEST(RankTimeline, MemoryOfTheFirstRankOfAStageIsToldAtTheEndsOfItsTasks) {
    RunSpan forward = task(TaskKind::forward, 1.0, 2.0);
    forward.most_held = 500;
    forward.held = 300;
    RunSpan backward = task(TaskKind::backward, 2.0, 3.0);
    backward.most_held = 700;
    backward.held = 100;
    const RankTimeline first =
        timeline_of({forward, inside("tp", 1.2, 1.4), backward}, 0, 1, 1.0, 9);
    backward.most_held = 900;
    const RankTimeline second = timeline_of({backward}, 1, 1, 1.0, 9);
    const auto counters = join({first, second}, 0).timeline.counters;
    ASSERT_EQ(counters.size(), 1U);
    EXPECT_EQ(counters[0].name, "memory");
    EXPECT_EQ(counters[0].stage, 1);
    EXPECT_EQ(counters[0].t, (std::vector<std::int64_t>{0, 1'000'000'000, 2'000'000'000}));
    EXPECT_EQ(counters[0].values, (std::vector<double>{500.0, 700.0, 100.0}));
}

TEST(RankTimeline, BeyondTheBoundTheLastSpansAreDroppedAndCounted) {
    std::vector<RunSpan> spans;
    for (int i = 0; i < 10; ++i) {
        spans.push_back(task(TaskKind::forward, i, i + 1.0, i));
    }
    const RankTimeline out = timeline_of(spans, 0, 0, 0.0, 4);
    EXPECT_EQ(4U, out.timeline.spans.size());
    EXPECT_EQ(6, out.timeline.dropped);
    EXPECT_EQ(4'000'000'000, out.timeline.spans.back().t1);
}

TEST(RankTimeline, JoinedRanksKeepTheirTracksAndTasks) {
    const RankTimeline a = timeline_of({task(TaskKind::forward, 0.0, 1.0)}, 0, 0, 0.0, 9);
    const RankTimeline b = timeline_of({task(TaskKind::optimizer, 0.0, 2.0, -1)}, 1, 0, 0.0, 9);
    const RankTimeline both = join({a, b}, 7);
    ASSERT_EQ(2U, both.timeline.spans.size());
    EXPECT_EQ(1U, both.timeline.spans[1].track);
    EXPECT_EQ(TaskKind::optimizer, both.tasks[both.timeline.spans[1].task].kind);
    EXPECT_EQ(7, both.timeline.clock_error);
    EXPECT_EQ(sim::TimelineOrigin::measured, both.timeline.origin);
}

TEST(StepRecorder, ReadsTheTrainersClockWhereverItBegins) {
    constexpr double clock_zero = -1000.0; // the trainer's clock runs 1000 s ahead
    StepRecorder recorder;
    const SpanSink sink = recorder.sink();
    recorder.begin_step();
    RunSpan span = task(TaskKind::forward, 0.0, 0.0);
    const auto now = [&] { return steady_seconds() - clock_zero; };
    span.begin = now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    span.end = now();
    sink(span);
    const StepSpans step = recorder.end_step();
    EXPECT_GE(step.seconds[TimeKind::gemm].value(), 0.019);
    EXPECT_NEAR(step.length, step.seconds.total().value(), 1e-9);
    EXPECT_NEAR(clock_zero, recorder.offset(), 0.01);
    ASSERT_EQ(1U, recorder.spans().size());
    recorder.begin_step();
    EXPECT_DOUBLE_EQ(0.0, recorder.end_step().seconds[TimeKind::gemm].value());
}

} // namespace
} // namespace shardplan::exec
