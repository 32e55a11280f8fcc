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
