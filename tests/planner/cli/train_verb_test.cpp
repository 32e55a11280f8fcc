#include <cstdlib>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "planner/cli/child_process.hpp"
#include "tests/planner/cli/run_verb.hpp"

/// The verb `run` with real training behind it, on a model of a few thousand parameters.
namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

class TrainVerb : public ::testing::Test {
protected:
    void SetUp() override {
        // The program lies beside shardplan; the test itself lies elsewhere.
        const std::string bin = std::filesystem::path(SHARDPLAN_PROGRAM).parent_path().string();
        if (!std::filesystem::exists(bin + "/shardplan-run-cpu")) {
            GTEST_SKIP() << "built without the executor";
        }
        const char* path = std::getenv("PATH");
        ::setenv("PATH", (bin + ":" + (path != nullptr ? path : "")).c_str(), 1);
        std::filesystem::create_directories(folder_);
        plan_ = (folder_ / "plan.json").string();
        EstimateOptions o;
        o.scenario.model = SHARDPLAN_SOURCE_DIR "/samples/run/tiny-gpt.json";
        o.scenario.cluster = "local-cpu";
        o.scenario.gpus = 2;
        o.scenario.stack = "shardplan-cpu";
        o.scenario.sets = {"job.precision.compute=fp32"};
        o.scenario.job_fields = {{"--sequence", "sequence.max", "32"},
                                 {"--global-batch", "global_batch.sequences", "8"}};
        o.layout = "dp2,mb2,zero1";
        o.output = plan_;
        const Answer answer = run_verb(run_estimate, o);
        ASSERT_EQ(0, answer.code) << answer.err;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] RunVerbOptions options(std::vector<std::string> passed) const {
        RunVerbOptions o;
        o.document = plan_;
        o.passed = std::move(passed);
        return o;
    }

    std::filesystem::path folder_ =
        std::filesystem::temp_directory_path() / ("shardplan-train-" + std::to_string(::getpid()));
    std::string plan_;
};

TEST_F(TrainVerb, TrainsAndShowsThePredictionBesideTheMeasurement) {
    const Answer answer = run_verb(run_run, options({"--steps", "4"}));
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.out, "dp2,mb2,zero1 on 2 ranks (threads)")) << answer.out;
    EXPECT_TRUE(contains(answer.out, "done after 4 steps; loss ")) << answer.out;
    EXPECT_TRUE(contains(answer.out, " measured (median), ")) << answer.out;
}

TEST_F(TrainVerb, JsonLinesAreRecordsAndAComparison) {
    const Answer answer = run_verb(run_run, options({"--steps", "3"}), {.json = true});
    ASSERT_EQ(0, answer.code) << answer.err;
    std::vector<std::string> events;
    std::istringstream lines(answer.out);
    for (std::string line; std::getline(lines, line);) {
        events.push_back(*parsed(line).find("event")->as_string());
    }
    EXPECT_EQ((std::vector<std::string>{"start", "step", "step", "step", "end", "comparison"}),
              events);
}

TEST_F(TrainVerb, MeasurementIsWhatValidateAndSimulateRead) {
    const std::string file = (folder_ / "m.json").string();
    const Answer answer =
        run_verb(run_run, options({"--steps", "3", "--measure", file, "--timeline"}));
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.err, "wrote " + file));
    ValidateOptions validate;
    validate.measurements = {file};
    const Answer terms = run_verb(run_validate, validate, {.json = true});
    ASSERT_EQ(0, terms.code) << terms.err;
    EXPECT_FALSE(*parsed(terms.out).find("plan_changed")->as_bool());
    SimulateVerbOptions simulate;
    simulate.document = plan_;
    simulate.over = file;
    const Answer drawn = run_verb(run_simulate, simulate);
    ASSERT_EQ(0, drawn.code) << drawn.err;
    EXPECT_TRUE(contains(drawn.out, "0 run  "));
}

TEST_F(TrainVerb, AttachedToItsPlanARunSaysHowFastItsPassesWere) {
    const Answer answer = run_verb(run_run, options({"--steps", "3", "--attach", "--timeline"}));
    ASSERT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.err, "added to " + plan_)) << answer.err;
    ValidateOptions validate;
    validate.measurements = {plan_};
    const Answer terms = run_verb(run_validate, validate, {.json = true});
    ASSERT_EQ(0, terms.code) << terms.err;
    EXPECT_FALSE(*parsed(terms.out).find("plan_changed")->as_bool());
    SimulateVerbOptions simulate;
    simulate.document = simulate.over = plan_;
    const Answer played = run_verb(run_simulate, simulate, {.json = true});
    ASSERT_EQ(0, played.code) << played.err;
    const auto rates = parsed(played.out).find("pass_rates");
    ASSERT_TRUE(rates);
    ASSERT_EQ(2U, rates->size()) << played.out;
    EXPECT_EQ("forward", *rates->at(0).find("pass")->as_string());
    EXPECT_GT(*rates->at(0).find("measured_flops_per_s")->as_double(), 1e6);
    EXPECT_TRUE(contains(run_verb(run_simulate, simulate).out, "Rate of one rank's passes"));
}

TEST_F(TrainVerb, ProcessesUnderMpirunTrainTheSame) {
    if (find_in_path("mpirun").empty()) GTEST_SKIP() << "there is no mpirun";
    const auto losses = [&](const std::string& backend) {
        RunVerbOptions o = options({"--steps", "3", "--deterministic"});
        o.backend = backend;
        const Answer answer = run_verb(run_run, o, {.json = true});
        std::vector<double> out;
        if (contains(answer.err, "built without MPI")) return out;
        EXPECT_EQ(0, answer.code) << answer.err;
        std::istringstream lines(answer.out);
        for (std::string line; std::getline(lines, line);) {
            if (const auto loss = parsed(line).find("loss")) out.push_back(*loss->as_double());
        }
        return out;
    };
    // Open MPI never frees what its plugins allocate, which its processes would report.
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    const std::vector<double> mpi = losses("mpi");
    ::unsetenv("ASAN_OPTIONS");
    if (mpi.empty()) GTEST_SKIP() << "built without MPI";
    ASSERT_EQ(3U, mpi.size());
    EXPECT_EQ(losses("threads"), mpi);
}

TEST_F(TrainVerb, PlanThatDoesNotFitIsRunWithAWarning) {
    EstimateOptions o;
    o.scenario.model = SHARDPLAN_SOURCE_DIR "/samples/run/tiny-gpt.json";
    o.scenario.cluster = "local-cpu";
    o.scenario.gpus = 2;
    o.scenario.stack = "shardplan-cpu";
    o.scenario.sets = {"job.precision.compute=fp32", "job.constraints.memory_cap=1 MiB"};
    o.scenario.job_fields = {{"--sequence", "sequence.max", "32"},
                             {"--global-batch", "global_batch.sequences", "8"}};
    o.layout = "dp2,mb2";
    o.output = plan_;
    ASSERT_EQ(1, run_verb(run_estimate, o).code);
    const Answer answer = run_verb(run_run, options({"--steps", "2"}));
    EXPECT_EQ(0, answer.code) << answer.err;
    EXPECT_TRUE(contains(answer.err, "warning: the plan does not fit: ")) << answer.err;
}

TEST_F(TrainVerb, OtherRanksThanThePlansSayWhatToWrite) {
    RunVerbOptions o = options({});
    o.ranks = 3;
    const Answer answer = run_verb(run_run, o);
    EXPECT_EQ(2, answer.code);
    EXPECT_TRUE(contains(answer.err, "is one of 2 ranks, not of 3"));
    EXPECT_TRUE(contains(answer.err, "write --ranks 2, or leave it out"));
    EXPECT_TRUE(contains(answer.err, "--gpus 3"));
}

TEST_F(TrainVerb, BadInputIsToldInTheChildsWords) {
    const Answer flag = run_verb(run_run, options({"--steps", "none"}));
    EXPECT_EQ(2, flag.code);
    EXPECT_TRUE(contains(flag.err, "error: --steps: \"none\" is no value for it")) << flag.err;
    const Answer file = run_verb(run_run, options({"--data", "/no/such/file"}));
    EXPECT_EQ(2, file.code) << file.err;
    EXPECT_TRUE(contains(file.err, "/no/such/file: the tokens cannot be read")) << file.err;
}

TEST_F(TrainVerb, BackEndsAndMachinesThatDoNotGoTogetherAreRefused) {
    RunVerbOptions o = options({});
    o.backend = "thread";
    const Answer unknown = run_verb(run_run, o);
    EXPECT_EQ(2, unknown.code);
    EXPECT_TRUE(contains(unknown.err, "did you mean \"threads\"?")) << unknown.err;
    o.backend = "threads";
    o.hostfile = "hosts";
    EXPECT_TRUE(contains(run_verb(run_run, o).err, "threads run on this machine alone"));
    o.hostfile.clear();
    o.plan = 2;
    EXPECT_TRUE(contains(run_verb(run_run, o).err, "there is no plan 2"));
}

TEST_F(TrainVerb, MeasurementThatCannotBeWrittenIsAnError) {
    const Answer answer =
        run_verb(run_run, options({"--measure", "/no/such/folder/m.json", "--steps", "2"}));
    EXPECT_NE(0, answer.code);
    EXPECT_TRUE(contains(answer.err, "/no/such/folder")) << answer.err;
}

} // namespace
} // namespace shardplan::plan::cli
