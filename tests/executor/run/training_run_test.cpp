#include "executor/run/training_run.hpp"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/comm/agree.hpp"
#include "executor/comm/threads.hpp"
#include "executor/run/rank_facts.hpp"
#include "executor/run/run_records.hpp"
#include "executor/run/step_recorder.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/measurement.hpp"

namespace shardplan::exec {
namespace {

/// Trains nothing: steps of a few milliseconds whose figures are known.
class ScriptedTrainer final : public Trainer {
public:
    explicit ScriptedTrainer(int rank) : rank_(rank) {}

    Result<TrainStep> step() override {
        ++steps_;
        if (steps_ == fails_at) {
            return Error{ErrorCode::backend_failed, "rank 1, all_reduce on dp", "it broke", ""};
        }
        RunSpan span;
        span.task = 0;
        span.micro_batch = 0;
        span.begin = steady_seconds();
        std::this_thread::sleep_for(std::chrono::milliseconds(3 + rank_));
        span.end = steady_seconds();
        if (spans_) spans_(span);
        sent_ += 100 * (rank_ + 1);
        for (double& w : weights_) {
            w += rank_ + 1;
        }
        return TrainStep{steps_, 5.0 - static_cast<double>(steps_), 0.0, 1.5, 1e-3, 64};
    }
    [[nodiscard]] const sim::Schedule& schedule() const override { return schedule_; }
    void set_spans(SpanSink sink) override { spans_ = std::move(sink); }
    [[nodiscard]] RankMemory memory() const override {
        RankMemory out;
        out.now[static_cast<std::size_t>(sim::TensorKind::weights)] = 1000 + rank_;
        out.peak = out.now;
        out.peak[static_cast<std::size_t>(sim::TensorKind::activations)] = 500;
        out.peak_phase = sim::Phase::backward;
        out.phases[static_cast<std::size_t>(sim::Phase::backward)] = out.peak;
        out.host = 32;
        return out;
    }
    [[nodiscard]] std::array<std::int64_t, sim::group_count> sent() const override {
        std::array<std::int64_t, sim::group_count> out{};
        out[static_cast<std::size_t>(sim::Group::dp)] = sent_;
        return out;
    }

    std::vector<TensorPart> state() override {
        TensorPart part;
        part.name = "weight";
        part.scalar = Scalar::fp64;
        part.shape = {4};
        const Index half = static_cast<Index>(rank_) * 2;
        part.boxes = {{{{half}, {2}}, reinterpret_cast<std::byte*>(weights_.data()), {}}};
        return {part};
    }
    [[nodiscard]] Index samples_read() const override { return steps_ * 8; }
    Status resume(Index step, Index samples_read) override {
        EXPECT_EQ(step * 8, samples_read);
        steps_ = step;
        return sim::Done{};
    }
    Status check_replicas() override {
        ++checks;
        return sim::Done{};
    }

    Index fails_at = 0;
    std::atomic<int> checks = 0;

private:
    int rank_;
    Index steps_ = 0;
    std::int64_t sent_ = 0;
    std::vector<double> weights_ = {0.0, 0.0};
    sim::Schedule schedule_;
    SpanSink spans_;
};

struct Outcome {
    Status status = sim::Done{};
    std::vector<sim::JsonValue> records;
    RunEnd end; ///< of rank 0
};

Outcome run(int ranks, const RunControl& control, Index rank_1_fails_at = 0) {
    TrainingPlan plan;
    plan.layout.pp = static_cast<std::uint16_t>(ranks);
    plan.threads = 1;
    plan.sequence = 8;
    plan.global_batch = 8;
    const RunNames names{
        "plan.json", "feedfacefeedface",       "tiny", "pp2,dp1,mb1", "shardplan-run-cpu",
        "threads",   {{"shardplan", "0.1.0"}}, 1234};
    Outcome out;
    const auto record = [&](const std::string& line) {
        EXPECT_EQ(std::string::npos, line.find('\n'));
        auto json = sim::JsonValue::parse(line, "record");
        ASSERT_TRUE(json) << line;
        out.records.push_back(*json);
    };
    const auto outcome = run_ranks(ranks, [&](Communicator& world) -> Status {
        const auto make = [&](Communicator& all) -> Result<std::unique_ptr<Trainer>> {
            auto trainer = std::make_unique<ScriptedTrainer>(all.rank());
            if (all.rank() == 1) trainer->fails_at = rank_1_fails_at;
            return std::unique_ptr<Trainer>(std::move(trainer));
        };
        auto end = run_training(world, plan, names, control, make, record);
        if (!end) return end.error();
        if (world.rank() == 0) out.end = std::move(*end);
        return sim::Done{};
    });
    out.status = outcome.status();
    return out;
}

std::string text(const sim::JsonValue& record, const char* key) {
    return *record.find(key)->as_string();
}
double number(const sim::JsonValue& record, const char* key) {
    return *record.find(key)->as_double();
}

TEST(TrainingRun, SaysHowItStartsEachStepAndHowItEnds) {
    RunControl control;
    control.steps = 3;
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status) << to_text(out.status.error());
    ASSERT_EQ(5U, out.records.size());
    const auto& start = out.records[0];
    EXPECT_EQ("start", text(start, "event"));
    EXPECT_EQ(2.0, number(start, "ranks"));
    EXPECT_EQ("pp2,dp1,mb1", text(start, "layout"));
    EXPECT_EQ(1234.0, number(start, "parameters"));
    EXPECT_EQ(1U, start.find("hosts")->size());
    const auto& step = out.records[2];
    EXPECT_EQ("step", text(step, "event"));
    EXPECT_EQ(2.0, number(step, "step"));
    EXPECT_EQ(3.0, number(step, "loss"));
    EXPECT_GE(number(step, "seconds"), 0.004); // the slower rank
    EXPECT_NEAR(64.0 / number(step, "seconds"), number(step, "tokens_per_second"), 1e-6);
    EXPECT_EQ(1001.0, number(step, "memory_bytes"));
    EXPECT_EQ(1501.0, number(step, "peak_memory_bytes"));
    const auto& end = out.records[4];
    EXPECT_EQ("done", text(end, "reason"));
    EXPECT_EQ(3.0, number(end, "steps"));
    EXPECT_EQ(4.0, number(end, "first_loss"));
    EXPECT_EQ(2.0, number(end, "last_loss"));
    EXPECT_FALSE(out.end.measurement);
}

TEST(TrainingRun, StopsAfterTheStepInWhichAnyRankWasAsked) {
    std::atomic<int> asked = 0;
    RunControl control;
    control.steps = 1000;
    // each of two ranks asks once per step; only one of them hears of it, in the second step
    control.stop = [&] { return ++asked == 3; };
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status);
    EXPECT_TRUE(out.end.stopped);
    EXPECT_EQ(2, out.end.steps);
    EXPECT_EQ("stopped", text(out.records.back(), "reason"));
}

TEST(TrainingRun, FailureOfARankIsTheRunsAndNoEndIsSaid) {
    RunControl control;
    control.steps = 5;
    const Outcome out = run(2, control, 3);
    ASSERT_FALSE(out.status);
    EXPECT_EQ("it broke", out.status.error().what);
    EXPECT_EQ("step", text(out.records.back(), "event"));
    EXPECT_EQ(3U, out.records.size());
}

TEST(TrainingRun, MeasurementHoldsWhatEveryRankHeldSentAndDid) {
    RunControl control;
    control.steps = 4;
    control.measure = true;
    control.timeline = true;
    control.probe_seconds = 0.01;
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status);
    ASSERT_TRUE(out.end.measurement);
    const sim::Measurement& m = *out.end.measurement;
    EXPECT_EQ("feedfacefeedface", m.plan_hash);
    EXPECT_EQ(2, m.ranks);
    ASSERT_EQ(4U, m.steps.size());
    EXPECT_EQ(1, m.settling);
    ASSERT_EQ(2U, m.per_rank.size());
    const sim::MeasuredRank& second = m.per_rank[1];
    EXPECT_EQ(1, second.stage);
    EXPECT_EQ(1001.0, second.held[sim::TensorKind::weights].value());
    EXPECT_EQ(500.0, second.at_peak[sim::TensorKind::activations].value());
    ASSERT_EQ(1U, second.phases.size());
    EXPECT_EQ(second.at_peak, second.phases.at("backward"));
    EXPECT_EQ(32.0, second.offloaded_host.value());
    EXPECT_GT(second.process.value(), 1e6);
    EXPECT_EQ(200.0, second.sent.at("dp").value());
    EXPECT_EQ(1U, second.sent.size());
    EXPECT_GT(second.seconds[sim::TimeKind::gemm].value(), 0.0039);
    ASSERT_TRUE(m.noise);
    EXPECT_GT(m.noise->median.value(), 0.0);
    ASSERT_TRUE(m.timeline);
    EXPECT_EQ(4, m.timeline_step);
    ASSERT_EQ(2U, m.timeline->spans.size());
    for (const sim::Span& span : m.timeline->spans) {
        EXPECT_GE(span.t0, 0);
        EXPECT_GE(span.t1 - span.t0, 2'900'000);
    }
    const auto back = sim::parse_measurement(sim::write_measurement(m), "m.json");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(m, *back);
}

/// A folder of this test, gone with it.
struct Folder {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("shardplan-training-run-" + std::to_string(::getpid())))
                           .string();
    ~Folder() { std::filesystem::remove_all(path); }
};

std::vector<std::string> events(const Outcome& out) {
    std::vector<std::string> names;
    for (const auto& record : out.records) {
        names.push_back(text(record, "event"));
    }
    return names;
}

TEST(TrainingRun, SavesAsOftenAsAskedAndOnceAtTheEnd) {
    const Folder folder;
    RunControl control;
    control.steps = 5;
    control.save = folder.path;
    control.save_every = 2;
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status) << to_text(out.status.error());
    EXPECT_EQ((std::vector<std::string>{"start", "step", "step", "save", "step", "step", "save",
                                        "step", "save", "end"}),
              events(out));
    EXPECT_EQ(5.0, number(out.records[8], "step"));
}

TEST(TrainingRun, GoesOnAfterTheStepThatWasSaved) {
    const Folder folder;
    RunControl control;
    control.steps = 3;
    control.save = folder.path;
    control.resume = true; // there is nothing yet: from the beginning
    ASSERT_TRUE(run(2, control).status);
    control.steps = 5;
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status) << to_text(out.status.error());
    EXPECT_EQ(3.0, number(out.records[0], "begins_after_step"));
    EXPECT_EQ(4.0, number(out.records[1], "step"));
    EXPECT_EQ(2, out.end.steps);
    EXPECT_EQ(5, out.end.step);
    const Outcome again = run(2, control); // nothing is left to do
    ASSERT_TRUE(again.status);
    EXPECT_EQ((std::vector<std::string>{"start", "end"}), events(again));
}

TEST(TrainingRun, StoppedRunIsSavedAtItsLastStep) {
    const Folder folder;
    std::atomic<int> asked = 0;
    RunControl control;
    control.steps = 100;
    control.save = folder.path;
    control.stop = [&] { return ++asked == 3; };
    const Outcome out = run(2, control);
    ASSERT_TRUE(out.status);
    EXPECT_EQ("save", text(out.records[out.records.size() - 2], "event"));
    const auto meta = read_checkpoint_meta(folder.path);
    ASSERT_TRUE(meta);
    EXPECT_EQ(2, meta->step);
    EXPECT_EQ(16, meta->numbers.at("samples_read"));
    EXPECT_EQ("pp2,dp1,mb1", meta->texts.at("layout"));
}

TEST(RankFacts, ClockOfAnotherMachineIsReadOverMessages) {
    // ranks of one process, which believe to be on two machines: the clock is the same
    const auto outcome = run_ranks(3, [](Communicator& world) -> Status {
        const auto clock = clock_against_first(world, {"here", "here", "there"});
        if (!clock) return clock.error();
        if (world.rank() == 2) {
            EXPECT_GT(clock->error, 0.0);
            EXPECT_LE(std::abs(clock->seconds), clock->error);
        } else {
            EXPECT_EQ(0.0, clock->seconds);
            EXPECT_EQ(0.0, clock->error);
        }
        return sim::Done{};
    });
    EXPECT_TRUE(outcome.status());
}

TEST(TrainingRun, ErrorRecordNamesRankPlaceAndHint) {
    const auto json = sim::JsonValue::parse(
        error_record({ErrorCode::backend_failed, "rank 2, send", "it \"broke\"", "try again"}, 2),
        "record");
    ASSERT_TRUE(json);
    EXPECT_EQ("error", text(*json, "event"));
    EXPECT_EQ(2.0, number(*json, "rank"));
    EXPECT_EQ("it \"broke\"", text(*json, "what"));
    EXPECT_EQ("try again", text(*json, "hint"));
}

} // namespace
} // namespace shardplan::exec
