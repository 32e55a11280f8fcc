#include "planner/analysis/validate.hpp"

#include <gtest/gtest.h>

namespace shardplan::plan {
namespace {

sim::RunRecord run(std::string group, double seconds) {
    sim::RunRecord record;
    record.id = group + std::to_string(seconds);
    record.group = std::move(group);
    record.usable_for = {"time", "memory", "fit"};
    record.measured.step_time_s = seconds;
    return record;
}

sim::RunMemory entry(double gib, std::string kind, std::string rank) {
    return {gib, std::move(kind), std::move(rank), false, false};
}

RunPrediction predicted(double seconds) {
    RunPrediction out;
    out.step_time_s = seconds;
    out.allocated = {10.0, 20.0, 30.0};
    out.reserved = {11.0, 22.0, 33.0};
    out.process = {12.0, 24.0, 36.0};
    return out;
}

TEST(Validate, MedianOfAnEvenCountIsTheMeanOfTheMiddleTwo) {
    EXPECT_DOUBLE_EQ(median_of({4.0, 1.0, 3.0, 2.0}), 2.5);
    EXPECT_DOUBLE_EQ(median_of({3.0, 1.0, 2.0}), 2.0);
    EXPECT_DOUBLE_EQ(median_of({}), 0.0);
}

TEST(Validate, NinetiethPercentileIsTheNearestRank) {
    // Of ten values rank 9, of eleven rank 10, of one the only one.
    EXPECT_DOUBLE_EQ(percentile_of({10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0.9), 9.0);
    EXPECT_DOUBLE_EQ(percentile_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 0.9), 10.0);
    EXPECT_DOUBLE_EQ(percentile_of({7}, 0.9), 7.0);
}

TEST(Validate, MedianIsOfSizesAndBiasKeepsTheSign) {
    const ErrorFigures figures = error_figures({-0.3, -0.2, 0.1});
    EXPECT_EQ(figures.rows, 3);
    EXPECT_DOUBLE_EQ(figures.median, 0.2);
    EXPECT_DOUBLE_EQ(figures.p90, 0.3);
    EXPECT_DOUBLE_EQ(figures.bias, -0.2);
}

TEST(Validate, CountsTheEndOfABandOnTheSideOfTheMeasurementAsOne) {
    const sim::Band<double> band{8.0, 10.0, 14.0};
    EXPECT_DOUBLE_EQ(distance_in_band(band, 9.0), 0.5);
    EXPECT_DOUBLE_EQ(distance_in_band(band, 16.0), 1.5);
    EXPECT_DOUBLE_EQ(distance_in_band({10.0, 10.0, 10.0}, 10.0), 0.0);
    EXPECT_GT(distance_in_band({10.0, 10.0, 10.0}, 10.1), 1e9);
}

TEST(Validate, TellsHowManyMeasurementsLieInsideTheBand) {
    // Predicted 10 (9 to 12): 9.5 and 12 are inside, 8.5 and 13 inside two, 15 is outside.
    std::vector<sim::RunRecord> records;
    std::vector<RunPrediction> predictions;
    for (const double seconds : {9.5, 12.0, 8.5, 13.0, 15.0}) {
        records.push_back(run("g", seconds));
        predictions.push_back(predicted(10.0));
        predictions.back().step_time_low_s = 9.0;
        predictions.back().step_time_high_s = 12.0;
    }
    const GroupFigures all = score_all(records, predictions);
    EXPECT_DOUBLE_EQ(all.time.within_one, 0.4);
    EXPECT_DOUBLE_EQ(all.time.within_two, 0.8);
}

TEST(Validate, JudgesMemoryByTheBandOfTheLargestClass) {
    // Predicted 30 GiB, 27 to 36: 29 and 35 are inside, 25 inside two.
    std::vector<sim::RunRecord> records;
    std::vector<RunPrediction> predictions;
    for (const double gib : {29.0, 35.0, 25.0, 50.0}) {
        records.push_back(run("g", 1.0));
        records.back().measured.memory = {entry(gib, "allocated", "max")};
        predictions.push_back(predicted(1.0));
        predictions.back().allocated.low = 0.9;
        predictions.back().allocated.high = 1.2;
    }
    const GroupFigures all = score_all(records, predictions);
    EXPECT_DOUBLE_EQ(all.allocated.within_one, 0.5);
    EXPECT_DOUBLE_EQ(all.allocated.within_two, 0.75);
}

TEST(Validate, RankPicksTheClassAndUnknownMeansTheLargest) {
    const RunPrediction p = predicted(1.0);
    EXPECT_DOUBLE_EQ(predicted_gib(p, entry(1, "allocated", "first")), 10.0);
    EXPECT_DOUBLE_EQ(predicted_gib(p, entry(1, "allocated", "last")), 20.0);
    EXPECT_DOUBLE_EQ(predicted_gib(p, entry(1, "reserved", "all")), 33.0);
    EXPECT_DOUBLE_EQ(predicted_gib(p, entry(1, "process", "unknown")), 36.0);
}

TEST(Validate, UncertainUnitHasNoErrorBetweenGbAndGib) {
    sim::RunMemory memory = entry(100.0, "allocated", "max");
    EXPECT_NEAR(memory_error(95.0, memory), -0.05, 1e-12);
    memory.unit_uncertain = true;
    EXPECT_DOUBLE_EQ(memory_error(95.0, memory), 0.0);
    EXPECT_DOUBLE_EQ(memory_error(93.2, memory), 0.0);
    EXPECT_NEAR(memory_error(110.0, memory), 0.1, 1e-12);
    EXPECT_NEAR(memory_error(46.55, memory), -0.5, 1e-12);
}

TEST(Validate, ScoresTheFirstCertainEntryOfEachKind) {
    sim::RunRecord record = run("a", 1.0);
    record.measured.memory = {entry(1, "analytic", "first"), entry(2, "allocated", "max"),
                              entry(3, "allocated", "first"), entry(4, "reserved", "max")};
    auto scored = scored_entries(record);
    ASSERT_EQ(scored.size(), 2U);
    EXPECT_DOUBLE_EQ(scored[0].gib, 2.0);
    EXPECT_DOUBLE_EQ(scored[1].gib, 4.0);

    record.measured.memory[1].kind_uncertain = true;
    scored = scored_entries(record);
    EXPECT_DOUBLE_EQ(scored[0].gib, 3.0);
}

TEST(Validate, ErrorsEnterTheFiguresThatARecordIsUsableFor) {
    sim::RunRecord timed = run("a", 2.0);
    timed.usable_for = {"time"};
    timed.measured.memory = {entry(20.0, "allocated", "max")};
    const auto groups = score_predictions({timed}, {predicted(1.0)}, {"group"});
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_EQ(groups[0].time.rows, 1);
    EXPECT_DOUBLE_EQ(groups[0].time.bias, -0.5);
    EXPECT_EQ(groups[0].allocated.rows, 0);
    EXPECT_EQ(groups[0].fit.rows(), 0);
}

TEST(Validate, AnalyticEntriesAreShownAndNotScored) {
    sim::RunRecord record = run("a", 1.0);
    record.measured.memory = {entry(20.0, "analytic", "first")};
    const auto groups = score_predictions({record}, {predicted(1.0)}, {"group"});
    EXPECT_EQ(groups[0].allocated.rows, 0);
    EXPECT_EQ(groups[0].shown.rows, 1);
    EXPECT_DOUBLE_EQ(groups[0].shown.bias, -0.5);
}

TEST(Validate, RunThatDidNotFailFits) {
    sim::RunRecord ran = run("a", 1.0);
    sim::RunRecord failed = run("a", 1.0);
    failed.measured.oom = true;
    RunPrediction fits = predicted(1.0);
    RunPrediction does_not = predicted(1.0);
    does_not.verdict = sim::Verdict::does_not_fit;
    RunPrediction unsure = predicted(1.0);
    unsure.verdict = sim::Verdict::borderline;

    const auto groups = score_predictions({ran, ran, failed, failed, ran},
                                          {fits, does_not, does_not, fits, unsure}, {"group"});
    EXPECT_EQ(groups[0].fit, (FitFigures{2, 2, 1}));
}

TEST(Validate, SkippedRecordsAreCountedAndNotScored) {
    RunPrediction skipped;
    skipped.skipped = "layout.tp is missing";
    const GroupFigures all = score_all({run("a", 1.0)}, {skipped});
    EXPECT_EQ(all.records, 1);
    EXPECT_EQ(all.skipped, 1);
    EXPECT_EQ(all.time.rows, 0);
}

TEST(Validate, GroupsKeepTheOrderOfTheFileAndMayBeCombined) {
    sim::RunRecord b = run("b", 1.0);
    sim::RunRecord a = run("a", 1.0);
    b.stack.name = "x";
    a.stack.name = "y";
    const std::vector<RunPrediction> predictions = {predicted(1.0), predicted(1.0)};
    const auto by_group = score_predictions({b, a}, predictions, {"group"});
    ASSERT_EQ(by_group.size(), 2U);
    EXPECT_EQ(by_group[0].name, "b");
    EXPECT_EQ(score_predictions({b, a}, predictions, {"stack", "group"})[1].name, "a / y");
}

TEST(Validate, UnknownGroupingIsRefusedWithTheNearest) {
    const auto status = check_grouping({"grop"});
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().hint.find("group"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan
