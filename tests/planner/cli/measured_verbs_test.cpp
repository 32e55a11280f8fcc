#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "simulator/io/document.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/measurement.hpp"
#include "tests/planner/cli/run_verb.hpp"
#include "tests/support/measurements.hpp"

/// validate --measurement and simulate --over, on a plan of two CPU ranks and a run of it.
namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;

class MeasuredVerbs : public ::testing::Test {
protected:
    void SetUp() override {
        std::filesystem::create_directories(folder_);
        plan_ = path("plan.json");
        EstimateOptions o;
        o.scenario.model = "gpt2";
        o.scenario.cluster = "local-cpu";
        o.scenario.gpus = 2;
        o.scenario.stack = "shardplan-cpu";
        o.scenario.job_fields = {{"--sequence", "sequence.max", "64"},
                                 {"--global-batch", "global_batch.sequences", "8"}};
        o.layout = "dp2,mb1";
        o.output = plan_;
        ASSERT_EQ(0, run_verb(run_estimate, o).code);
        measurement_ = path("m.json");
        write({});
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] std::string path(const std::string& name) const {
        return (folder_ / name).string();
    }
    /// The measurement of the plan, changed.
    void write(const std::function<void(sim::Measurement&)>& change) const {
        const auto document = sim::read_document_file(plan_);
        ASSERT_TRUE(document);
        sim::Measurement m = test::run_of_two(document->plans[0].layout);
        m.plan = plan_;
        m.plan_hash = sim::plan_hash(document->scenario, m.layout);
        if (change) change(m);
        ASSERT_TRUE(sim::write_measurement_file(measurement_, m));
    }
    [[nodiscard]] Answer validate(test::How how = {}, const std::string& plan = "") const {
        ValidateOptions o;
        o.measurements = {measurement_};
        o.plan = plan;
        return run_verb(run_validate, o, how);
    }
    [[nodiscard]] SimulateVerbOptions simulate() const {
        SimulateVerbOptions o;
        o.document = plan_;
        o.over = measurement_;
        return o;
    }

    std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                    ("shardplan-measured-" + std::to_string(::getpid()));
    std::string plan_, measurement_;
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST_F(MeasuredVerbs, APlanWithItsRunAttachedStandsForTheRun) {
    const std::string by_file = validate().out;
    const std::string drawn = run_verb(run_simulate, simulate()).out;
    auto run = sim::read_measurement_file(measurement_);
    ASSERT_TRUE(run);
    measurement_ = plan_;
    EXPECT_TRUE(contains(validate().err, "this plan holds no measurement"));
    run->plan = "somewhere else";
    ASSERT_TRUE(sim::attach_to_document_file(plan_, *run));
    const Answer attached = validate();
    ASSERT_EQ(0, attached.code) << attached.err;
    EXPECT_EQ(by_file, attached.out);
    EXPECT_EQ("", attached.err) << "the scenario has not changed";
    EXPECT_EQ(drawn, run_verb(run_simulate, simulate()).out);

    ASSERT_TRUE(sim::attach_to_document_file(plan_, *run));
    EXPECT_TRUE(contains(validate().out, "2 runs of 1 layouts"));
}

TEST_F(MeasuredVerbs, OfSeveralRunsTheLastThatHasATimelineLiesOver) {
    auto run = sim::read_measurement_file(measurement_);
    ASSERT_TRUE(run);
    run->timeline_step = 2;
    ASSERT_TRUE(sim::attach_to_document_file(plan_, *run));
    run->timeline.reset();
    ASSERT_TRUE(sim::attach_to_document_file(plan_, *run));
    measurement_ = plan_;
    const Answer answer = run_verb(run_simulate, simulate());
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.out, "step 2 is shown"));
}

TEST_F(MeasuredVerbs, ValidateShowsBothSidesTermByTermAndWhatIsOffMost) {
    const Answer answer = validate();
    ASSERT_EQ(0, answer.code) << answer.err;
    for (const char* part :
         {"dp2,mb1 on 2 ranks (threads), 3 steps that count", "passes", "60.0 ms", "dp comm",
          "Memory of stage 0 (rank 1), held between steps", "not measured",
          "predicted, backward measured)", "Sent by one rank in one step", "off most:"}) {
        EXPECT_TRUE(contains(answer.out, part)) << part << '\n' << answer.out;
    }
    EXPECT_EQ("", answer.err);
}

TEST_F(MeasuredVerbs, ValidateGivesTheSameAsJson) {
    const Answer answer = validate({.json = true});
    ASSERT_EQ(0, answer.code) << answer.err;
    const auto json = parsed(answer.out);
    EXPECT_EQ(0.1, *json.find("measured_step_time_s")->as_double());
    EXPECT_FALSE(*json.find("plan_changed")->as_bool());
    EXPECT_GE(json.find("time")->size(), 3U);
    EXPECT_EQ(1U, json.find("memory")->size());
    const auto off = json.find("off_most")->find("memory");
    ASSERT_TRUE(off);
    EXPECT_GT(*off->find("predicted")->as_double(), 1e6); // the model has 124 M parameters
}

TEST_F(MeasuredVerbs, ValidateSaysThatThePlanHasChanged) {
    write([](sim::Measurement& m) { m.plan_hash = "0123456789abcdef"; });
    const Answer answer = validate();
    EXPECT_EQ(0, answer.code);
    EXPECT_TRUE(contains(answer.err, "the plan says other things than the one that ran"));
}

TEST_F(MeasuredVerbs, ValidateRefusesAPlanWithoutTheLayoutThatRan) {
    write([](sim::Measurement& m) { m.layout = "pp2,dp1,mb1"; });
    const Answer answer = validate();
    EXPECT_EQ(2, answer.code);
    EXPECT_TRUE(contains(answer.err, "it holds no plan with the layout that ran, pp2,dp1,mb1"));
}

TEST_F(MeasuredVerbs, ValidateAsksForThePlanWhereItsFileIsGone) {
    write([](sim::Measurement& m) { m.plan = "/no/such/plan.json"; });
    const Answer gone = validate();
    EXPECT_EQ(2, gone.code);
    EXPECT_TRUE(contains(gone.err, "name the plan with --plan"));
    EXPECT_EQ(0, validate({}, plan_).code);
    write([](sim::Measurement& m) { m.plan.clear(); });
    EXPECT_TRUE(contains(validate().err, "the measurement does not say which plan was run"));
}

TEST_F(MeasuredVerbs, ValidateOfAPlanThatWasNotRunSaysHowToRunIt) {
    ValidateOptions o;
    o.measurements = {plan_};
    const Answer answer = run_verb(run_validate, o);
    EXPECT_EQ(2, answer.code);
    EXPECT_TRUE(contains(answer.err, "this plan holds no measurement"));
    EXPECT_TRUE(contains(answer.err, "shardplan run " + plan_ + " --attach"));
}

TEST_F(MeasuredVerbs, ValidateSumsUpSeveralRuns) {
    ValidateOptions o;
    o.measurements = {measurement_, measurement_, measurement_};
    const Answer answer = run_verb(run_validate, o);
    ASSERT_EQ(0, answer.code) << answer.err;
    for (const char* part :
         {"3 runs of 1 layouts", "dp2,mb1", "100 ms", "differs", "equal to the byte in 0 of 1"}) {
        EXPECT_TRUE(contains(answer.out, part)) << part << '\n' << answer.out;
    }
    const Answer json = run_verb(run_validate, o, {.json = true});
    EXPECT_EQ(1U, parsed(json.out).find("layouts")->size());
    o.measurements.push_back(plan_);
    EXPECT_EQ(2, run_verb(run_validate, o).code);
}

TEST_F(MeasuredVerbs, SimulateDrawsTheRunBeneathThePrediction) {
    const Answer answer = run_verb(run_simulate, simulate());
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.out, "step 100 ms measured, median of 3; step 4 is shown"));
    EXPECT_TRUE(contains(answer.out, "\n0 pre  F")) << answer.out;
    EXPECT_TRUE(contains(answer.out, "\n0 run  ")) << answer.out;
    EXPECT_TRUE(contains(answer.out, "pre: predicted, run: measured"));
}

TEST_F(MeasuredVerbs, SimulateWritesTraceAndPageWithBoth) {
    SimulateVerbOptions o = simulate();
    o.trace = path("trace.json");
    o.html = path("page.html");
    const Answer answer = run_verb(run_simulate, o, {.json = true});
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_EQ(0.1, *parsed(answer.out).find("measured_step_time_s")->as_double());
    const std::string trace = *sim::read_file(o.trace);
    EXPECT_TRUE(contains(trace, "predicted stage 0: 2 ranks like rank 0"));
    EXPECT_TRUE(contains(trace, "measured stage 0, rank 1"));
    EXPECT_TRUE(contains(trace, "\"origin\":\"predicted, measured\""));
    const std::string page = *sim::read_file(o.html);
    EXPECT_TRUE(contains(page, "predicted stage 0 compute"));
    EXPECT_TRUE(contains(page, "measured stage 0 rank 0 compute"));
    EXPECT_LT(page.find("predicted stage 0 compute"), page.find("measured stage 0 rank 0"));
}

TEST_F(MeasuredVerbs, SimulateRefusesRunsOfOtherLayoutsAndWithoutTimeline) {
    write([](sim::Measurement& m) { m.layout = "pp2,dp1,mb1"; });
    const Answer other = run_verb(run_simulate, simulate());
    EXPECT_EQ(2, other.code);
    EXPECT_TRUE(contains(other.err, "it was taken under pp2,dp1,mb1, not under dp2,mb1"));
    write([](sim::Measurement& m) { m.timeline.reset(); });
    const Answer none = run_verb(run_simulate, simulate());
    EXPECT_EQ(2, none.code);
    EXPECT_TRUE(contains(none.err, "--measure FILE --timeline"));
}

} // namespace
} // namespace shardplan::plan::cli
