#include "simulator/schedule/bubble.hpp"

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using sim::pipeline_time;
using sim::ScheduleKind;
using sim::Seconds;
using sim::StagePass;

std::vector<StagePass> equal(std::size_t stages, double f, double b, double w) {
    return {stages, StagePass{Seconds(f), Seconds(b), Seconds(w)}};
}

double bubble(ScheduleKind kind, const std::vector<StagePass>& stages, std::int64_t m,
              std::int64_t v = 1) {
    return pipeline_time(kind, stages, m, v).bubble.value();
}

TEST(Bubble, OfOneForwardOneBackwardIsTheOtherStagesOnce) {
    const auto time = pipeline_time(ScheduleKind::one_f_one_b, equal(4, 1, 1, 1), 8, 1);
    EXPECT_DOUBLE_EQ(time.bubble.value(), 3 * 3.0);
    EXPECT_DOUBLE_EQ(time.total.value(), (8 + 3) * 3.0);
}

TEST(Bubble, OfGpipeIsThatOfOneForwardOneBackward) {
    const auto stages = equal(4, 1, 2, 3);
    EXPECT_EQ(pipeline_time(ScheduleKind::gpipe, stages, 8, 1),
              pipeline_time(ScheduleKind::one_f_one_b, stages, 8, 1));
}

TEST(Bubble, IsDividedByTheChunksOfInterleaving) {
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::interleaved, equal(4, 1, 1, 1), 8, 3), 9.0 / 3.0);
}

TEST(Bubble, GrowsWhereMicroBatchesAreNoMultipleOfTheStages) {
    // 6 micro-batches on 4 stages leave 2 slots of a chunk empty in each further chunk
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::interleaved, equal(4, 1, 1, 1), 6, 2),
                     9.0 / 2.0 + 2 * 3.0 / 2.0);
}

TEST(Bubble, IsFilledWithWeightGradientsByZeroBubbleSchedules) {
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h1, equal(4, 1, 1, 1), 8), 3.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h2, equal(4, 1, 1, 1), 8), 0.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_v, equal(4, 1, 1, 1), 8, 2), 0.0);
}

TEST(Bubble, StaysWhereTooFewMicroBatchesFillIt) {
    // nothing fills the bubbles of a single micro-batch, and half as many as wanted fill one half
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h1, equal(5, 1, 1, 1), 1), 8.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h1, equal(5, 1, 1, 1), 3), 6.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h1, equal(5, 1, 1, 1), 5), 4.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h2, equal(5, 1, 1, 1), 5), 4.0);
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::zb_h2, equal(5, 1, 1, 1), 9), 0.0);
}

TEST(Bubble, NeverGrowsFasterThanThePassesItBelongsTo) {
    for (std::size_t k = 0; k < sim::EnumNames<ScheduleKind>::names.size(); ++k) {
        const auto kind = static_cast<ScheduleKind>(k);
        const std::int64_t chunks = kind == ScheduleKind::interleaved ? 2 : 1;
        for (const std::int64_t m : {1, 2, 4, 8, 32}) {
            const Seconds less = pipeline_time(kind, equal(8, 1, 1, 1), m, chunks).total;
            EXPECT_GT(pipeline_time(kind, equal(8, 1, 1, 1.25), m, chunks).total, less);
            EXPECT_GT(pipeline_time(kind, equal(8, 1, 1.25, 1), m, chunks).total, less);
            EXPECT_GT(pipeline_time(kind, equal(8, 1.25, 1, 1), m, chunks).total, less);
        }
    }
}

TEST(Bubble, OfDualPipeCountsHalfTheStages) {
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::dual_pipe, equal(8, 1, 1, 1), 16, 2), 3.0 * (1 + 2 - 1));
}

TEST(Bubble, IsBoundByTheSlowestOfUnevenStages) {
    std::vector<StagePass> stages = equal(4, 1, 1, 1);
    stages[2].forward = Seconds(2);
    const auto time = pipeline_time(ScheduleKind::one_f_one_b, stages, 10, 1);
    EXPECT_EQ(time.slowest_stage, 2);
    // sum of all stages once, and the slowest for the other nine
    EXPECT_DOUBLE_EQ(time.total.value(), 3 + 3 + 4 + 3 + 9 * 4.0);
}

TEST(Bubble, IsNothingWithoutAPipeline) {
    for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
        const auto time = pipeline_time(kind, equal(1, 1, 1, 1), 5, 1);
        EXPECT_EQ(time.bubble.value(), 0.0);
        EXPECT_DOUBLE_EQ(time.total.value(), 15.0);
    }
}

} // namespace
} // namespace shardplan::test
