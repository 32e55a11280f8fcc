#include "simulator/engine/stragglers.hpp"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "simulator/engine/expand.hpp"

namespace {

using namespace shardplan::sim;

TEST(Stragglers, QuantilesAreThoseOfTheNormalDistribution) {
    EXPECT_NEAR(0.0, normal_upper_quantile(0.5), 1e-12);
    EXPECT_NEAR(1.959963984540054, normal_upper_quantile(0.025), 1e-9);
    EXPECT_NEAR(-1.959963984540054, normal_upper_quantile(0.975), 1e-9);
    EXPECT_NEAR(6.361340902404056, normal_upper_quantile(1e-10), 1e-8);
}

TEST(Stragglers, TheSameSeedGivesTheSameDraws) {
    const Stragglers a{0.05, 3};
    const Stragglers b{0.05, 4};
    EXPECT_EQ(a.factor(1, 2), a.factor(1, 2));
    EXPECT_NE(a.factor(1, 2), a.factor(1, 3));
    EXPECT_NE(a.factor(1, 2), b.factor(1, 2));
    EXPECT_EQ(1.0, Stragglers{}.factor(1, 2));
}

TEST(Stragglers, TheSlowestOfAClassIsTheLargestOfAsManyDraws) {
    for (const std::int64_t ranks : {1, 8, 256}) {
        double drawn = 0.0;
        double direct = 0.0;
        const int seeds = 2000;
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            const Stragglers s{0.05, seed};
            double most = 0.0;
            for (std::int64_t r = 0; r < ranks; ++r)
                most = std::max(most, s.factor(0, r));
            drawn += most;
            direct += s.slowest(0, ranks);
        }
        EXPECT_NEAR(drawn / seeds, direct / seeds, 0.005) << ranks;
    }
}

/// `rounds` x (compute, then an all-reduce of all ranks), as one stage.
struct Rounds {
    ScheduleInput input;
    Schedule schedule;
    TaskCosts costs;
};
Rounds rounds_of(std::size_t rounds, double compute, double reduce) {
    Rounds out;
    out.input.shape = {ScheduleKind::gpipe, 1, 1, 1};
    UnitSteps unit;
    unit.forward.assign(rounds, {StreamKind::tp, true, UnitSteps::Under::none});
    out.input.unit_kinds = {unit};
    out.input.units = {{{0}}};
    out.input.optimizer = false;
    out.schedule = *make_schedule(out.input);
    for (std::size_t i = 0; i < out.schedule.size(); ++i) {
        out.costs.seconds.push_back(out.schedule.kind[i] == TaskKind::forward    ? compute
                                    : out.schedule.kind[i] == TaskKind::exchange ? reduce
                                                                                 : 0.0);
    }
    return out;
}

TEST(Stragglers, AnAllReduceWaitsForTheSlowestRankEveryTime) {
    const Rounds r = rounds_of(4, 1.0, 0.5);
    const RankGrid grid{8, 1, 1, 8};
    const Stragglers stragglers{0.1, 9};
    const TaskGraph graph = expand(r.schedule, grid);
    const auto p = play(graph, expand_costs(r.schedule, r.costs, graph, grid, stragglers));
    ASSERT_TRUE(p);
    double slowest = 0.0;
    for (std::int64_t rank = 0; rank < 8; ++rank) {
        slowest = std::max(slowest, stragglers.factor(0, rank));
    }
    // a last part of compute follows the last exchange
    EXPECT_NEAR(5.0 * slowest + 4.0 * 0.5, p->makespan, 1e-12);
}

TEST(Expand, WithoutStragglersEveryRankTakesAsLongAsOne) {
    const Rounds r = rounds_of(7, 0.3, 0.1);
    const RankGrid grid{16, 1, 1, 16};
    const TaskGraph graph = expand(r.schedule, grid);
    const auto every = play(graph, expand_costs(r.schedule, r.costs, graph, grid, {}));
    const auto one = play(graph_of(r.schedule), r.costs);
    ASSERT_TRUE(every && one);
    EXPECT_EQ(one->makespan, every->makespan);
    EXPECT_EQ(16U * one->start.size(), every->start.size());
}

} // namespace
