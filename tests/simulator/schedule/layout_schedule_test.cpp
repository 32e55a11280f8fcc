#include "simulator/schedule/layout_schedule.hpp"

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Layout;
using sim::TaskKind;

sim::ScheduleInput input_of(const char* text, std::int64_t micro_batches) {
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(text, "layout", tables);
    EXPECT_TRUE(parsed) << text;
    return sim::executed_input(small_model(8, 8, 8), parsed->layout, tables, micro_batches);
}

std::int64_t count(const sim::Schedule& s, TaskKind kind) {
    return std::count(s.kind.begin(), s.kind.end(), kind);
}

TEST(LayoutSchedule, IsSoundForEveryKindOfLayout) {
    for (const char* text :
         {"dp1,mb1", "dp4,mb1", "dp4,mb1,zero1", "dp4,mb1,zero2", "dp4,mb1,zero3",
          "dp4,mb1,zero3,noreshard,wrap=model", "dp4,mb1,zero3:2", "pp4,dp1,mb1,sched=gpipe",
          "pp4,dp2,mb1,zero2,sched=zb-h1", "pp2,v2,dp2,mb1,zero1",
          "pp4,v2,dp2,mb1,zero3,sched=zb-v", "pp4,v2,dp1,mb1,sched=dualpipe",
          "pp4,v2,dp2,mb1,zero2,sched=dualpipe"}) {
        const auto schedule = sim::make_schedule(input_of(text, 8));
        ASSERT_TRUE(schedule) << text;
        const sim::Status status = sim::check_schedule(*schedule);
        EXPECT_TRUE(status) << text << ": " << (status ? "" : status.error().what);
    }
}

TEST(LayoutSchedule, EveryPassHasATaskForTheEmbeddingEachBlockAndTheHead) {
    const auto schedule = sim::make_schedule(input_of("pp2,v2,dp1,mb1", 4));
    ASSERT_TRUE(schedule);
    EXPECT_EQ(count(*schedule, TaskKind::forward), 4 * (8 + 2));
    EXPECT_EQ(count(*schedule, TaskKind::backward), 4 * (8 + 2));
    EXPECT_EQ(count(*schedule, TaskKind::loss), 4);
    EXPECT_EQ(count(*schedule, TaskKind::exchange), 0);
    // to the next stage three times and back again
    EXPECT_EQ(count(*schedule, TaskKind::send), 4 * 6);
    EXPECT_EQ(count(*schedule, TaskKind::receive), 4 * 6);
}

TEST(LayoutSchedule, StagesHandOverAsManyMessagesAsTheScheduleHasTasksToSend) {
    for (const char* text : {"pp1,dp1,mb1", "pp2,dp1,mb1", "pp4,dp1,mb1,sched=gpipe",
                             "pp4,dp2,mb1,sched=zb-h1", "pp2,v2,dp2,mb1", "pp4,v2,dp1,mb1",
                             "pp4,v2,dp2,mb1,sched=zb-v", "pp4,v2,dp1,mb1,sched=dualpipe"}) {
        const sim::ScheduleInput input = input_of(text, 8);
        const auto schedule = sim::make_schedule(input);
        ASSERT_TRUE(schedule) << text;
        std::vector<std::int64_t> sent(static_cast<std::size_t>(input.shape.stages), 0);
        for (std::size_t task = 0; task < schedule->size(); ++task) {
            if (schedule->kind[task] == TaskKind::send) ++sent[schedule->stage[task]];
        }
        EXPECT_EQ(sent, messages_sent(input.shape)) << text;
    }
    // seven micro-batches, four of which run down and three up
    sim::PipelineShape shape = input_of("pp4,v2,dp1,mb1,sched=dualpipe", 7).shape;
    EXPECT_EQ((std::vector<std::int64_t>{7, 14, 14, 7}), messages_sent(shape));
}

TEST(LayoutSchedule, ReducesOncePerStepUntilGradientsAreSplitAndThenAfterEveryPass) {
    const auto reductions = [](const char* text) {
        return count(*sim::make_schedule(input_of(text, 4)), TaskKind::reduce_gradient);
    };
    EXPECT_EQ(reductions("dp1,mb1"), 0);
    EXPECT_EQ(reductions("dp2,mb1"), 1);
    EXPECT_EQ(reductions("dp2,mb1,zero1"), 1);
    EXPECT_EQ(reductions("dp2,mb1,zero2"), 4 * 10);
    EXPECT_EQ(reductions("dp2,mb1,zero3"), 4 * 10);
    EXPECT_EQ(reductions("dp2,mb1,zero3,wrap=2blocks"), 4 * 5);
    EXPECT_EQ(reductions("dp4,mb1,zero3:2"), 4 * 10 + 1); // and over the copies
}

TEST(LayoutSchedule, ParametersAreGatheredBeforeUseOrAfterTheUpdate) {
    const auto schedule = [](const char* text) { return *sim::make_schedule(input_of(text, 4)); };
    EXPECT_EQ(count(schedule("dp2,mb1"), TaskKind::gather_parameter), 0);
    EXPECT_EQ(count(schedule("dp2,mb1,zero1"), TaskKind::gather_parameter), 1);
    EXPECT_EQ(count(schedule("dp2,mb1,zero2"), TaskKind::gather_parameter), 10);
    EXPECT_EQ(count(schedule("dp2,mb1,zero3"), TaskKind::gather), 2 * 4 * 10);
    EXPECT_EQ(count(schedule("dp2,mb1,zero3"), TaskKind::release), 2 * 4 * 10);
    EXPECT_EQ(count(schedule("dp2,mb1,zero3,noreshard"), TaskKind::gather), 4 * 10);
    EXPECT_EQ(count(schedule("dp2,mb1,zero3,noreshard"), TaskKind::release), 4 * 10);
}

} // namespace
} // namespace shardplan::test
