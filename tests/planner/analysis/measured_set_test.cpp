#include "planner/analysis/measured_set.hpp"

#include <gtest/gtest.h>

namespace shardplan::plan {
namespace {

using sim::Seconds;

/// A run whose step took `measured`, of a layout that is predicted to take `predicted`.
MeasuredRun run_of(const std::string& layout, double measured, double predicted,
                   double spread = 0.01) {
    MeasuredRun run{"tiny", layout, 2, {}};
    run.comparison.predicted = {Seconds(0.9 * predicted), Seconds(predicted),
                                Seconds(1.1 * predicted)};
    run.comparison.measured = Seconds(measured);
    run.comparison.spread = spread;
    MeasuredMemory memory;
    memory.held = {{"weights", 100.0, 100.0}, {"context", 5.0, std::nullopt}};
    memory.allocated = {"allocated", 110.0, 100.0};
    run.comparison.memory = {memory};
    return run;
}

TEST(MeasuredSet, RunsOfOneLayoutAreOneRowWithTheirMedianAndSpread) {
    const MeasuredSummary s = summarize({run_of("dp2", 0.10, 0.11), run_of("tp2", 0.2, 0.2),
                                         run_of("dp2", 0.12, 0.11), run_of("dp2", 0.11, 0.11)});
    ASSERT_EQ(2U, s.layouts.size());
    EXPECT_EQ("dp2", s.layouts[0].layout);
    EXPECT_EQ(3, s.layouts[0].runs);
    EXPECT_DOUBLE_EQ(0.11, s.layouts[0].measured.value());
    EXPECT_NEAR(0.02 / 0.11, s.layouts[0].spread, 1e-12);
    EXPECT_DOUBLE_EQ(0.0, s.layouts[0].error());
    EXPECT_DOUBLE_EQ(0.01, s.layouts[1].spread); // of its steps
}

TEST(MeasuredSet, FiguresAreThoseOfLayoutsNotOfRuns) {
    const MeasuredSummary s = summarize(
        {run_of("a", 1.0, 1.3), run_of("a", 1.0, 1.3), run_of("b", 1.0, 0.9), run_of("c", 1.0, 1)});
    EXPECT_EQ(3, s.time.rows);
    EXPECT_NEAR(0.1, s.time.median, 1e-12);
    EXPECT_NEAR(0.3, s.time.p90, 1e-12);
    EXPECT_NEAR(1.0 / 3.0, s.time.within_one, 1e-12); // 0.9 reaches up to 0.99, 1.3 down to 1.17
    EXPECT_NEAR(2.0 / 3.0, s.time.within_two, 1e-12);
    EXPECT_NEAR(0.1, s.peak.median, 1e-12);
    EXPECT_EQ(3, s.held_equal);
}

TEST(MeasuredSet, OneByteMoreHeldThanPredictedIsNotEqual) {
    MeasuredRun run = run_of("a", 1.0, 1.0);
    run.comparison.memory[0].held[0].measured = 101.0;
    EXPECT_EQ(0, summarize({run}).held_equal);
}

TEST(MeasuredSet, ChoiceIsMadeAmongSteadyLayoutsOfOneModelAndNumberOfRanks) {
    MeasuredRun alone = run_of("four", 0.01, 0.01);
    alone.ranks = 4;
    const MeasuredSummary s =
        summarize({run_of("slow", 2.0, 2.0), run_of("chosen", 1.1, 0.9), run_of("best", 1.0, 1.0),
                   run_of("unsteady", 0.5, 0.5, 0.3), alone});
    ASSERT_EQ(1U, s.choices.size());
    EXPECT_EQ("chosen", s.choices[0].chosen);
    EXPECT_EQ("best", s.choices[0].best);
    EXPECT_EQ(3, s.choices[0].layouts);
    EXPECT_NEAR(0.1, s.choices[0].regret, 1e-12);
}

} // namespace
} // namespace shardplan::plan
