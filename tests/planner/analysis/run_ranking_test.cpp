#include "planner/analysis/run_ranking.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/planner/analysis/record_builder.hpp"

namespace shardplan::plan {
namespace {

sim::RunRecord timed(const std::string& id, const std::string& sweep, double seconds) {
    sim::RunRecord record;
    record.id = id;
    record.group = "made up";
    record.sweep = sweep;
    record.usable_for = {"time", "ranking"};
    record.measured.step_time_s = seconds;
    return record;
}

RunPrediction predicted(double seconds) {
    RunPrediction out;
    out.step_time_s = seconds;
    return out;
}

TEST(RunRanking, TauCountsPairsInOrderAgainstPairsOutOfOrder) {
    EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {10, 20, 30, 40}), 1.0);
    EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {4, 3, 2, 1}), -1.0);
    // One of six pairs is swapped: (5 - 1) / 6.
    EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {1, 3, 2, 4}), 4.0 / 6.0);
    // A tie on one side: 5 concordant pairs, 6 and 5 pairs not tied.
    EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {1, 2, 2, 4}), 5.0 / std::sqrt(30.0));
    EXPECT_DOUBLE_EQ(kendall_tau({1, 1}, {2, 3}), 0.0);
}

TEST(RunRanking, RankCorrelationLooksAtRanksOnly) {
    EXPECT_DOUBLE_EQ(spearman_correlation({1, 2, 3}, {1, 100, 10000}), 1.0);
    EXPECT_DOUBLE_EQ(spearman_correlation({1, 2, 3}, {3, 2, 1}), -1.0);
    // 1 - 6 x (0 + 1 + 1) / (3 x 8)
    EXPECT_DOUBLE_EQ(spearman_correlation({1, 2, 3}, {1, 3, 2}), 0.5);
    EXPECT_DOUBLE_EQ(spearman_correlation({1, 2}, {5, 5}), 0.0);
    EXPECT_DOUBLE_EQ(spearman_correlation({}, {}), 0.0);
}

TEST(RunRanking, RegretIsWhatTheLayoutPredictedFastestReallyCosts) {
    const std::vector<sim::RunRecord> records = {timed("a", "s", 1.0), timed("b", "s", 1.2),
                                                 timed("c", "s", 2.0), timed("d", "s", 3.0)};
    const auto ranking = rank_runs(
        records, {predicted(5.0), predicted(4.0), predicted(6.0), predicted(7.0)}, {"group"});
    ASSERT_TRUE(ranking);
    ASSERT_EQ(ranking->sweeps.size(), 1U);
    const SweepRanking& sweep = ranking->sweeps.front();
    EXPECT_EQ(sweep.chosen, "b");
    EXPECT_NEAR(sweep.regret, 0.2, 1e-12);
    EXPECT_DOUBLE_EQ(sweep.tau, 4.0 / 6.0);
    ASSERT_EQ(ranking->groups.size(), 1U);
    EXPECT_EQ(ranking->groups.front().best_chosen, 0);
    EXPECT_EQ(ranking->groups.front().rows, 4);
    EXPECT_DOUBLE_EQ(ranking->groups.front().correlation, 0.8);
}

TEST(RunRanking, SweepsOfFewerThanFourTimedLayoutsAreNotRanked) {
    std::vector<sim::RunRecord> records = {timed("a", "s", 1.0), timed("b", "s", 1.2),
                                           timed("c", "s", 2.0), timed("d", "s", 3.0)};
    const std::vector<RunPrediction> predictions = {predicted(1.0), predicted(2.0), predicted(3.0),
                                                    predicted(4.0)};
    records[3].usable_for = {"time"};
    EXPECT_TRUE(rank_runs(records, predictions, {"group"})->sweeps.empty());
    records[3] = timed("d", "s", 3.0);
    records[3].measured = {};
    records[3].measured.oom = true;
    EXPECT_TRUE(rank_runs(records, predictions, {"group"})->sweeps.empty());
}

TEST(RunRanking, FollowsTheGroupingAndSumsUp) {
    std::vector<sim::RunRecord> records;
    std::vector<RunPrediction> predictions;
    for (const char* device : {"A", "B"}) {
        for (const double seconds : {1.0, 2.0, 3.0, 4.0}) {
            records.push_back(timed(device + std::to_string(seconds), device, seconds));
            records.back().cluster.device = device;
            // In order on A, the other way round on B.
            predictions.push_back(predicted(*device == 'A' ? seconds : 5.0 - seconds));
        }
    }
    const auto ranking = rank_runs(records, predictions, {"device"});
    ASSERT_TRUE(ranking);
    ASSERT_EQ(ranking->groups.size(), 3U);
    EXPECT_EQ(ranking->groups[0].name, "A");
    EXPECT_DOUBLE_EQ(ranking->groups[0].median_tau, 1.0);
    EXPECT_DOUBLE_EQ(ranking->groups[1].median_tau, -1.0);
    EXPECT_DOUBLE_EQ(ranking->groups[1].worst_regret, 3.0);
    EXPECT_EQ(ranking->groups[2].name, "all");
    EXPECT_EQ(ranking->groups[2].sweeps, 2);
    EXPECT_EQ(ranking->groups[2].best_chosen, 1);
    EXPECT_DOUBLE_EQ(ranking->groups[2].median_regret, 1.5);
    EXPECT_EQ(rank_runs(records, predictions, {"group"})->groups.size(), 1U);
}

TEST(RunRanking, PublishedBestIsLookedForInItsGrid) {
    auto reproducer = Reproducer::make();
    ASSERT_TRUE(reproducer);
    sim::RunRecord record = test::small_run();
    const GridRanking here = rank_in_grid(record, *reproducer);
    ASSERT_EQ(here.skipped, "");
    EXPECT_GT(here.layouts, here.rank);
    EXPECT_GE(here.gap, 0.0);
    // Publishing what we call best puts it first, without a gap.
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(here.best, "best", tables);
    ASSERT_TRUE(parsed) << sim::to_text(parsed.error());
    const auto found = sim::complete_layout(*parsed, 16, "best");
    ASSERT_TRUE(found) << sim::to_text(found.error());
    record.layout.tp = found->tp;
    record.layout.pp = found->pp;
    record.layout.dp = found->dp;
    record.layout.micro_batch = found->micro_batch;
    record.layout.num_microbatches =
        *record.layout.global_batch / (std::int64_t{found->dp} * found->micro_batch);
    record.layout.sequence_parallel = found->sp;
    record.layout.schedule = found->pp > 1 ? "1f1b" : "none";
    record.layout.zero_stage = found->shard == sim::Shard::none ? 0 : 1;
    const GridRanking best = rank_in_grid(record, *reproducer);
    EXPECT_EQ(best.rank, 1);
    EXPECT_EQ(best.gap, 0.0);
    EXPECT_EQ(best.layouts, here.layouts);
}

TEST(RunRanking, LayoutPredictedToRunOutOfMemoryHasNoRank) {
    auto reproducer = Reproducer::make();
    ASSERT_TRUE(reproducer);
    sim::RunRecord record = test::small_run();
    record.model.hidden = 8192;
    record.model.ffn_hidden = 32768;
    record.model.heads = 64;
    record.model.layers = 64;
    const GridRanking ranking = rank_in_grid(record, *reproducer);
    EXPECT_NE(ranking.skipped.find("not to fit"), std::string::npos) << ranking.skipped;
    EXPECT_EQ(ranking.rank, 0);
}

} // namespace
} // namespace shardplan::plan
