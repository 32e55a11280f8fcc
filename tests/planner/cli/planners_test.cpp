#include <functional>

#include <gtest/gtest.h>

#include "planner/cli/inputs.hpp"
#include "simulator/io/document.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::small_scenario;
using test::TemporaryFile;

TEST(EstimateVerb, FirstScreenSaysWhatMatters) {
    const Answer answer =
        run_verb(run_estimate, EstimateOptions{small_scenario(), "tp2,sp,mb1,zero1", ""});
    ASSERT_EQ(answer.code, 0) << answer.err << answer.out;
    for (const char* words :
         {"8 030 261 248 parameters", "megatron-core", "tp2,sp,dp8,mb1,zero1", "fits",
          "GiB to spare", "largest:", "step time", "tokens/s", "MFU", "bf16"}) {
        EXPECT_NE(answer.out.find(words), std::string::npos) << words << "\n" << answer.out;
    }
    EXPECT_EQ(answer.out.find('\x1b'), std::string::npos);
}

TEST(EstimateVerb, JsonIsOneValueAndTheVerdictIsInIt) {
    const Answer answer = run_verb(
        run_estimate, EstimateOptions{small_scenario(), "tp2,sp,mb1,zero1", ""}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_EQ(*json.find("estimate")->find("verdict")->as_string(), "fits");
    EXPECT_EQ(*json.find("model")->find("total")->as_int(), 8030261248);
}

TEST(EstimateVerb, IllegalLayoutIsANoWithTheNearestLegalValue) {
    const EstimateOptions options{small_scenario(), "tp16,mb1,zero1", ""};
    const Answer answer = run_verb(run_estimate, options);
    EXPECT_EQ(answer.code, 1);
    EXPECT_NE(answer.out.find("not legal"), std::string::npos);
    EXPECT_NE(answer.out.find("nearest legal"), std::string::npos) << answer.out;
    EXPECT_EQ(run_verb(run_estimate, options, {.exit_zero = true}).code, 0);
    const Answer json = run_verb(run_estimate, options, {.json = true});
    EXPECT_GE(parsed(json.out).find("refusals")->size(), 1U);
}

TEST(EstimateVerb, LayoutThatDoesNotFitIsANo) {
    ScenarioOptions scenario = small_scenario();
    scenario.model = "llama-3-70b";
    const Answer answer = run_verb(run_estimate, EstimateOptions{scenario, "mb1,zero1", ""});
    EXPECT_EQ(answer.code, 1) << answer.out;
    EXPECT_NE(answer.out.find("does not fit"), std::string::npos);
    EXPECT_NE(answer.out.find("too much"), std::string::npos);
}

TEST(EstimateVerb, ContradictingDpIsBadInputAndSaysBothFigures) {
    const Answer answer =
        run_verb(run_estimate, EstimateOptions{small_scenario(), "tp2,dp4,mb1", ""});
    EXPECT_EQ(answer.code, 2);
    EXPECT_TRUE(answer.out.empty());
    EXPECT_NE(answer.err.find("16"), std::string::npos) << answer.err;
    EXPECT_NE(answer.err.find("hint:"), std::string::npos) << answer.err;
}

TEST(PlanVerb, StacksWithoutANameBesideACommaAreRefused) {
    PlanOptions options;
    options.scenario.model = "llama-3-8b";
    options.scenario.cluster = "dgx-h100";
    options.scenario.gpus = 8;
    for (const char* stacks : {",", "megatron-core,", ",deepspeed"}) {
        options.scenario.stack = stacks;
        const Answer answer = run_verb(run_plan, options);
        EXPECT_EQ(answer.code, 2) << stacks;
        EXPECT_NE(answer.err.find("a name is missing beside a comma"), std::string::npos)
            << answer.err;
    }
}

TEST(PlanVerb, RanksLayoutsWithReasonsAndCounts) {
    const Answer answer = run_verb(run_plan, PlanOptions{small_scenario(), 3, "", ""});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("Ranked"), std::string::npos);
    EXPECT_NE(answer.out.find("fastest"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find(" legal; "), std::string::npos);
    EXPECT_NE(answer.out.find(" do not fit"), std::string::npos);
}

TEST(PlanVerb, PlansOfTheJsonAreSortedByTheObjective) {
    const Answer answer =
        run_verb(run_plan, PlanOptions{small_scenario(), 5, "time", ""}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue plans = *parsed(answer.out).find("plans");
    ASSERT_EQ(plans.size(), 5U);
    double before = 0.0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const double step =
            *plans.at(i).find("estimate")->find("step_time_s")->find("value")->as_double();
        EXPECT_GE(step, before);
        before = step;
    }
}

TEST(PlanVerb, SeveralStacksAreRankedTogetherAndTheWinnerIsExplained) {
    ScenarioOptions given = small_scenario();
    given.stack = "pytorch-fsdp2,megatron-core";
    const Answer answer = run_verb(run_plan, PlanOptions{given, 3, "", ""}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    const sim::JsonValue plans = *json.find("plans");
    ASSERT_EQ(plans.size(), 3U);
    double before = 0.0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const sim::JsonValue estimate = *plans.at(i).find("estimate");
        const std::string stack = *plans.at(i).find("stack")->as_string();
        EXPECT_TRUE(estimate.find("layout")->as_string()->ends_with(",stack=" + stack));
        const double step = *estimate.find("step_time_s")->find("value")->as_double();
        EXPECT_GE(step, before);
        before = step;
    }
    EXPECT_EQ(*json.find("stack")->find("name")->as_string(),
              *plans.at(0).find("stack")->as_string());
    EXPECT_EQ(json.find("stacks")->size(), 2U);

    const Answer text = run_verb(run_plan, PlanOptions{given, 3, "", ""});
    EXPECT_NE(text.out.find("Against the best of each other stack"), std::string::npos);
    EXPECT_NE(text.out.find(" more "), std::string::npos);
    given.stack = "megatron-core,megatrno";
    EXPECT_EQ(run_verb(run_plan, PlanOptions{given, 3, "", ""}).code, 2);
}

TEST(PlanVerb, ExampleOfARefusalKeepsToWhatTheJobInsistsOn) {
    ScenarioOptions given = small_scenario();
    given.job_fields = {{"--tp", "constraints.tp", "3"}};
    const Answer answer = run_verb(run_plan, PlanOptions{given, 3, "", ""});
    EXPECT_EQ(answer.code, 1);
    EXPECT_NE(answer.out.find("tp 3 does not divide 32 attention heads"), std::string::npos)
        << answer.out;
    EXPECT_EQ(answer.out.find("nearest legal: tp3"), std::string::npos) << answer.out;
}

TEST(PlanVerb, NodesMayIdleWhereTheJobAllowsIt) {
    ScenarioOptions given = small_scenario();
    given.job_fields = {{"--global-batch", "global_batch.sequences", "64"}};
    const auto legal = [&] {
        const Answer answer = run_verb(run_plan, PlanOptions{given, 1, "", ""}, {.json = true});
        EXPECT_EQ(answer.code, 0) << answer.err;
        return *parsed(answer.out).find("counts")->find("legal")->as_int();
    };
    const std::int64_t of_all = legal();
    given.gpus = 8;
    const std::int64_t of_one_node = legal();
    given.gpus = 16;
    given.job_fields.push_back({"--idle", "constraints.idle_devices", "true"});
    EXPECT_EQ(legal(), of_all + of_one_node);
}

TEST(PlanVerb, NothingFitsIsANoWithTheTermInTheWay) {
    ScenarioOptions scenario = small_scenario();
    scenario.model = "llama-3.1-405b";
    scenario.gpus = 8;
    const Answer answer = run_verb(run_plan, PlanOptions{scenario, 3, "", ""});
    EXPECT_EQ(answer.code, 1);
    EXPECT_NE(answer.out.find("no layout fits"), std::string::npos);
    EXPECT_NE(answer.out.find("Closest"), std::string::npos) << answer.out;
}

TEST(PlanVerb, DefaultsAreNamedAsAssumptions) {
    ScenarioOptions scenario;
    scenario.model = "llama-3-8b";
    scenario.cluster = "dgx-h100";
    scenario.gpus = 8;
    const Answer answer = run_verb(run_plan, PlanOptions{scenario, 1, "", ""});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("Assumed"), std::string::npos);
    EXPECT_NE(answer.out.find("512 sequences (4 194 304 tokens)"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("give --stack"), std::string::npos) << answer.out;
}

TEST(PlanVerb, UnknownDeviceIsRefusedUnlessItsFiguresAreGiven) {
    ScenarioOptions scenario = small_scenario();
    scenario.sets = {"cluster.node_groups[0].node.device=my-accelerator-9"};
    const Answer refused = run_verb(run_plan, PlanOptions{scenario, 1, "", ""});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("--device-peak"), std::string::npos) << refused.err;

    scenario.device_peak = "500 TFLOP/s";
    scenario.device_memory = "96 GiB";
    scenario.device_bandwidth = "3000 GB/s";
    const Answer answer = run_verb(run_plan, PlanOptions{scenario, 1, "", ""});
    EXPECT_EQ(answer.code, 0) << answer.err;
}

TEST(PlanVerb, UnknownFeatureAndObjectiveAreRefusedWithTheNearest) {
    ScenarioOptions scenario = small_scenario();
    scenario.features = {"flash-atn-2"};
    const Answer feature = run_verb(run_plan, PlanOptions{scenario, 1, "", ""});
    EXPECT_EQ(feature.code, 2);
    EXPECT_NE(feature.err.find("flash-attn-2"), std::string::npos) << feature.err;
    const Answer objective = run_verb(run_plan, PlanOptions{small_scenario(), 1, "money", ""});
    EXPECT_EQ(objective.code, 2);
    EXPECT_NE(objective.err.find("--objective"), std::string::npos);
}

TEST(PlanVerb, DocumentIsReadBackByExplain) {
    const TemporaryFile file("plan.shardplan.json", "");
    const Answer written = run_verb(run_plan, PlanOptions{small_scenario(), 2, "", file.path()});
    ASSERT_EQ(written.code, 0) << written.err;
    const auto document = sim::read_document_file(file.path());
    ASSERT_TRUE(document) << sim::to_text(document.error());
    EXPECT_EQ(document->plans.size(), 2U);

    ExplainOptions options;
    options.document = file.path();
    options.plan = 2;
    const Answer answer = run_verb(run_explain, options);
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find(document->plans[1].layout), std::string::npos);

    options.plan = 3;
    EXPECT_EQ(run_verb(run_explain, options).code, 2);
}

TEST(ExplainVerb, LeavesOfTheJsonAddUpToTheFigure) {
    ExplainOptions options;
    options.scenario = small_scenario();
    options.layout = "tp2,sp,mb1,zero1";
    const Answer answer = run_verb(run_explain, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue term = *parsed(answer.out).find("term");
    const std::function<double(const sim::JsonValue&)> leaves = [&](const sim::JsonValue& t) {
        const sim::JsonValue children = *t.find("children");
        double sum = children.size() == 0 ? *t.find("value")->as_double() : 0.0;
        for (std::size_t i = 0; i < children.size(); ++i) {
            sum += leaves(children.at(i));
        }
        return sum;
    };
    const double value = *term.find("value")->as_double();
    EXPECT_GT(value, 0.0);
    EXPECT_NEAR(leaves(term) / value, 1.0, 1e-12);
}

TEST(ExplainVerb, UnknownTermIsRefusedWithTheNearest) {
    ExplainOptions options;
    options.scenario = small_scenario();
    options.layout = "tp2,sp,mb1,zero1";
    options.term = "memroy";
    const Answer answer = run_verb(run_explain, options);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("memory"), std::string::npos) << answer.err;
}

TEST(Inputs, DefaultBatchIsAboutFourMillionTokensThatOddCountsDivide) {
    EXPECT_EQ(default_batch(8192, 512).sequences, 512);
    EXPECT_EQ(default_batch(4096, 64).sequences, 1024);
    // Odd numbers of nodes of 8: every device can have its own sequences, and its own micro-batch.
    for (const std::int64_t devices : {24, 72, 104, 472}) {
        EXPECT_EQ(default_batch(8192, devices).sequences % devices, 0) << devices;
        EXPECT_NEAR(static_cast<double>(default_batch(8192, devices).sequences), 512.0, 64.0);
    }
    EXPECT_EQ(default_batch(8192, 131 * 8).sequences, 4 * 131); // of 1048 devices 524 share it
    EXPECT_GE(default_batch(1 << 30, 1).sequences, 1);
}

TEST(Inputs, BatchFlagReplacesTheBatchOfTheJobFile) {
    ScenarioOptions options = small_scenario();
    options.job = "pretrain-4m-tokens";
    const auto scenario = scenario_from(options);
    ASSERT_TRUE(scenario) << sim::to_text(scenario.error());
    EXPECT_EQ(scenario->job.global_batch.sequences, 64);
    EXPECT_EQ(scenario->job.global_batch.tokens, 0);
}

TEST(Inputs, SettingsOfEveryRootAreApplied) {
    ScenarioOptions options = small_scenario();
    options.sets = {"job.tokens_to_train=1e12", "cluster.fabric.rails=false",
                    "model.hidden_dropout=0.1", "stack.capabilities.uneven_stages=true"};
    const auto scenario = scenario_from(options);
    ASSERT_TRUE(scenario) << sim::to_text(scenario.error());
    EXPECT_DOUBLE_EQ(scenario->job.tokens_to_train, 1e12);
    EXPECT_FALSE(scenario->cluster.fabric.rails);
    EXPECT_DOUBLE_EQ(scenario->model.hidden_dropout, 0.1);
    EXPECT_TRUE(scenario->stack.capabilities.uneven_stages);
}

TEST(Inputs, SettingWithoutAPathIsRefused) {
    for (const char* text : {"job", "job=1", "job.=1", ".x=1", "planet.mass=1"}) {
        EXPECT_FALSE(check_sets({text}, {"job", "model"})) << text;
    }
    EXPECT_TRUE(check_sets({"job.name=a.b=c"}, {"job"}));
}

} // namespace
} // namespace shardplan::plan::cli
