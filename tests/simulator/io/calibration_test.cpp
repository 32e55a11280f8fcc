#include <gtest/gtest.h>

#include "simulator/io/apply_calibration.hpp"
#include "simulator/io/catalogue.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

Scenario with_entry(const CalibrationEntry& entry) {
    auto stack = load_stack("generic");
    EXPECT_TRUE(stack) << to_text(stack.error());
    Scenario scenario =
        test::scenario(test::llama_3_8b(), test::dgx_h100(2), test::job(4096, 64), *stack);
    auto fabric = load_fabric("infiniband");
    EXPECT_TRUE(fabric) << to_text(fabric.error());
    scenario.fabrics = {*fabric};
    scenario.calibration.entries = {entry};
    return scenario;
}

TEST(Calibration, MeasuredValuesReplaceTheConstantsTheyName) {
    Scenario scenario = with_entry({"stack.time.step_overhead", "", 0.25, 0, 0, 0.1, 5, "probe"});
    ASSERT_TRUE(apply_calibration(scenario));
    const Constant& c = scenario.stack.time.step_overhead;
    EXPECT_EQ(c.value, 0.25);
    EXPECT_DOUBLE_EQ(c.lo, 0.225);
    EXPECT_EQ(c.origin, Origin::own_measurement);
    EXPECT_EQ(c.source, "probe");

    scenario = with_entry({"fabric.infiniband.step_latency", "", 3e-6, 0, 0, 0.0, 5, ""});
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.fabrics.front().step_latency.value, 3e-6);
}

TEST(Calibration, SaysOnHowManyProcessorsTheDevicesOfANodeCompute) {
    Scenario scenario = with_entry({"node.processors", "H100-SXM-80GB", 4, 0, 0, 0.0, 1, "sweep"});
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.cluster.node_groups[0].node.processors, 4);
    scenario.calibration.entries[0].subject = "another";
    scenario.cluster.node_groups[0].node.processors = 0;
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.cluster.node_groups[0].node.processors, 0);
    scenario.calibration.entries[0].path = "cluster.processors";
    scenario.calibration.entries[0].subject = "";
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.cluster.processors, 4);
    EXPECT_EQ(scenario.cluster.node_groups[0].node.processors, 0);
    for (const double none : {0.0, 1.5, -2.0, 1e9}) {
        scenario.calibration.entries[0] = {"node.processors", "", none, 0, 0, 0.0, 1, "sweep"};
        const Status status = apply_calibration(scenario);
        ASSERT_FALSE(status) << none;
        EXPECT_NE(status.error().hint.find("compute at once"), std::string::npos);
    }
}

TEST(Calibration, EntriesOfOtherStacksAndDevicesAreLeftAlone) {
    CalibrationEntry entry{"stack.time.step_overhead", "nanotron", 0.25, 0, 0, 0.1, 5, "probe"};
    Scenario scenario = with_entry(entry);
    const Scenario before = scenario;
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario, before);
    scenario.stack.derived_from = "nanotron"; // a profile of the user's own
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.stack.time.step_overhead.value, 0.25);

    entry = {"device.compute.matrix_efficiency", "H100-SXM-80GB", 0.6, 0, 0, 0.1, 5, "probe"};
    scenario = with_entry(entry);
    ASSERT_EQ(scenario.devices.front().name, "H100-SXM-80GB");
    scenario.devices.front().compute = *load_architecture("hopper");
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.devices.front().compute.matrix_efficiency.value, 0.6);
    scenario.devices.front().name = "another";
    scenario.calibration.entries.front().value = 0.5;
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(scenario.devices.front().compute.matrix_efficiency.value, 0.6);
}

TEST(Calibration, WhatIsFittedToRunsKeepsTheRangeAndGivesWayToAnythingHarder) {
    CalibrationEntry entry{"stack.time.step_overhead", "", 0.02, 0, 0, 0.4, 5, "runs"};
    entry.origin = Origin::fitted_to_runs;
    entry.unconfirmed = true;
    Scenario scenario = with_entry(entry);
    Constant& c = scenario.stack.time.step_overhead;
    c.origin = Origin::fitted_to_runs;
    c.lo = 0.005;
    c.hi = 0.04;
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(c.value, 0.02);
    EXPECT_EQ(c.lo, 0.005);
    EXPECT_EQ(c.hi, 0.04);
    EXPECT_EQ(c.sigma, 0.4);
    EXPECT_EQ(c.origin, Origin::fitted_to_runs);
    EXPECT_TRUE(c.unconfirmed);

    c.origin = Origin::own_measurement;
    c.unconfirmed = false;
    scenario.calibration.entries.front().value = 0.03;
    ASSERT_TRUE(apply_calibration(scenario));
    EXPECT_EQ(c.value, 0.02);
}

TEST(Calibration, PathsThatNameNothingAndValuesThatCannotBeAreRefused) {
    Scenario scenario = with_entry({"no.such.thing", "", 1.0, 0, 0, 0.0, 1, ""});
    EXPECT_FALSE(apply_calibration(scenario));
    scenario = with_entry({"stack.time.gem_efficiency", "", 0.5, 0, 0, 0.0, 1, ""});
    const Status near = apply_calibration(scenario);
    ASSERT_FALSE(near);
    EXPECT_NE(near.error().hint.find("gemm_efficiency"), std::string::npos);
    scenario = with_entry({"stack.time.step_overhead", "", -5.0, 0, 0, 0.0, 1, ""});
    EXPECT_FALSE(apply_calibration(scenario));
}

} // namespace
} // namespace shardplan::sim
