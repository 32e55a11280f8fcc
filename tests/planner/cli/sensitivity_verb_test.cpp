#include <cmath>

#include <gtest/gtest.h>

#include "planner/analysis/sensitivity.hpp"
#include "tests/planner/cli/run_verb.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;

ScenarioOptions fsdp_scenario() {
    ScenarioOptions options;
    options.model = "llama-3-8b";
    options.cluster = "dgx-h100";
    options.gpus = 64;
    options.stack = "pytorch-fsdp2";
    options.job_fields = {{"--global-batch", "global_batch.sequences", "64"},
                          {"--sequence", "sequence.max", "4096"}};
    return options;
}

SensitivityOptions fsdp_options() {
    SensitivityOptions options;
    options.scenario = fsdp_scenario();
    options.layout = "zero3,mb1";
    return options;
}

constexpr const char* card = "cluster.node_groups[0].node.nics.per_nic.physical";

TEST(SensitivityVerb, MostElasticInputStandsFirstAndPeakIsWorthAtMostItsShare) {
    const Answer answer = run_verb(run_sensitivity, fsdp_options(), {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue swings = *parsed(answer.out).find("swings");
    ASSERT_GE(swings.size(), 5U);
    double before = 10.0;
    bool has_peak = false;
    for (std::size_t i = 0; i < swings.size(); ++i) {
        const double e = *swings.at(i).find("time_elasticity")->as_double();
        EXPECT_LE(std::abs(e), before);
        before = std::abs(e);
        const std::string path = *swings.at(i).find("path")->as_string();
        if (path.find("peak_dense.bf16") != std::string::npos) {
            has_peak = true;
            EXPECT_LT(e, 0.0);
            EXPECT_GT(e, -1.0);
        }
    }
    EXPECT_TRUE(has_peak);
}

TEST(SensitivityVerb, InputsWithoutEffectAreListed) {
    const Answer answer = run_verb(run_sensitivity, fsdp_options());
    ASSERT_EQ(answer.code, 0) << answer.err;
    const std::size_t heading = answer.out.find("Without effect");
    ASSERT_NE(heading, std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("devices[0].peak_dense.fp8", heading), std::string::npos);
    EXPECT_EQ(answer.out.find("devices[0].memory_visible", heading), std::string::npos)
        << "the memory of the device moves the margin";
}

TEST(SensitivityVerb, BandwidthForAnEfficiencyIsTheThreshold) {
    SensitivityOptions options = fsdp_options();
    options.efficiency = "0.8";
    options.solve = card;
    const Answer answer = run_verb(run_sensitivity, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err << answer.out;
    const sim::JsonValue solved = parsed(answer.out).find("inputs")->at(0);
    ASSERT_EQ(*solved.find("result")->as_string(), "found") << answer.out;
    const double needed = *solved.find("value")->as_double();
    EXPECT_NEAR(*solved.find("figure")->as_double(), 0.8, 0.002);
    // A sweep across it agrees: below the share is missed, above it is reached.
    SweepOptions sweep;
    sweep.scenario = options.scenario;
    sweep.layout = options.layout;
    sweep.over = std::string(card) + "=" + std::to_string(needed * 0.95 / 1e9) + " GB/s," +
                 std::to_string(needed * 1.05 / 1e9) + " GB/s";
    const Answer points = run_verb(run_sweep, sweep, {.json = true});
    ASSERT_EQ(points.code, 0) << points.err;
    const sim::JsonValue list = *parsed(points.out).find("points");
    EXPECT_GT(*list.at(0).find("communication_share")->as_double(), 0.2);
    EXPECT_LT(*list.at(1).find("communication_share")->as_double(), 0.2);
}

TEST(SensitivityVerb, TargetOutOfReachIsANoWithTheBestThatIsPossible) {
    SensitivityOptions options = fsdp_options();
    options.target = "mfu=0.99";
    options.solve = card;
    const Answer answer = run_verb(run_sensitivity, options);
    EXPECT_EQ(answer.code, 1) << answer.out;
    EXPECT_NE(answer.out.find("not reached: mfu"), std::string::npos) << answer.out;
}

TEST(SensitivityVerb, SlowerDeviceIsNoAnswerToMoreUtilization) {
    SensitivityOptions options = fsdp_options();
    options.target = "mfu=0.55";
    const Answer answer = run_verb(run_sensitivity, options, {.json = true});
    const sim::JsonValue inputs = *parsed(answer.out).find("inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_NE(*inputs.at(i).find("path")->as_string(), "devices[0].peak_dense.bf16");
    }
}

TEST(SensitivityVerb, BadTargetsAndSwingsAreRefused) {
    for (const char* target : {"mfu", "mfu=2", "mfu=-1", "mfu=x", "speed=3", "step=2", "=1"}) {
        SensitivityOptions options = fsdp_options();
        options.target = target;
        EXPECT_EQ(run_verb(run_sensitivity, options).code, 2) << target;
    }
    for (const char* by : {"", "0", "-5%", "100%", "much"}) {
        SensitivityOptions options = fsdp_options();
        options.by = by;
        EXPECT_EQ(run_verb(run_sensitivity, options).code, 2) << by;
    }
    SensitivityOptions whole_number = fsdp_options();
    whole_number.efficiency = "0.5";
    whole_number.solve = "cluster.node_groups[0].node.nics.count";
    const Answer answer = run_verb(run_sensitivity, whole_number);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("sweep"), std::string::npos) << answer.err;
}

TEST(Sensitivity, TwiceTheStepForTwiceTheBatch) {
    const sim::Scenario base =
        test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(4096, 512));
    const auto result = sensitivity(base, {}, {"tp2,sp,dp4,mb1,zero1", 0.25});
    ASSERT_TRUE(result) << sim::to_text(result.error());
    for (const Swing& swing : result->swings) {
        if (swing.input.path == "job.global_batch.sequences") {
            EXPECT_NEAR(swing.time_elasticity, 1.0, 0.02);
            EXPECT_NEAR(swing.speed_elasticity, 0.0, 0.02);
            return;
        }
    }
    FAIL() << "the batch was not swung";
}

TEST(Vary, PhysicalBandwidthTakesTheAchievableOneAlong) {
    sim::Scenario base =
        test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(4096, 512));
    sim::LinkBandwidth& link = base.devices.front().memory_bandwidth;
    link.physical = sim::Bandwidth(4e12);
    link.achievable = sim::Bandwidth(3e12);
    const auto half =
        vary(base, std::vector{FieldSetting{"device.memory_bandwidth", "2 TB/s"}}, {}, "test");
    ASSERT_TRUE(half) << sim::to_text(half.error());
    EXPECT_DOUBLE_EQ(half->devices.front().memory_bandwidth.physical.value(), 2e12);
    EXPECT_DOUBLE_EQ(half->devices.front().memory_bandwidth.achievable->value(), 1.5e12);
}

TEST(Leaves, ConstantIsOneLeafWithItsUnitAndRange) {
    sim::Scenario base =
        test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(4096, 512));
    base.stack.time.launch = {5e-6, "s", sim::Origin::assumed, "a test", "", 2e-6, 9e-6, 0.3};
    const auto leaves = leaves_of(base);
    const auto paths = full_paths(leaves, "stack.time.launch", "test");
    ASSERT_TRUE(paths) << sim::to_text(paths.error());
    const Leaf* leaf = find_leaf(leaves, paths->front());
    ASSERT_NE(leaf, nullptr);
    EXPECT_EQ(leaf->path, "stack.time.launch.value");
    EXPECT_EQ(shown_text(*leaf, leaf->value), "5.00 us");
    EXPECT_EQ(leaf->range, (PlausibleRange{2e-6, 9e-6}));
    EXPECT_EQ(find_leaf(leaves, "stack.time.launch.source"), nullptr);
    EXPECT_EQ(find_leaf(leaves, "stack.time.launch.lo"), nullptr);
}

} // namespace
} // namespace shardplan::plan::cli
