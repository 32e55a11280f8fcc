#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "planner/cli/gantt.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;

SimulateVerbOptions options(const std::string& layout) {
    SimulateVerbOptions out;
    out.scenario.model = "llama-3-8b";
    out.scenario.cluster = "dgx-h100";
    out.scenario.gpus = 16;
    out.scenario.stack = "megatron-core";
    out.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "32"},
                               {"--sequence", "sequence.max", "4096"}};
    out.layout = layout;
    return out;
}

double number(const sim::JsonValue& json, const char* key) { return *json.find(key)->as_double(); }

TEST(SimulateVerb, SaysTheStepBesideTheEstimateAndWhatStagesWaitFor) {
    const Answer answer =
        run_verb(run_simulate, options("tp2,sp,pp4,dp2,mb1,zero1"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_NEAR(1.0, number(json, "simulated_step_time_s") / number(json, "estimated_step_time_s"),
                0.02);
    const sim::JsonValue stages = *json.find("stages");
    ASSERT_EQ(4U, stages.size());
    EXPECT_GT(number(*stages.at(0).find("waits"), "bubble_s"), 0.0);
    const sim::JsonValue peaks = *json.find("memory_peaks");
    ASSERT_EQ(4U, peaks.size());
    EXPECT_GT(number(*peaks.at(0).find("kinds"), "activations"), 0.0);
}

TEST(SimulateVerb, DrawsOneRowPerStage) {
    const Answer answer = run_verb(run_simulate, options("tp2,sp,pp4,dp2,mb1,zero1"));
    ASSERT_EQ(answer.code, 0) << answer.err;
    for (const char* row : {"\n    0  F", "\n    1  .", "\n    2  .", "\n    3  ."}) {
        EXPECT_NE(std::string::npos, answer.out.find(row)) << row;
    }
    EXPECT_NE(std::string::npos, answer.out.find("on the critical path"));
}

TEST(SimulateVerb, WritesATraceAndAPage) {
    const auto folder = std::filesystem::temp_directory_path() /
                        ("shardplan-simulate-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    SimulateVerbOptions o = options("tp2,pp2,v2,dp4,mb1");
    o.trace = (folder / "trace.json").string();
    o.html = (folder / "page.html").string();
    const Answer answer = run_verb(run_simulate, o);
    EXPECT_EQ(answer.code, 0) << answer.err;
    const auto read = [](const std::string& path) {
        std::ifstream in(path);
        std::ostringstream out;
        out << in.rdbuf();
        return out.str();
    };
    EXPECT_GT(parsed(read(o.trace)).find("traceEvents")->size(), 100U);
    const std::string page = read(o.html);
    EXPECT_EQ(0U, page.find("<!doctype html>"));
    // self-contained: nothing is loaded from anywhere
    EXPECT_EQ(std::string::npos, page.find("src="));
    EXPECT_EQ(std::string::npos, page.find("http"));
    EXPECT_NE(std::string::npos, page.find("stage 1 compute"));
    std::filesystem::remove_all(folder);
}

TEST(SimulateVerb, PlayingEveryRankTakesAsLongAsPlayingOnePerClass) {
    SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
    const Answer one = run_verb(run_simulate, o, {.json = true});
    o.every_rank = true;
    const Answer every = run_verb(run_simulate, o, {.json = true});
    ASSERT_EQ(every.code, 0) << every.err;
    EXPECT_EQ(number(parsed(one.out), "simulated_step_time_s"),
              number(parsed(every.out), "simulated_step_time_s"));
    EXPECT_EQ(8.0 * number(parsed(one.out), "tasks"), number(parsed(every.out), "tasks"));
    o.stragglers = "5%";
    const Answer slow = run_verb(run_simulate, o, {.json = true});
    EXPECT_GT(number(parsed(slow.out), "simulated_step_time_s"),
              number(parsed(every.out), "simulated_step_time_s"));
}

TEST(SimulateVerb, ComparesTheStepWithOneThingChanged) {
    SimulateVerbOptions o = options("tp2,sp,pp4,dp2,mb1,zero1");
    o.what_if = {"stages=9-8-8-7"};
    const Answer text = run_verb(run_simulate, o);
    ASSERT_EQ(text.code, 0) << text.err;
    for (const char* shown : {"what moves most is waits: ", "9-8-8-7", "Critical path",
                              "Step of an average stage", "critical path  "}) {
        EXPECT_NE(std::string::npos, text.out.find(shown)) << shown;
    }
    const Answer answer = run_verb(run_simulate, o, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    const double before = number(*json.find("before"), "simulated_step_time_s");
    const double after = number(*json.find("after"), "simulated_step_time_s");
    EXPECT_NE(before, after);
    const sim::JsonValue terms = *json.find("change")->find("average_stage_s");
    double moved = 0.0;
    for (std::size_t i = 0; i < terms.size(); ++i)
        moved += number(terms.at(i), "change");
    EXPECT_NEAR(after - before, moved, 1e-8 * before);
    // the changed step is the one that the layout itself gives
    const Answer own =
        run_verb(run_simulate, options("tp2,sp,pp4,dp2,mb1,zero1,stages=9-8-8-7"), {.json = true});
    EXPECT_EQ(after, number(parsed(own.out), "simulated_step_time_s"));
}

TEST(SimulateVerb, RefusesAChangeThatMeansNothingAndATimelineOfTwoSteps) {
    SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
    o.what_if = {"stages=1-2-3"};
    const Answer stages = run_verb(run_simulate, o);
    EXPECT_EQ(stages.code, 2);
    EXPECT_NE(std::string::npos, stages.err.find("--what-if")) << stages.err;
    o.what_if = {"mb2"};
    o.html = "x.html";
    const Answer page = run_verb(run_simulate, o);
    EXPECT_EQ(page.code, 2);
    EXPECT_NE(std::string::npos, page.err.find("leave out --trace and --html")) << page.err;
}

TEST(SimulateVerb, SaysWhatToDoWhereTheBoundOnEventsIsHit) {
    SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
    o.most_events = 10;
    const Answer answer = run_verb(run_simulate, o);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(std::string::npos, answer.err.find("--max-events 10"));
    EXPECT_NE(std::string::npos, answer.err.find("allow more events"));
}

TEST(SimulateVerb, RefusesMoreMicroBatchesThanMemoryHolds) {
    SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
    o.scenario.job_fields[0].value = "100000000";
    const Answer answer = run_verb(run_simulate, o);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(std::string::npos, answer.err.find("more than 25000000 tasks")) << answer.err;
}

TEST(SimulateVerb, RefusesBoundsSeedsSpreadsAndFilesThatMeanNothing) {
    const auto refusal = [](auto change) {
        SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
        change(o);
        const Answer answer = run_verb(run_simulate, o);
        EXPECT_EQ(answer.code, 2);
        return answer.err;
    };
    const auto names = [](const std::string& text, const char* flag) {
        return text.find(flag) != std::string::npos;
    };
    EXPECT_TRUE(names(refusal([](auto& o) { o.most_events = 0; }), "--max-events"));
    EXPECT_TRUE(names(refusal([](auto& o) { o.seed = -1; }), "--seed"));
    EXPECT_TRUE(names(refusal([](auto& o) { o.stragglers = "1000%"; }), "--stragglers"));
    EXPECT_TRUE(names(refusal([](auto& o) { o.trace = "-"; }), "--trace"));
    EXPECT_TRUE(names(refusal([](auto& o) { o.trace = o.html = "x.json"; }), "--html"));
}

TEST(SimulateVerb, RefusesASpreadThatIsNoShare) {
    SimulateVerbOptions o = options("tp2,pp2,dp4,mb1");
    o.stragglers = "much";
    const Answer answer = run_verb(run_simulate, o);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(std::string::npos, answer.err.find("--stragglers"));
}

} // namespace
} // namespace shardplan::plan::cli
