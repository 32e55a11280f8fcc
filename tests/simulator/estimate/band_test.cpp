#include "simulator/estimate/band.hpp"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/io/apply_calibration.hpp"
#include "simulator/io/catalogue.hpp"
#include "tests/simulator/estimate/estimated.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::ErrorClass;
using sim::Seconds;
using sim::TimeKind;

std::size_t index(TimeKind kind) { return static_cast<std::size_t>(kind); }
double of(const sim::StepTime& time, ErrorClass c) {
    return time.sigmas[static_cast<std::size_t>(c)];
}

sim::StepTime step_of(const sim::Scenario& scenario, std::string_view layout = "tp8,sp,mb1,zero1") {
    return estimated(scenario, layout).time;
}

/// 8 s of products (10 %), 2 s of attention (20 %), 3 s of tensor-parallel traffic (links 20 %),
/// 1 s of launches (50 %): errors 1.2 s, 0.6 s and 0.5 s.
struct ByHand {
    sim::TimeSpread spread;
    sim::LinkSpread links{};
    sim::SecondsByKind exposed, hidden;

    ByHand() {
        spread.exposed[index(TimeKind::gemm)] = 0.1;
        spread.exposed[index(TimeKind::attention)] = 0.2;
        spread.exposed[index(TimeKind::launch)] = 0.5;
        links[0] = 0.2;
        exposed[TimeKind::gemm] = Seconds(8.0);
        exposed[TimeKind::attention] = Seconds(2.0);
        exposed[TimeKind::tp_comm] = Seconds(3.0);
        exposed[TimeKind::launch] = Seconds(1.0);
    }
    [[nodiscard]] sim::TimeErrors errors() const {
        return sim::time_errors(spread, links, exposed, hidden, exposed.total());
    }
};

TEST(Band, ErrorsOfAClassAddUpAndClassesAddInQuadrature) {
    const sim::TimeErrors errors = ByHand().errors();
    EXPECT_DOUBLE_EQ(errors.compute, 1.2);
    EXPECT_DOUBLE_EQ(errors.communication, 0.6);
    EXPECT_DOUBLE_EQ(errors.launch, 0.5);
    EXPECT_DOUBLE_EQ(errors.step, std::sqrt(1.2 * 1.2 + 0.6 * 0.6 + 0.5 * 0.5));
}

TEST(Band, BubbleIsAsUncertainAsThePassesItWaitsFor) {
    ByHand hand;
    const double without = hand.errors().step / hand.exposed.total().value();
    hand.exposed[TimeKind::bubble] = Seconds(6.0);
    EXPECT_DOUBLE_EQ(hand.errors().step / hand.exposed.total().value(), without);
}

TEST(Band, RecomputationIsAsUncertainAsThePassesItRepeats) {
    ByHand hand;
    hand.exposed[TimeKind::recompute] = Seconds(5.0); // half of the 10 s of passes again
    EXPECT_DOUBLE_EQ(hand.errors().compute, 1.8);
}

TEST(Band, HiddenTrafficMayBeExposedAfterAll) {
    ByHand hand;
    hand.spread.hidden[index(TimeKind::dp_comm)] = 0.2;
    hand.hidden[TimeKind::dp_comm] = Seconds(4.0);
    EXPECT_DOUBLE_EQ(hand.errors().communication, 1.0); // 0.6 and 0.8
    EXPECT_DOUBLE_EQ(hand.errors().compute, 1.2);
}

TEST(Band, ReachesOneSigmaToEitherSideOfTheStep) {
    const sim::StepTime time = step_of(llama_8b());
    EXPECT_GT(time.sigma, 0.0);
    EXPECT_DOUBLE_EQ(time.total.high / time.total.value, 1.0 + time.sigma);
    EXPECT_DOUBLE_EQ(time.total.low / time.total.value, 1.0 - time.sigma);
    const double compute = of(time, ErrorClass::compute);
    const double wire = of(time, ErrorClass::communication);
    const double launch = of(time, ErrorClass::launch);
    EXPECT_NEAR(time.sigma, std::sqrt(compute * compute + wire * wire + launch * launch), 1e-12);
}

TEST(Band, WidensWithTheSpreadOfAConstantOfItsClassAlone) {
    const sim::StepTime narrow = step_of(llama_8b());
    sim::StackProfile stack = megatron_core_stack();
    stack.time.gemm_efficiency.sigma *= 3.0;
    const sim::StepTime wide = step_of(llama_8b(stack));
    EXPECT_GT(of(wide, ErrorClass::compute), of(narrow, ErrorClass::compute));
    EXPECT_EQ(of(wide, ErrorClass::communication), of(narrow, ErrorClass::communication));
    EXPECT_EQ(of(wide, ErrorClass::launch), of(narrow, ErrorClass::launch));
    EXPECT_EQ(wide.total.value, narrow.total.value);
    sim::Scenario fabrics = llama_8b();
    for (sim::FabricProfile& fabric : fabrics.fabrics)
        fabric.bandwidth_efficiency.sigma += 0.3;
    EXPECT_GT(of(step_of(fabrics), ErrorClass::communication),
              of(narrow, ErrorClass::communication));
}

TEST(Band, LosesTheSpreadOfABandwidthThatWasMeasured) {
    sim::Scenario given = llama_8b();
    const sim::StepTime assumed = step_of(given);
    sim::LinkBandwidth& link = given.cluster.node_groups.front().node.scaleup.per_device;
    link.measured = link.physical * 0.8;
    const sim::StepTime measured = step_of(given);
    const auto relative = [](const sim::StepTime& time) {
        return of(time, ErrorClass::communication) * time.total.value.value() /
               time.exposed[TimeKind::tp_comm].value();
    };
    EXPECT_LT(relative(measured), relative(assumed));
}

TEST(Band, IsNarrowerWhereACalibrationMeasuredAConstant) {
    const auto stack = sim::load_stack("megatron-core");
    ASSERT_TRUE(stack) << sim::to_text(stack.error());
    sim::Scenario given = llama_8b(*stack);
    const sim::StepTime before = step_of(given);
    given.calibration.id = "node-a";
    given.calibration.entries = {{"stack.time.gemm_efficiency", "megatron-core",
                                  given.stack.time.gemm_efficiency.value, 0.0, 0.0, 0.01, 50,
                                  "products timed on node-a"}};
    ASSERT_TRUE(sim::apply_calibration(given));
    const sim::StepTime after = step_of(given);
    EXPECT_EQ(after.total.value, before.total.value);
    EXPECT_LT(after.sigma, before.sigma);
}

TEST(Band, CountsOnlyCalibratedConstantsOfTheScenario) {
    sim::Scenario given = llama_8b();
    EXPECT_TRUE(sim::calibrated_constants(given).empty());
    sim::CalibrationEntry entry;
    entry.value = 1.0;
    for (const char* path : {"stack.time.launch", "fabric.infiniband.ramp", "fabric.efa.ramp"}) {
        entry.path = path;
        given.calibration.entries.push_back(entry);
    }
    EXPECT_EQ(sim::calibrated_constants(given),
              (std::vector<std::string>{"stack.time.launch", "fabric.infiniband.ramp"}));
}

TEST(Band, IsWidestForAStackNobodyDescribed) {
    const auto sigma_of = [](const char* name) {
        const auto stack = sim::load_stack(name);
        EXPECT_TRUE(stack) << sim::to_text(stack.error());
        return step_of(llama_8b(*stack)).sigma;
    };
    const double generic = sigma_of("generic");
    EXPECT_GT(generic, 1.5 * sigma_of("megatron-core"));
    EXPECT_GT(generic, 1.5 * sigma_of("megatron-lm"));
}

} // namespace
} // namespace shardplan::test
