// Whether predictions order measured runs, and hold on groups that no constant was fitted to.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/analysis/calibrate.hpp"
#include "planner/analysis/run_ranking.hpp"
#include "simulator/io/run_record.hpp"
#include "tests/validation/runs_path.hpp"

namespace shardplan::plan {
namespace {

const std::vector<sim::RunRecord>& records() {
    static const std::vector<sim::RunRecord> all = [] {
        auto read = sim::read_run_records(test::runs_path());
        EXPECT_TRUE(read) << (read ? "" : sim::to_text(read.error()));
        return read ? std::move(read->records) : std::vector<sim::RunRecord>{};
    }();
    return all;
}

const RunRanking& ranking() {
    static const RunRanking all = [] {
        const auto predictions = predict_runs(records());
        EXPECT_TRUE(predictions);
        auto out = rank_runs(records(), *predictions, {"group"});
        EXPECT_TRUE(out);
        return std::move(*out);
    }();
    return all;
}

/// The sweeps on one node, or those on several.
std::vector<SweepRanking> sweeps(bool single_node) {
    std::vector<SweepRanking> out;
    for (const SweepRanking& sweep : ranking().sweeps) {
        const auto record =
            std::find_if(records().begin(), records().end(),
                         [&](const sim::RunRecord& r) { return r.id == sweep.chosen; });
        if ((record->cluster.gpus.value_or(0) <= 8) == single_node) {
            out.push_back(sweep);
        }
    }
    return out;
}

std::vector<double> figures(const std::vector<SweepRanking>& sweeps, double SweepRanking::*figure) {
    std::vector<double> out;
    for (const SweepRanking& sweep : sweeps) {
        out.push_back(sweep.*figure);
    }
    return out;
}

TEST(RankingOfRuns, TheFastestLayoutOfASweepOverNodesIsAsGoodAsChosen) {
    const std::vector<SweepRanking> over_nodes = sweeps(false);
    ASSERT_EQ(over_nodes.size(), 8U);
    const std::vector<double> regrets = figures(over_nodes, &SweepRanking::regret);
    EXPECT_LE(median_of(regrets), 0.01);
    EXPECT_LE(*std::max_element(regrets.begin(), regrets.end()), 0.12);
    EXPECT_GE(median_of(figures(over_nodes, &SweepRanking::tau)), 0.7);
}

TEST(RankingOfRuns, OnOneNodeTheBestIsChosenMostly) {
    const std::vector<SweepRanking> on_one = sweeps(true);
    ASSERT_EQ(on_one.size(), 29U);
    const std::vector<double> regrets = figures(on_one, &SweepRanking::regret);
    EXPECT_LE(median_of(regrets), 0.05);
    EXPECT_GE(static_cast<double>(std::count(regrets.begin(), regrets.end(), 0.0)), 0.6 * 29);
}

TEST(RankingOfRuns, EveryPublishedBestIsInItsGrid) {
    EXPECT_EQ(ranking().grids.size(), 14U);
    for (const GridRanking& grid : ranking().grids) {
        EXPECT_EQ(grid.skipped, "") << grid.id;
        EXPECT_GE(grid.rank, 1) << grid.id;
        EXPECT_LE(grid.rank, grid.layouts) << grid.id;
    }
}

TEST(FitToRuns, GroupsLeftOutArePredictedFromTheOthers) {
    const auto result = calibrate_runs(records(), {});
    ASSERT_TRUE(result) << sim::to_text(result.error());
    constexpr std::int64_t few = 5; // fewer rows have no median worth a bar
    for (const HeldOut& group : result->groups) {
        if (group.held_out.rows >= few) {
            EXPECT_LE(group.held_out.median, group.family_elsewhere ? 0.10 : 0.15) << group.group;
        }
    }
    const auto alone = std::count_if(result->groups.begin(), result->groups.end(),
                                     [](const HeldOut& g) { return !g.family_elsewhere; });
    EXPECT_EQ(alone, 5);
}

} // namespace
} // namespace shardplan::plan
