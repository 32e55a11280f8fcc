#include "planner/analysis/measured.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"
#include "tests/support/measurements.hpp"

namespace shardplan::plan {
namespace {

/// A small model on two devices of a node.
struct Planned {
    sim::Evaluator evaluator;
    sim::Layout layout;
};

Planned planned(const std::string& text) {
    sim::Cluster cluster = test::dgx_h100(1);
    cluster.node_groups[0].node.devices = 2;
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(text, "layout", tables);
    const auto layout = sim::complete_layout(*parsed, 2, "layout");
    auto evaluator = sim::Evaluator::make(
        test::scenario(test::small_model(2, 4, 4), cluster, test::job(64, 8)), tables);
    EXPECT_TRUE(evaluator) << to_text(evaluator.error());
    return {std::move(*evaluator), *layout};
}

const MeasuredTerm& term(const std::vector<MeasuredTerm>& terms, const std::string& name) {
    const auto found = std::find_if(terms.begin(), terms.end(),
                                    [&](const MeasuredTerm& t) { return t.name == name; });
    static const MeasuredTerm none{"none", -1.0, -1.0};
    EXPECT_NE(terms.end(), found) << name;
    return found == terms.end() ? none : *found;
}

TEST(Measured, TimeIsThatOfTheRankThatComputesLongest) {
    const Planned plan = planned("dp2,mb1");
    const auto c = compare_measurement(plan.evaluator, plan.layout, test::run_of_two());
    ASSERT_TRUE(c) << to_text(c.error());
    EXPECT_EQ(1, c->time_rank);
    EXPECT_EQ(0.06, *term(c->time, "passes").measured);
    EXPECT_EQ(0.025, *term(c->time, "dp comm").measured);
    EXPECT_EQ(0.1, c->measured.value());
    EXPECT_EQ(3, c->steps);
    EXPECT_NEAR(0.0, c->spread, 1e-12); // of 0.1, 0.1 and 0.11 the tenths lie on the first two
}

TEST(Measured, PredictedTermsOfTimeAddUpToTheStep) {
    const Planned plan = planned("dp2,mb1");
    const auto c = compare_measurement(plan.evaluator, plan.layout, test::run_of_two());
    ASSERT_TRUE(c);
    double sum = 0.0;
    for (const MeasuredTerm& t : c->time) {
        sum += t.predicted;
    }
    EXPECT_NEAR(1.0, sum / c->predicted.value.value(), 1e-12);
}

TEST(Measured, MemoryIsThatOfTheFullestRankOfEachClass) {
    const Planned plan = planned("dp2,mb1");
    const auto c = compare_measurement(plan.evaluator, plan.layout, test::run_of_two());
    ASSERT_TRUE(c);
    ASSERT_EQ(1U, c->memory.size());
    EXPECT_EQ(1, c->memory[0].rank);
    EXPECT_EQ(501.0, *term(c->memory[0].at_peak, "activations").measured);
    EXPECT_EQ(1501.0, *c->memory[0].allocated.measured);
    EXPECT_EQ(1000.0, *term(c->memory[0].held, "weights").measured);
    EXPECT_GT(term(c->memory[0].held, "weights").predicted, 1000.0);
    EXPECT_EQ(sim::Phase::backward, c->memory[0].measured_phase);
    ASSERT_EQ(1U, c->memory[0].phases.size());
    EXPECT_EQ("backward", c->memory[0].phases[0].name);
    EXPECT_EQ(1501.0, *c->memory[0].phases[0].measured);
    EXPECT_GT(c->memory[0].phases[0].predicted, 0.0);
}

TEST(Measured, WhatLiesOutsideTheAllocatorIsNotTakenForNothing) {
    const Planned plan = planned("dp2,mb1");
    const auto c = compare_measurement(plan.evaluator, plan.layout, test::run_of_two());
    ASSERT_TRUE(c);
    EXPECT_FALSE(term(c->memory[0].at_peak, "context").known());
    EXPECT_EQ(0.0, term(c->memory[0].at_peak, "context").off());
    ASSERT_TRUE(c->furthest_memory);
    EXPECT_NE("context", c->furthest_memory->name);
}

TEST(Measured, StagesAreClassesOfTheirOwn) {
    const Planned plan = planned("pp2,dp1,mb1");
    sim::Measurement m = test::run_of_two("pp2,dp1,mb1");
    m.per_rank[1].stage = 1;
    const auto c = compare_measurement(plan.evaluator, plan.layout, m);
    ASSERT_TRUE(c);
    ASSERT_EQ(2U, c->memory.size());
    EXPECT_EQ(0, c->memory[0].rank);
    EXPECT_EQ(1, c->memory[1].rank);
    EXPECT_EQ(1, c->memory[1].stage);
    EXPECT_NE(std::string::npos, c->furthest_memory->name.find("of stage"));
}

TEST(Measured, BytesOfAllGroupsThatReduceGradientsAreOneDimension) {
    const Planned plan = planned("dp2,mb1");
    sim::Measurement m = test::run_of_two();
    m.per_rank[1].sent["replica"] = sim::Bytes(500.0);
    const auto c = compare_measurement(plan.evaluator, plan.layout, m);
    ASSERT_TRUE(c);
    ASSERT_EQ(1U, c->sent.size());
    EXPECT_EQ("dp", c->sent[0].name);
    EXPECT_EQ(2500.0, *c->sent[0].measured);
    EXPECT_GT(c->sent[0].predicted, 0.0);
}

TEST(Measured, NamesTheTermThatIsOffMost) {
    const Planned plan = planned("dp2,mb1");
    sim::Measurement m = test::run_of_two();
    m.per_rank[1].seconds[sim::TimeKind::dp_comm] = sim::Seconds(9.0);
    const auto c = compare_measurement(plan.evaluator, plan.layout, m);
    ASSERT_TRUE(c);
    ASSERT_TRUE(c->furthest_time);
    EXPECT_EQ("dp comm", c->furthest_time->name);
    EXPECT_EQ(9.0, c->furthest_time->measured);
    EXPECT_LT(c->furthest_time->share, -80.0); // of a step of 0.1 s
}

TEST(Measured, OtherRanksAndRunsWithoutStepsAreRefused) {
    const Planned plan = planned("dp2,mb1");
    sim::Measurement m = test::run_of_two();
    m.ranks = 4;
    const auto ranks = compare_measurement(plan.evaluator, plan.layout, m);
    ASSERT_FALSE(ranks);
    EXPECT_EQ("4 ranks took part, and the layout has 2", ranks.error().what);
    m.ranks = 2;
    m.settling = 4;
    EXPECT_FALSE(compare_measurement(plan.evaluator, plan.layout, m));
}

} // namespace
} // namespace shardplan::plan
