#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "planner/analysis/plot.hpp"
#include "planner/analysis/sweep.hpp"
#include "simulator/io/file.hpp"
#include "tests/planner/cli/run_verb.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::small_scenario;
using test::TemporaryFile;

double number(const sim::JsonValue& json, const char* key) {
    const auto value = json.find(key);
    EXPECT_TRUE(value) << key << " in " << json.text();
    return value ? *value->as_double() : std::nan("");
}

std::string text(const sim::JsonValue& json, const char* key) {
    const auto value = json.find(key);
    return value ? *value->as_string() : "";
}

/// A plan file of `estimate -o`.
void write_estimate_file(const TemporaryFile& file, const std::string& layout,
                         const std::vector<std::string>& sets = {}) {
    ScenarioOptions scenario = small_scenario();
    scenario.sets = sets;
    const Answer written = run_verb(run_estimate, EstimateOptions{scenario, layout, file.path()});
    ASSERT_EQ(written.code, 0) << written.err << written.out;
}

SweepOptions small_sweep(const std::string& over, const std::string& layout = "") {
    SweepOptions options;
    options.scenario = small_scenario();
    options.over = over;
    options.layout = layout;
    return options;
}

TEST(DiffVerb, TermsAddUpToTheStepAndTheLargestChangeStandsFirst) {
    const TemporaryFile a("diff-a.shardplan.json", "");
    const TemporaryFile b("diff-b.shardplan.json", "");
    write_estimate_file(a, "tp2,sp,mb1,zero1");
    write_estimate_file(b, "tp8,sp,mb1,zero1", {"job.global_batch.sequences=128"});
    const Answer answer = run_verb(run_diff, DiffOptions{a.path(), b.path()}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    for (const char* list : {"exposed_s", "memory_bytes"}) {
        const sim::JsonValue terms = *json.find(list);
        ASSERT_GE(terms.size(), 3U);
        double before = std::abs(number(terms.at(0), "change"));
        for (std::size_t i = 0; i < terms.size(); ++i) {
            const double change = std::abs(number(terms.at(i), "change"));
            EXPECT_LE(change, before) << list << " " << i;
            before = change;
        }
    }
    const sim::JsonValue time = *json.find("exposed_s");
    double sum = 0.0;
    for (std::size_t i = 0; i < time.size(); ++i) {
        sum += number(time.at(i), "b");
    }
    const auto estimate = json.find("b")->find("estimate")->find("step_time_s");
    EXPECT_NEAR(sum / number(*estimate, "value"), 1.0, 1e-12);
    const sim::JsonValue inputs = *json.find("inputs");
    ASSERT_EQ(inputs.size(), 1U) << inputs.text();
    EXPECT_EQ(text(inputs.at(0), "path"), "job.global_batch.sequences");
    EXPECT_EQ(text(inputs.at(0), "a"), "64");
    EXPECT_EQ(text(inputs.at(0), "b"), "128");
}

TEST(DiffVerb, PlanAgainstItselfHasNoDifferences) {
    const TemporaryFile a("diff-same.shardplan.json", "");
    write_estimate_file(a, "tp2,sp,mb1,zero1");
    const Answer answer = run_verb(run_diff, DiffOptions{a.path(), a.path()});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("are the same"), std::string::npos) << answer.out;
    EXPECT_EQ(answer.out.find("+"), answer.out.find("+", answer.out.find("to spare")))
        << "only the margins carry a sign\n"
        << answer.out;
}

TEST(DiffVerb, OneFileComparesItsFirstTwoPlansAndAMissingPlanIsRefused) {
    const TemporaryFile file("diff-one.shardplan.json", "");
    ASSERT_EQ(run_verb(run_plan, PlanOptions{small_scenario(), 2, "", file.path()}).code, 0);
    const Answer answer = run_verb(run_diff, DiffOptions{file.path(), ""});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("plan 2"), std::string::npos) << answer.out;
    EXPECT_EQ(answer.out.find("Inputs that differ"), std::string::npos);
    const Answer missing = run_verb(run_diff, DiffOptions{file.path(), "", 1, 9});
    EXPECT_EQ(missing.code, 2);
    EXPECT_NE(missing.err.find("there is no plan 9"), std::string::npos) << missing.err;
}

TEST(SweepVerb, BestLayoutIsFoundAtEveryPointAndMoreDevicesAreFaster) {
    const Answer answer = run_verb(run_sweep, small_sweep("gpus=8..32"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    ASSERT_EQ(points.size(), 3U);
    for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_EQ(text(*points.at(i).find("at"), "gpus"), std::to_string(8 << i));
        EXPECT_FALSE(text(points.at(i), "layout").empty());
        if (i > 0) {
            EXPECT_LT(number(points.at(i), "step_s"), number(points.at(i - 1), "step_s"));
        }
    }
}

TEST(SweepVerb, BatchKeepsItsTokensWhenTheSequenceChanges) {
    const Answer answer = run_verb(
        run_sweep, small_sweep("job.sequence=2048,8192", "tp2,sp,mb1,zero1"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    EXPECT_EQ(number(points.at(0), "global_batch"), 128.0);
    EXPECT_EQ(number(points.at(1), "global_batch"), 32.0);
}

TEST(SweepVerb, PointWhereTheLayoutIsNotLegalSaysTheRuleAndTheOthersStand) {
    const Answer answer =
        run_verb(run_sweep, small_sweep("gpus=8,24,32", "tp2,sp,mb1,zero1"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    EXPECT_EQ(text(points.at(0), "verdict"), "fits");
    EXPECT_EQ(text(points.at(1), "verdict"), "not legal"); // 64 sequences over dp 12
    EXPECT_NE(text(points.at(1), "why").find("12"), std::string::npos) << answer.out;
    EXPECT_EQ(text(points.at(2), "verdict"), "fits");
}

TEST(SweepVerb, BandwidthOfTheCardsMovesTheStepAndTakesTheUnitOfTheRange) {
    const Answer answer = run_verb(
        run_sweep,
        small_sweep("cluster.node_groups[0].node.nics.per_nic=50..200 Gbit/s", "mb1,zero1"),
        {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    ASSERT_EQ(points.size(), 3U);
    EXPECT_GT(number(points.at(0), "step_s"), number(points.at(2), "step_s"));
}

TEST(SweepVerb, ConstantOfTheStackMayLeaveItsPlausibleRange) {
    const Answer answer =
        run_verb(run_sweep, small_sweep("stack.time.dp_overlap=0,1", "mb1,zero1"), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err << answer.out;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    EXPECT_GT(number(points.at(0), "step_s"), number(points.at(1), "step_s"));
}

TEST(SweepVerb, InputWithoutEffectIsNamed) {
    const Answer answer =
        run_verb(run_sweep, small_sweep("job.tokens_to_train=1e9,1e12", "tp2,sp,mb1,zero1"));
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.err.find("no effect"), std::string::npos) << answer.err;
}

TEST(SweepVerb, ClustersAndStacksAreSweptByName) {
    const Answer answer =
        run_verb(run_sweep, small_sweep("cluster=dgx-a100,dgx-h100,gpus=8,16", "tp2,sp,mb1,zero1"),
                 {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    ASSERT_EQ(points.size(), 4U);
    EXPECT_EQ(number(points.at(3), "devices"), 16.0);
    EXPECT_GT(number(points.at(0), "step_s"), number(points.at(2), "step_s")) << "A100 and H100";
    const Answer stacks =
        run_verb(run_sweep, small_sweep("stack=megatron-core,no-such-stack", "tp2,sp,mb1,zero1"),
                 {.json = true});
    const sim::JsonValue two = *parsed(stacks.out).find("points");
    EXPECT_EQ(text(two.at(0), "verdict"), "fits");
    EXPECT_EQ(text(two.at(1), "verdict"), "no input");
}

TEST(SweepVerb, LayoutOfAPlanFileFollowsTheDevicesWithItsDp) {
    const TemporaryFile file("sweep-plan.shardplan.json", "");
    write_estimate_file(file, "tp2,sp,mb1,zero1");
    SweepOptions options;
    options.document = file.path();
    options.layout = "plan";
    options.over = "gpus=16,32";
    const Answer answer = run_verb(run_sweep, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue points = *parsed(answer.out).find("points");
    EXPECT_EQ(text(points.at(0), "layout"), "tp2,sp,dp8,mb1,zero1");
    EXPECT_EQ(text(points.at(1), "layout"), "tp2,sp,dp16,mb1,zero1");
}

TEST(SweepVerb, CsvHasAHeaderAndOneLineOfTheSameWidthPerPoint) {
    SweepOptions options = small_sweep("gpus=8..32,job.sequence=2048,4096");
    options.csv = true;
    const Answer answer = run_verb(run_sweep, options);
    ASSERT_EQ(answer.code, 0) << answer.err;
    std::istringstream lines(answer.out);
    std::string line;
    std::size_t fields = 0;
    std::size_t count = 0;
    while (std::getline(lines, line)) {
        bool quoted = false;
        std::size_t commas = 0;
        for (const char c : line) {
            quoted = quoted != (c == '"');
            commas += c == ',' && !quoted ? 1 : 0;
        }
        fields = count == 0 ? commas : fields;
        EXPECT_EQ(commas, fields) << line;
        ++count;
    }
    EXPECT_EQ(count, 7U);
    EXPECT_EQ(answer.out.rfind("gpus,job.sequence,verdict,", 0), 0U) << answer.out;
}

TEST(SweepVerb, ReportNeedsNothingButItself) {
    const TemporaryFile page("sweep.html", "");
    SweepOptions options = small_sweep("gpus=8..32,job.sequence=2048,4096");
    options.report = page.path();
    const Answer answer = run_verb(run_sweep, options);
    ASSERT_EQ(answer.code, 0) << answer.err;
    const std::string html = *sim::read_file(page.path());
    for (const char* outside : {"http:", "https:", "src=", "@import", "<script", "url("}) {
        EXPECT_EQ(html.find(outside), std::string::npos) << outside;
    }
    for (const char* words : {"<svg", "prefers-color-scheme:dark", "What fits", "Step time",
                              "job.sequence 2048", "Every point"}) {
        EXPECT_NE(html.find(words), std::string::npos) << words;
    }
}

TEST(SweepVerb, UnknownInputIsRefusedWithTheNearest) {
    const Answer gpus = run_verb(run_sweep, small_sweep("gpsu=8"));
    EXPECT_EQ(gpus.code, 2);
    EXPECT_NE(gpus.err.find("gpus"), std::string::npos) << gpus.err;
    const Answer field = run_verb(run_sweep, small_sweep("job.sequense.max=8"));
    EXPECT_EQ(field.code, 2);
    EXPECT_NE(field.err.find("job.sequence.max"), std::string::npos) << field.err;
}

TEST(SweepAxes, RangesDoubleAddOrMultiply) {
    const sim::Scenario base =
        test::scenario(test::llama_3_8b(), test::dgx_h100(2), test::job(4096, 64));
    const auto values = [&](const std::string& text) {
        const auto axes = parse_axes(text, base, "--over");
        EXPECT_TRUE(axes) << (axes ? "" : sim::to_text(axes.error()));
        return axes ? axes->front().values : std::vector<std::string>{};
    };
    using Texts = std::vector<std::string>;
    EXPECT_EQ(values("gpus=64..600"), (Texts{"64", "128", "256", "512"}));
    EXPECT_EQ(values("gpus=8..32:8"), (Texts{"8", "16", "24", "32"}));
    EXPECT_EQ(values("gpus=1..100:x10"), (Texts{"1", "10", "100"}));
    EXPECT_EQ(values("gpus=8,16..64:x2"), (Texts{"8", "16", "32", "64"}));
    EXPECT_EQ(values("device.memory_bandwidth=1..4 TB/s"), (Texts{"1 TB/s", "2 TB/s", "4 TB/s"}));
}

TEST(SweepVerb, BadValueOfAListSaysTheValueAndNotThatTheInputIsMissing) {
    const Answer answer = run_verb(run_sweep, small_sweep("job.constraints.micro_batch=abc"));
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("abc"), std::string::npos) << answer.err;
    EXPECT_EQ(answer.err.find("no input"), std::string::npos) << answer.err;
}

TEST(SweepAxes, NonsenseIsRefused) {
    const sim::Scenario base =
        test::scenario(test::llama_3_8b(), test::dgx_h100(2), test::job(4096, 64));
    for (const char* text :
         {"", "gpus", "gpus=", "=8", "gpus=64..8", "gpus=8..64:0", "gpus=8..64:x1", "gpus=0..8",
          "gpus=1..99999999:1", "gpus=8,gpus=16", "gpus=a", "job.sequence=1,gpus=1,job.name=x",
          "device.memory_bandwidth=1 GB/s..4 TB/s", "job.sequence=\xff\xfe"}) {
        EXPECT_FALSE(parse_axes(text, base, "--over")) << text;
    }
}

TEST(Plot, TicksStepByOneTwoOrFiveAndCoverTheData) {
    EXPECT_EQ(axis_ticks(9.7), (std::vector<double>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(axis_ticks(100.0), (std::vector<double>{0, 20, 40, 60, 80, 100}));
    EXPECT_EQ(axis_ticks(0.0), (std::vector<double>{0, 1}));
    EXPECT_GE(axis_ticks(1.23e7).back(), 1.23e7);
}

TEST(Plot, TextIsEscapedAndNothingIsDrawnWithoutAValue) {
    EXPECT_EQ(html_text("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    Plot plot;
    plot.x_texts = {"1", "2"};
    plot.series = {{"empty", {std::nullopt, std::nullopt}, {}, {}, false}};
    plot.y_text = [](double) { return "y"; };
    EXPECT_EQ(plot_svg(plot), "");
    plot.series.front().y = {1.0, std::nullopt};
    EXPECT_NE(plot_svg(plot).find("<circle"), std::string::npos);
}

TEST(SweepVerb, WarnsWhereTheGlobalBatchIsNotTheSameEverywhere) {
    SweepOptions options;
    options.scenario = test::small_scenario(); // 64 sequences of 4096: 262 144 tokens
    options.layout = "tp4,sp,mb1,zero1";
    options.over = "job.sequence.max=4096,5000"; // 52 sequences: 260 000 tokens
    options.csv = true;
    EXPECT_NE(run_verb(run_sweep, options).err.find("260 000 to 262 144 tokens"),
              std::string::npos);
    options.over = "job.sequence.max=4096,8192";
    EXPECT_EQ(run_verb(run_sweep, options).err.find("global batch"), std::string::npos);
    options.over = "job.global_batch.sequences=64,128";
    EXPECT_EQ(run_verb(run_sweep, options).err.find("global batch"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan::cli
