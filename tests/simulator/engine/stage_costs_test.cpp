#include "simulator/engine/stage_costs.hpp"

#include <gtest/gtest.h>

namespace {

using namespace shardplan::sim;

/// One stage of one micro-batch whose unit computes for `parts` seconds with an exchange of 3 s in
/// between; its backward pass takes no time.
struct OneUnit {
    ScheduleInput input;
    StageCosts costs;

    OneUnit(std::vector<double> parts, UnitSteps::Exchange exchange) {
        input.shape = {ScheduleKind::one_f_one_b, 1, 1, 1};
        UnitSteps steps;
        steps.forward = {exchange};
        input.unit_kinds = {steps};
        input.units = {{{0}}};
        input.optimizer = false;
        UnitCosts unit;
        unit.forward = std::move(parts);
        unit.backward = {0.0};
        const bool under = exchange.under != UnitSteps::Under::none;
        unit.forward_exchanges = {{under ? 0.0 : 3.0, under ? 3.0 : 0.0, 0.0}};
        costs.units = {unit};
        costs.stages = {StageSeconds{}};
    }
    [[nodiscard]] double seconds() const {
        const auto schedule = make_schedule(input);
        const auto p = play(graph_of(*schedule), price(input, *schedule, costs));
        return p ? p->makespan : -1.0;
    }
};

TEST(StageCosts, ComputeWaitsForAnExchangeThatNothingHides) {
    EXPECT_EQ(8.0, OneUnit({1.0, 4.0}, {StreamKind::tp, true, UnitSteps::Under::none}).seconds());
}

TEST(StageCosts, AGatherRunsUnderTheProductThatTakesItIn) {
    EXPECT_EQ(5.0, OneUnit({1.0, 4.0}, {StreamKind::tp, false, UnitSteps::Under::next}).seconds());
    // and holds up what follows where that is too short; the loss ends with it
    EXPECT_EQ(4.0, OneUnit({1.0, 2.0}, {StreamKind::tp, false, UnitSteps::Under::next}).seconds());
}

TEST(StageCosts, AReductionRunsUnderTheProductThatFeedsIt) {
    EXPECT_EQ(5.0,
              OneUnit({4.0, 1.0}, {StreamKind::tp, false, UnitSteps::Under::previous}).seconds());
    EXPECT_EQ(4.0,
              OneUnit({2.0, 1.0}, {StreamKind::tp, false, UnitSteps::Under::previous}).seconds());
}

TEST(StageCosts, EveryPassOfAPipelinePaysForOneMessage) {
    ScheduleInput in;
    in.shape = {ScheduleKind::one_f_one_b, 3, 1, 1};
    in.unit_kinds = {UnitSteps{}};
    in.units.assign(3, {{0}});
    in.optimizer = false;
    StageCosts costs;
    UnitCosts unit;
    unit.forward = {1.0};
    unit.backward = {2.0};
    costs.units = {unit};
    costs.stages.assign(3, StageSeconds{});
    for (StageSeconds& stage : costs.stages)
        stage.message.waits = 0.5;
    const auto schedule = make_schedule(in);
    const auto p = play(graph_of(*schedule), price(in, *schedule, costs));
    ASSERT_TRUE(p);
    EXPECT_DOUBLE_EQ(3.0 * (1.0 + 0.5 + 2.0 + 0.5), p->makespan);
}

TEST(StageCosts, WhatARankSendsInsideItsNodeDoesNotCrossTheRoute) {
    // 100 bytes in 1 s, of which the link outside carries 10 in that time
    ScheduleInput in;
    in.shape = {ScheduleKind::one_f_one_b, 1, 1, 1};
    in.unit_kinds = {UnitSteps{}};
    in.units = {{{0}}};
    in.data_parallel.reduce_waits = true;
    StageCosts costs;
    UnitCosts unit;
    unit.forward = unit.backward = {1.0};
    costs.units = {unit};
    StageSeconds stage;
    stage.reduce = {1.0, 0.0, 100.0};
    costs.stages = {stage};
    costs.links.capacity = {10.0};
    StageRoutes routes;
    routes.of_stream.fill(no_route);
    routes.of_stream[static_cast<std::size_t>(StreamKind::reduce)] = costs.links.add_route({0});
    costs.routes = {routes};
    const auto schedule = make_schedule(in);
    const TaskCosts priced = price(in, *schedule, costs);
    double bytes = 0.0;
    for (const double b : priced.bytes)
        bytes += b;
    EXPECT_DOUBLE_EQ(10.0, bytes);
    const auto p = play(graph_of(*schedule), priced);
    ASSERT_TRUE(p);
    EXPECT_DOUBLE_EQ(3.0, p->makespan);
}

} // namespace
