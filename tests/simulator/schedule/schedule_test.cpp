#include "simulator/schedule/schedule.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "simulator/schedule/pass_order.hpp"

namespace {

using namespace shardplan::sim;

ScheduleInput input(ScheduleKind kind, int stages, int chunks, int micro_batches, int units = 1) {
    ScheduleInput in;
    in.shape = {kind, stages, chunks, micro_batches};
    in.unit_kinds = {UnitSteps{}};
    in.units.assign(static_cast<std::size_t>(stages),
                    std::vector<std::vector<std::uint16_t>>(
                        static_cast<std::size_t>(chunks),
                        std::vector<std::uint16_t>(static_cast<std::size_t>(units), 0)));
    return in;
}

std::size_t count(const Schedule& s, TaskKind kind) {
    return static_cast<std::size_t>(std::count(s.kind.begin(), s.kind.end(), kind));
}

std::string complaint(const Status& status) { return status ? "" : to_text(status.error()); }

constexpr ScheduleKind all_kinds[] = {
    ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1,
    ScheduleKind::zb_h2, ScheduleKind::zb_v,        ScheduleKind::dual_pipe};

TEST(Schedule, EveryKindIsValidForAnyStagesChunksAndMicroBatches) {
    for (const ScheduleKind kind : all_kinds) {
        for (int p = 1; p <= 6; ++p) {
            for (int v = 1; v <= 3; ++v) {
                for (int m = 1; m <= 13; ++m) {
                    const auto s = make_schedule(input(kind, p, v, m));
                    ASSERT_TRUE(s);
                    EXPECT_EQ("", complaint(check_schedule(*s)))
                        << name_of(kind) << " p" << p << " v" << v << " m" << m;
                }
            }
        }
    }
}

TEST(Schedule, RandomShapesWithEveryKindOfTrafficAreValid) {
    std::mt19937 random(7);
    const auto pick = [&](int low, int high) {
        return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const auto coin = [&] { return random() % 2 == 0; };
    for (int round = 0; round < 600; ++round) {
        ScheduleInput in = input(all_kinds[random() % 7], pick(1, 7), pick(1, 3), pick(1, 17));
        in.unit_kinds = {UnitSteps{},
                         {{{StreamKind::tp, true, UnitSteps::Under::none},
                           {StreamKind::ep, true, UnitSteps::Under::next}},
                          {{StreamKind::tp, false, UnitSteps::Under::previous},
                           {StreamKind::tp, false, UnitSteps::Under::next}}}};
        for (auto& stage : in.units) {
            for (auto& chunk : stage) {
                chunk.clear();
                for (int i = pick(0, 4); i > 0; --i) {
                    chunk.push_back(static_cast<std::uint16_t>(pick(0, 1)));
                }
            }
        }
        in.messages_block = coin();
        in.messages_under = !in.messages_block || coin();
        DataParallelPlan& dp = in.data_parallel;
        dp.units = coin();
        dp.gather_again = coin();
        dp.prefetch = pick(0, 3);
        dp.wrapped = pick(0, 3);
        dp.reduce_under = coin();
        dp.reduce_waits = coin();
        dp.every_micro_batch = coin();
        dp.buckets = pick(1, 6);
        dp.gather_under = coin();
        dp.gather_waits = coin();
        in.offload_passes = coin();
        in.offload_states = coin();
        in.save = coin();
        const auto s = make_schedule(in);
        ASSERT_TRUE(s);
        ASSERT_EQ("", complaint(check_schedule(*s))) << "round " << round;
    }
}

TEST(Schedule, PassesOf1F1BAreThoseThatMemoryReplays) {
    const auto orders = pipeline_order({ScheduleKind::one_f_one_b, 4, 1, 8});
    const auto expected = pass_order(ScheduleKind::one_f_one_b, 4, 1, 1, 8);
    ASSERT_EQ(expected.size(), orders[1].size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(expected[i].forward, orders[1][i].kind == PassKind::forward);
        EXPECT_EQ(expected[i].micro_batch, orders[1][i].micro_batch);
    }
}

TEST(Schedule, ZeroBubbleH1KeepsTheLiveSetOf1F1B) {
    const int p = 4;
    const auto orders = pipeline_order({ScheduleKind::zb_h1, p, 1, 12});
    for (int stage = 0; stage < p; ++stage) {
        int alive = 0;
        int most = 0;
        for (const ScheduledPass& pass : orders[static_cast<std::size_t>(stage)]) {
            alive += pass.kind == PassKind::forward ? 1 : pass.kind == PassKind::backward ? -1 : 0;
            most = std::max(most, alive);
        }
        EXPECT_EQ(p - stage, most) << "stage " << stage;
    }
}

TEST(Schedule, UnderDualPipeEachMicroBatchVisitsEveryStageOnce) {
    const PipelineShape shape{ScheduleKind::dual_pipe, 4, 2, 6};
    EXPECT_EQ((Position{0, 0}), way_of(shape, 0).front());
    EXPECT_EQ((Position{3, 1}), way_of(shape, 5).front());
    EXPECT_EQ(4U, way_of(shape, 5).size());
}

TEST(Schedule, UnderZeroBubbleVTheSecondChunkRunsBack) {
    const PipelineShape shape{ScheduleKind::zb_v, 3, 2, 6};
    const std::vector<Position> way = {{0, 0}, {1, 0}, {2, 0}, {2, 1}, {1, 1}, {0, 1}};
    EXPECT_EQ(way, way_of(shape, 0));
    for (std::size_t i = 0; i < way.size(); ++i)
        EXPECT_EQ(i, step_on_way(shape, way[i]));
}

TEST(Schedule, FullyShardedUnitsAreGatheredForBothPassesAndReducedOnce) {
    ScheduleInput in = input(ScheduleKind::one_f_one_b, 1, 1, 2, 4);
    in.data_parallel.units = true;
    in.data_parallel.gather_again = true;
    in.data_parallel.prefetch = 1;
    in.data_parallel.gather_under = true;
    in.data_parallel.reduce_under = true;
    const auto s = make_schedule(in);
    ASSERT_TRUE(s);
    EXPECT_EQ(2U * 2U * 4U, count(*s, TaskKind::gather));
    EXPECT_EQ(2U * 2U * 4U, count(*s, TaskKind::release));
    EXPECT_EQ(2U * 4U, count(*s, TaskKind::reduce_gradient));
    // With one unit ahead, the third is not gathered before the first has been used.
    std::vector<std::size_t> gathers;
    for (std::size_t i = 0; i < s->size(); ++i) {
        if (s->kind[i] == TaskKind::gather) gathers.push_back(i);
    }
    const auto waits = [&](std::size_t task) {
        return s->first_dependency[task + 1] - s->first_dependency[task];
    };
    EXPECT_EQ(0U, waits(gathers[0]));
    EXPECT_EQ(0U, waits(gathers[1]));
    ASSERT_EQ(1U, waits(gathers[2]));
    const std::size_t use = s->dependencies[s->first_dependency[gathers[2]]];
    EXPECT_EQ(TaskKind::forward, s->kind[use]);
    EXPECT_EQ(0U, s->unit[use]);
}

TEST(Schedule, GradientBucketsAreReducedWithTheLastMicroBatchOnly) {
    ScheduleInput in = input(ScheduleKind::one_f_one_b, 2, 1, 5, 4);
    in.data_parallel.reduce_under = true;
    in.data_parallel.buckets = 2;
    const auto s = make_schedule(in);
    ASSERT_TRUE(s);
    EXPECT_EQ(2U * 2U, count(*s, TaskKind::reduce_gradient));
    for (std::size_t i = 0; i < s->size(); ++i) {
        if (s->kind[i] != TaskKind::reduce_gradient) continue;
        EXPECT_EQ(4U, s->micro_batch[i]);
    }
}

TEST(Schedule, StagesMayRunDifferentNumbersOfUnits) {
    ScheduleInput in = input(ScheduleKind::one_f_one_b, 3, 1, 4);
    in.units[1][0] = {0, 0, 0};
    const auto s = make_schedule(in);
    ASSERT_TRUE(s);
    EXPECT_EQ("", complaint(check_schedule(*s)));
    EXPECT_EQ(4U * (1U + 3U + 1U), count(*s, TaskKind::forward));
}

TEST(CheckSchedule, FindsTasksThatWaitForOneAnother) {
    auto s = make_schedule(input(ScheduleKind::one_f_one_b, 1, 1, 2));
    ASSERT_TRUE(s);
    // the first pass waits for the last one of its own stream
    for (std::size_t i = 1; i < s->first_dependency.size(); ++i)
        ++s->first_dependency[i];
    s->dependencies.insert(s->dependencies.begin(), 3U);
    const Status status = check_schedule(*s);
    ASSERT_FALSE(status);
    EXPECT_NE(std::string::npos, status.error().what.find("wait for one another"));
}

TEST(CheckSchedule, FindsAPassThatIsMissing) {
    auto s = make_schedule(input(ScheduleKind::one_f_one_b, 1, 1, 2));
    ASSERT_TRUE(s);
    s->micro_batch[0] = 1;
    EXPECT_FALSE(check_schedule(*s));
}

TEST(Schedule, RefusesUnitsThatDoNotFitTheShape) {
    ScheduleInput in = input(ScheduleKind::one_f_one_b, 2, 1, 4);
    in.units.pop_back();
    EXPECT_FALSE(make_schedule(in));
    in = input(ScheduleKind::one_f_one_b, 2, 1, 4);
    in.units[0][0] = {3};
    EXPECT_FALSE(make_schedule(in));
}

} // namespace
