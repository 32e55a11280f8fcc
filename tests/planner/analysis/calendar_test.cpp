#include "planner/analysis/calendar.hpp"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

constexpr double hour = 3600.0;
constexpr double minute = 60.0;

sim::Scenario training(double tokens) {
    sim::Scenario s = test::scenario(test::llama_3_8b(), test::dgx_h100(2), test::job(4096, 256));
    s.job.tokens_to_train = tokens;
    s.cluster.node_groups.front().mean_time_to_failure = sim::Seconds(6000 * hour);
    s.cluster.node_groups.front().price_per_device_hour = 2.0;
    return s;
}

sim::Estimate estimate_of(const sim::Scenario& s) {
    const auto priced = price_layout(s, "tp2,sp,mb1,zero1", "test");
    EXPECT_TRUE(priced) << (priced ? "" : sim::to_text(priced.error()));
    return priced ? priced->estimate : sim::Estimate{};
}

double lost(const Calendar& c) {
    return std::accumulate(c.losses.begin(), c.losses.end(), 0.0,
                           [](double sum, const LossLine& line) { return sum + line.seconds; });
}

TEST(Calendar, BestIntervalOfALargeRunIsThatOfTheLiterature) {
    // 16384 devices, a stop every 3.1 h, 30 s to save: 13.7 minutes; 5 s: 5.6 minutes.
    EXPECT_NEAR(daly_interval(30.0, 3.1 * hour) / minute, 13.2, 0.6);
    EXPECT_NEAR(daly_interval(5.0, 3.1 * hour) / minute, 5.6, 0.1);
    EXPECT_DOUBLE_EQ(daly_interval(10.0, 4.0), 4.0);
}

TEST(Calendar, StretchIsTheWasteOfFirstOrderWhereStopsAreRare) {
    const double t = 42.0 * minute;
    const double d = 30.0;
    const double r = 10.0 * minute;
    const double m = 29.0 * hour;
    const double first_order = d / t + (t / 2.0 + r) / m;
    EXPECT_NEAR(expected_stretch(t, d, r, m) - 1.0, first_order, 0.001);
}

TEST(Calendar, NoOtherIntervalIsBetterThanTheBest) {
    const double best = daly_interval(30.0, 3.0 * hour);
    const double least = expected_stretch(best, 30.0, 600.0, 3.0 * hour);
    for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
        EXPECT_GT(expected_stretch(best * factor, 30.0, 600.0, 3.0 * hour), least) << factor;
    }
}

TEST(Calendar, CheckpointOfFullTrainingHoldsFourteenBytesPerParameter) {
    const sim::Scenario s = training(1e12);
    const auto resolved = sim::resolve(s);
    ASSERT_TRUE(resolved);
    EXPECT_NEAR(checkpoint_bytes(s, resolved->values) / (14.0 * 8030261248.0), 1.0, 1e-9);
}

TEST(Calendar, TrainingAndLossesAddUpToTheWholeTime) {
    const sim::Scenario s = training(1e12);
    Losses losses;
    losses.queue_s = 12 * hour;
    losses.planned = 0.05;
    losses.restart_s = 600.0;
    const auto c = calendar(s, estimate_of(s), losses, *load_operations());
    ASSERT_TRUE(c) << sim::to_text(c.error());
    EXPECT_DOUBLE_EQ(c->tokens_per_step, 4096.0 * 256.0);
    EXPECT_DOUBLE_EQ(c->steps, std::ceil(1e12 / (4096.0 * 256.0)));
    EXPECT_DOUBLE_EQ(c->pure_s, c->steps * c->step_s);
    EXPECT_NEAR((c->pure_s + lost(*c)) / c->total_s, 1.0, 1e-12);
    EXPECT_NEAR(c->goodput, c->pure_s / c->total_s, 1e-12);
    EXPECT_EQ(c->losses.size(), 5U);
    EXPECT_DOUBLE_EQ(c->mean_time_to_stop_s, 3000 * hour); // two nodes
    EXPECT_NEAR(c->money, 2.0 * c->device_hours, 1e-6 * c->money);
    EXPECT_LT(c->total_low_s, c->total_s);
    EXPECT_GT(c->total_high_s, c->total_s);
    EXPECT_GT(c->kilowatt_hours, 0.0);
}

TEST(Calendar, WorseNodesSlowerSavesAndRarerCheckpointsCostTime) {
    const sim::Scenario s = training(1e13);
    const sim::Estimate estimate = estimate_of(s);
    const auto total = [&](const Losses& losses) {
        const auto c = calendar(s, estimate, losses, *load_operations());
        EXPECT_TRUE(c) << (c ? "" : sim::to_text(c.error()));
        return c ? c->total_s : 0.0;
    };
    const double usual = total({});
    Losses worse;
    worse.mean_time_to_failure_s = 100 * hour;
    EXPECT_GT(total(worse), usual);
    Losses slow;
    slow.save_s = 1800.0;
    EXPECT_GT(total(slow), usual);
    Losses rare;
    rare.interval_s = 24 * 30 * hour;
    EXPECT_GT(total(rare), usual);
}

TEST(Calendar, RunWithoutTokensOrThatDoesNotFitHasNoLength) {
    const auto operations = *load_operations();
    sim::Scenario s = training(0.0);
    EXPECT_FALSE(calendar(s, estimate_of(s), {}, operations));
    s = training(1e12);
    sim::Estimate estimate = estimate_of(s);
    estimate.verdict = sim::Verdict::does_not_fit;
    const auto refused = calendar(s, estimate, {}, operations);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("does not fit"), std::string::npos);
}

TEST(Calendar, LossesThatLeaveNoTimeOrMakeNoSenseAreRefused) {
    const sim::Scenario s = training(1e12);
    const sim::Estimate estimate = estimate_of(s);
    const auto operations = *load_operations();
    Losses hopeless;
    hopeless.mean_time_to_failure_s = 20.0;
    hopeless.restart_s = 6000.0;
    EXPECT_FALSE(calendar(s, estimate, hopeless, operations));
    Losses negative;
    negative.queue_s = -1.0;
    EXPECT_FALSE(calendar(s, estimate, negative, operations));
    Losses all_planned;
    all_planned.planned = 1.0;
    EXPECT_FALSE(calendar(s, estimate, all_planned, operations));
}

TEST(Calendar, UsualFiguresAreTakenWhereNobodySaysOtherwiseAndAreNamed) {
    sim::Scenario s = training(1e12);
    s.cluster.node_groups.front().mean_time_to_failure = sim::Seconds(0.0);
    const auto operations = load_operations();
    ASSERT_TRUE(operations) << sim::to_text(operations.error());
    const auto c = calendar(s, estimate_of(s), {}, *operations);
    ASSERT_TRUE(c) << sim::to_text(c.error());
    EXPECT_NEAR(c->mean_time_to_stop_s, 1.0 / (2.0 * operations->stops.value), 1.0);
    EXPECT_EQ(c->assumptions.size(), 4U);
    EXPECT_FALSE(load_operations("no-such-file"));
}

TEST(Calendar, SharedStorageOfTheClusterLimitsTheSave) {
    sim::Scenario s = training(1e12);
    sim::StorageTier tier;
    tier.name = "shared";
    tier.write_per_node = sim::Bandwidth(10e9);
    tier.write_total = sim::Bandwidth(15e9);
    s.cluster.storage = {tier};
    const auto c = calendar(s, estimate_of(s), {}, *load_operations());
    ASSERT_TRUE(c) << sim::to_text(c.error());
    EXPECT_NEAR(c->save_s, c->checkpoint_bytes / 15e9, 1e-9);
}

} // namespace
} // namespace shardplan::plan
