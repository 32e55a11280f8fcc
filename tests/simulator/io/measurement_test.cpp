#include "simulator/io/measurement.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

Measurement two_ranks() {
    Measurement m;
    m.plan_hash = "0123456789abcdef";
    m.plan = "plan.json";
    m.model = "tiny";
    m.layout = "dp2,mb1,zero1";
    m.program = "shardplan-run-cpu";
    m.backend = "threads";
    m.date = "2026-11-29T20:15:00Z";
    m.ranks = 2;
    m.threads_per_rank = 1;
    m.hosts = {"here"};
    m.versions = {{"program", "0.1.0"}, {"compiler", "GCC 12.2"}};
    m.clock = "steady clock";
    m.settling = 1;
    m.steps = {{1, 5.5, Seconds(0.75), 256},
               {2, 5.25, Seconds(0.25), 256},
               {3, 5.0, Seconds(0.1), 256},
               {4, 4.75, Seconds(0.125), 256}};
    for (std::int64_t r = 0; r < 2; ++r) {
        MeasuredRank rank;
        rank.rank = r;
        rank.host = "here";
        rank.held[TensorKind::weights] = Bytes(4096.0);
        rank.at_peak = rank.held;
        rank.at_peak[TensorKind::activations] = Bytes(1000.0);
        rank.peak_phase = Phase::backward;
        rank.phases["backward"] = rank.at_peak;
        rank.process = Bytes(1 << 20);
        rank.seconds[TimeKind::gemm] = Seconds(0.1);
        rank.sent["dp"] = Bytes(8192.0);
        m.per_rank.push_back(rank);
    }
    m.noise = NoiseProbe{50, Seconds(1e-3), 0.02};
    m.timeline_step = 4;
    m.tasks = {{TaskKind::forward, StreamKind::compute, 0, 0, 1, 2},
               {TaskKind::optimizer, StreamKind::compute, 0, 0, 0, -1}};
    Timeline timeline;
    timeline.origin = TimelineOrigin::measured;
    timeline.clock_error = 100;
    timeline.tracks = {{0, 0, 1, StreamKind::compute}, {0, 1, 1, StreamKind::compute}};
    timeline.spans = {{0, 0, TaskKind::forward, WaitCause::none, 0, 500, 0.0, 1e6},
                      {0, 1, TaskKind::optimizer, WaitCause::reduce, 600, 700, 0.0, 0.0},
                      {1, 0, TaskKind::forward, WaitCause::none, 0, 450, 16.0, 1e6}};
    timeline.counters = {{"memory", 0, {0, 400}, {4096.0, 5096.0}}};
    m.timeline = timeline;
    return m;
}

/// What is said of a measurement after a change to it.
Error error_after(const std::function<void(Measurement&)>& change) {
    Measurement m = two_ranks();
    change(m);
    const auto back = parse_measurement(write_measurement(m), "m.json");
    EXPECT_FALSE(back);
    return back ? Error{} : back.error();
}

TEST(Measurement, ComesBackEqualFromItsText) {
    const Measurement m = two_ranks();
    const auto back = parse_measurement(write_measurement(m), "m.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, m);
}

TEST(Measurement, WithoutProbeAndTimelineComesBackEqualToo) {
    Measurement m = two_ranks();
    m.noise.reset();
    m.timeline.reset();
    m.tasks.clear();
    m.timeline_step = 0;
    const auto back = parse_measurement(write_measurement(m), "m.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, m);
}

TEST(Measurement, MedianStepLeavesOutSettlingOnesAndReallyRan) {
    Measurement m = two_ranks();
    ASSERT_EQ(3U, median_step(m)); // 0.25, 0.1, 0.125
    m.steps.pop_back();
    EXPECT_EQ(2U, median_step(m)); // of 0.25 and 0.1 the faster one
    m.settling = 3;
    EXPECT_FALSE(median_step(m));
}

TEST(Measurement, TasksOfSpansAreLabelledAsThoseOfASchedule) {
    const Measurement m = two_ranks();
    const Schedule s = schedule_of(m);
    ASSERT_EQ(2U, s.size());
    EXPECT_EQ(3, s.shape.micro_batches);
    EXPECT_EQ(2U, s.micro_batch[0]);
    EXPECT_EQ(no_micro_batch, s.micro_batch[1]);
    EXPECT_EQ(1U, s.unit[0]);
}

TEST(Measurement, AnotherFileSaysHowToMakeOne) {
    const auto plan = parse_measurement(R"({"format": "shardplan-document"})", "p.json");
    ASSERT_FALSE(plan);
    EXPECT_EQ("this is a plan, not a measurement", plan.error().what);
    EXPECT_NE(std::string::npos, plan.error().hint.find("--measure"));
    EXPECT_FALSE(parse_measurement("[1, 2]", "list.json"));
    EXPECT_FALSE(parse_measurement("steps: 4", "m.yaml"));
}

TEST(Measurement, LaterFormatIsNotGuessedAt) {
    const auto later =
        parse_measurement(R"({"format": "shardplan-measurement", "format_version": 2})", "m.json");
    ASSERT_FALSE(later);
    EXPECT_EQ(ErrorCode::unsupported, later.error().code);
    EXPECT_EQ("m.json: /format_version", later.error().where);
}

TEST(Measurement, ContradictionsAreNamedWithTheirPlace) {
    const Error order = error_after([](Measurement& m) { m.steps[2].step = 2; });
    EXPECT_EQ("m.json: /steps/2/step", order.where);
    EXPECT_EQ("step 2 comes after step 2", order.what);

    const Error missing = error_after([](Measurement& m) { m.per_rank.pop_back(); });
    EXPECT_EQ("m.json: /per_rank", missing.where);
    EXPECT_EQ("1 ranks are described, and 2 took part", missing.what);

    const Error twice = error_after([](Measurement& m) { m.per_rank[1].rank = 0; });
    EXPECT_EQ("m.json: /per_rank/1/rank", twice.where);

    const Error settling = error_after([](Measurement& m) { m.settling = 5; });
    EXPECT_EQ("m.json: /settling", settling.where);

    const Error group =
        error_after([](Measurement& m) { m.per_rank[0].sent["dp_cq"] = Bytes(1.0); });
    EXPECT_EQ("m.json: /per_rank/0/sent", group.where);
    EXPECT_NE(std::string::npos, group.hint.find("dp_cp"));

    const Error phase = error_after([](Measurement& m) { m.per_rank[1].phases["backwards"]; });
    EXPECT_EQ("m.json: /per_rank/1/phases", phase.where);
    EXPECT_EQ("did you mean \"backward\"?", phase.hint);

    const Error track = error_after([](Measurement& m) { m.timeline->spans[2].track = 2; });
    EXPECT_EQ("m.json: /timeline/spans/2/track", track.where);
    EXPECT_EQ("there are 2 tracks, counted from 0", track.hint);

    const Error task = error_after([](Measurement& m) { m.timeline->spans[0].task = 9; });
    EXPECT_EQ("m.json: /timeline/spans/0/task", task.where);

    const Error back = error_after([](Measurement& m) { m.timeline->spans[1].t1 = 500; });
    EXPECT_EQ("m.json: /timeline/spans/1/t1", back.where);

    const Error sorted = error_after([](Measurement& m) { m.timeline->spans[1].t0 = -1; });
    EXPECT_EQ("m.json: /timeline/spans/1", sorted.where);
}

TEST(Measurement, UnknownAndMissingFieldsAreNamed) {
    std::string text = write_measurement(two_ranks());
    const auto replaced = [&](const std::string& from, const std::string& to) {
        std::string copy = text;
        return copy.replace(copy.find(from), from.size(), to);
    };
    const auto unknown = parse_measurement(replaced("\"backend\"", "\"backed\""), "m.json");
    ASSERT_FALSE(unknown);
    EXPECT_NE(std::string::npos, to_text(unknown.error()).find("backend"));
    const auto kind = parse_measurement(replaced("\"weights\"", "\"weight\""), "m.json");
    ASSERT_FALSE(kind);
    EXPECT_NE(std::string::npos, kind.error().where.find("/per_rank/0/held"));
}

TEST(Measurement, PlanHashTellsScenariosAndLayoutsApart) {
    const Scenario a =
        test::scenario(test::small_model(2, 4, 4), test::dgx_h100(1), test::job(128, 8));
    const Scenario b =
        test::scenario(test::small_model(2, 4, 4), test::dgx_h100(1), test::job(128, 16));
    EXPECT_EQ(plan_hash(a, "dp8,mb1"), plan_hash(a, "dp8,mb1"));
    EXPECT_NE(plan_hash(a, "dp8,mb1"), plan_hash(b, "dp8,mb1"));
    EXPECT_NE(plan_hash(a, "dp8,mb1"), plan_hash(a, "tp8,dp1,mb1"));
}

} // namespace
} // namespace shardplan::sim
