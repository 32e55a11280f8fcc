#include "simulator/schedule/bubble.hpp"

#include <random>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using sim::name_of;
using sim::pipeline_time;
using sim::PipelinePasses;
using sim::PipelineRoom;
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
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::interleaved, equal(4, 1, 2, 1), 8, 4), 12.0 / 4.0);
}

TEST(Bubble, OfInterleavingDoesNotGrowWhereGroupsAreLargerThanThePipeline) {
    // 6 micro-batches on 4 stages go as one group of 6
    EXPECT_DOUBLE_EQ(bubble(ScheduleKind::interleaved, equal(4, 1, 2, 1), 6, 2), 12.0 / 2.0);
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

TEST(Bubble, OfDualPipeIsNoMoreThanItsAuthorsState) {
    // (p / 2 - 1) (F and B + B - 3 W), B with its weight pass (DeepSeek-V3, table 2): an upper
    // bound where F and B of the main phase take turns and need not end together
    for (const std::int64_t p : {4, 8, 16}) {
        for (const std::int64_t m : {2 * p, 4 * p, 32 * p}) {
            const double played =
                bubble(ScheduleKind::dual_pipe, equal(static_cast<std::size_t>(p), 1, 1, 1), m, 2);
            const auto half = static_cast<double>(p) / 2.0;
            EXPECT_GT(played, 0.0);
            EXPECT_LE(played, (half - 1.0) * (1 + 2 + 2 - 3)) << "p" << p << " m" << m;
        }
    }
}

TEST(Bubble, OfZeroBubbleVIsNothingWhereAllPassesAreAlike) {
    for (const std::int64_t p : {2, 5, 8, 16}) {
        for (const std::int64_t m : {2 * p, 4 * p, 32 * p}) {
            EXPECT_NEAR(
                0.0, bubble(ScheduleKind::zb_v, equal(static_cast<std::size_t>(p), 1, 1, 1), m, 2),
                1e-9 * static_cast<double>(m))
                << "p" << p << " m" << m;
        }
    }
}

TEST(Bubble, IsBoundByTheSlowestOfUnevenStages) {
    std::vector<StagePass> stages = equal(4, 1, 1, 1);
    stages[2].forward = Seconds(2);
    const auto time = pipeline_time(ScheduleKind::one_f_one_b, stages, 10, 1);
    EXPECT_EQ(time.slowest_stage, 2);
    // Down to it and back, ten times itself. The first micro-batch is behind it for 3, of which its
    // next forward pass takes 2; the last one is too, and a backward pass takes 2 of that.
    EXPECT_DOUBLE_EQ(time.total.value(), 2 * 3 + 10 * 4 + (3 - 2) + (3 - 2));
}

TEST(Bubble, OfOneMicroBatchIsAllOtherStages) {
    std::vector<StagePass> stages = equal(4, 1, 1, 1);
    stages[1].forward = Seconds(2);
    for (const auto kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
        EXPECT_DOUBLE_EQ(bubble(kind, stages, 1), 9.0);
    }
}

TEST(Bubble, TakesMessagesOnTheirWayOncePerNeighbourAndDirection) {
    PipelinePasses passes;
    passes.runs = {{{Seconds(1), Seconds(1), Seconds(1)}, 4}};
    PipelineRoom room;
    const auto total = [&](ScheduleKind kind, double hop, std::int64_t chunks) {
        passes.hop = Seconds(hop);
        return pipeline_time(kind, passes, 8, chunks, room).total.value();
    };
    const double way = 2 * 3 * 0.25; // there and back
    EXPECT_DOUBLE_EQ(total(ScheduleKind::gpipe, 0.25, 1), total(ScheduleKind::gpipe, 0, 1) + way);
    // The first micro-batch and the last one are waited for apart.
    const auto kind = ScheduleKind::one_f_one_b;
    EXPECT_DOUBLE_EQ(total(kind, 0.25, 1), total(kind, 0, 1) + 2 * way);
    EXPECT_GE(total(ScheduleKind::zb_h1, 0.25, 1), total(ScheduleKind::zb_h1, 0, 1) + way);
    // And of more, every fourth: no more than four are in flight.
    const auto of_many = [&](double hop) {
        passes.hop = Seconds(hop);
        return pipeline_time(kind, passes, 16, 1, room).total.value();
    };
    EXPECT_DOUBLE_EQ(of_many(0.25), of_many(0) + 4 * way);
    const auto chunked = ScheduleKind::interleaved;
    EXPECT_GE(total(chunked, 0.25, 2), total(chunked, 0, 2) + way);
}

TEST(Bubble, IsTheSameHoweverStagesArePutIntoRuns) {
    std::vector<StagePass> stages = equal(9, 1, 1.5, 0.5);
    stages[0].forward = Seconds(1.5);
    stages[8].backward_input = Seconds(2.5);
    PipelinePasses passes;
    passes.runs = {{stages[0], 1}, {stages[1], 7}, {stages[8], 1}};
    PipelineRoom room;
    for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1,
                            ScheduleKind::zb_h2, ScheduleKind::interleaved}) {
        for (const std::int64_t m : {1, 3, 5, 9, 18, 36}) {
            const std::int64_t chunks = kind == ScheduleKind::interleaved ? 2 : 1;
            EXPECT_NEAR(pipeline_time(kind, passes, m, chunks, room).total.value(),
                        pipeline_time(kind, stages, m, chunks).total.value(), 1e-12)
                << name_of(kind) << " m" << m;
        }
    }
}

TEST(Bubble, NeverShrinksWhereAPassOfAnyStageGrows) {
    // what the search takes for a lower bound
    std::mt19937 random(3);
    const auto draw = [&] { return Seconds(0.5 + 0.1 * static_cast<double>(random() % 20)); };
    for (int round = 0; round < 2000; ++round) {
        const std::size_t p = 2 + random() % 6;
        std::vector<StagePass> stages;
        for (std::size_t i = 0; i < p; ++i)
            stages.push_back({draw(), draw(), draw()});
        const auto m = static_cast<std::int64_t>(1 + random() % (3 * p));
        const auto v = static_cast<std::int64_t>(2 + random() % 3);
        std::vector<StagePass> longer = stages;
        StagePass& grown = longer[random() % p];
        (random() % 2 == 0 ? grown.forward : grown.backward_input) += draw();
        for (const auto kind :
             {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
            const std::int64_t chunks = kind == ScheduleKind::interleaved ? v : 1;
            EXPECT_GE(pipeline_time(kind, longer, m, chunks).total.value(),
                      pipeline_time(kind, stages, m, chunks).total.value() * (1.0 - 1e-12))
                << name_of(kind) << " p" << p << " m" << m << " v" << chunks;
        }
    }
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
