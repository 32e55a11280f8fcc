// Predicted against measured times of collectives, over every published curve in data/. The bars
// are those the project promises; they are printed, so that a failure shows where it stands.
#include "planner/analysis/collectives.hpp"

#include <filesystem>
#include <iostream>

#include <gtest/gtest.h>

#include "planner/analysis/collectives_fit.hpp"

namespace shardplan::plan {
namespace {

/// The file that the build unpacks beside the program.
std::string collectives_path() {
    const std::filesystem::path program(SHARDPLAN_PROGRAM);
    return (program.parent_path().parent_path() / "test_data" / "collectives.jsonl").string();
}

struct Collectives {
    std::vector<sim::CollectiveRecord> records;
    std::vector<CollectivePrediction> predictions;
    std::vector<CollectiveBar> bars;
};

const Collectives& collectives() {
    static const Collectives all = [] {
        Collectives out;
        auto file = sim::read_collective_records(collectives_path());
        EXPECT_TRUE(file) << (file ? "" : sim::to_text(file.error()));
        if (!file) {
            return out;
        }
        out.records = file->records;
        auto rows = predict_collectives(out.records, {});
        EXPECT_TRUE(rows) << (rows ? "" : sim::to_text(rows.error()));
        if (rows) {
            out.predictions = *rows;
            out.bars = collective_bars(out.records, out.predictions);
        }
        for (const CollectiveBar& bar : out.bars) {
            std::cout << bar.what << ": median " << 100.0 * bar.median << " %, worst "
                      << 100.0 * bar.worst << " % " << bar.worst_system << "\n";
        }
        return out;
    }();
    return all;
}

const CollectiveBar& bar(std::string_view begin) {
    static const CollectiveBar none;
    for (const CollectiveBar& b : collectives().bars) {
        if (b.what.starts_with(begin)) {
            return b;
        }
    }
    ADD_FAILURE() << "no bar " << begin;
    return none;
}

TEST(CollectivesAgainstMeasurement, LargeAllReduceHoldsItsBarsOverSystems) {
    const CollectiveBar& all_reduce = bar("all_reduce");
    EXPECT_GE(all_reduce.systems, 16);
    EXPECT_LE(all_reduce.median, 0.08);
    EXPECT_GE(all_reduce.within_15, 0.80);
    EXPECT_LE(all_reduce.worst, 0.30) << all_reduce.worst_system;
}

TEST(CollectivesAgainstMeasurement, TheOtherCollectivesHoldTheirsOverRows) {
    for (const char* name : {"all_gather", "reduce_scatter", "all_to_all", "reduce,"}) {
        EXPECT_LE(bar(name).median, 0.15) << name;
    }
}

TEST(CollectivesAgainstMeasurement, SmallerMessagesHoldTheirsOverSystems) {
    EXPECT_LE(bar("64 KiB").median, 0.20);
    EXPECT_LE(bar("< 64 KiB").median, 0.35);
}

TEST(CollectivesAgainstMeasurement, AFitPredictsTheSizesItHasNotSeen) {
    const auto curves = test_curves(collectives().records);
    ASSERT_TRUE(curves) << to_text(curves.error());
    EXPECT_GE(curves->size(), 40U);
    std::vector<double> medians;
    for (const CurveTest& curve : *curves) {
        medians.push_back(curve.tested.median);
    }
    EXPECT_LE(median_of(medians), 0.05);
}

TEST(CollectivesAgainstMeasurement, TwoOfEightMi300XHaveOneLinkAndEightHaveSeven) {
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < collectives().records.size(); ++i) {
        const sim::CollectiveRecord& r = collectives().records[i];
        if (r.device != "MI300X" || r.nodes != 1 || r.size_bytes < (std::int64_t{1} << 30)) {
            continue;
        }
        EXPECT_NEAR(collectives().predictions[i].time_us / *r.time_us, 1.0, 0.15) << r.id;
        ++seen;
    }
    EXPECT_GE(seen, 5);
}

TEST(CollectivesAgainstMeasurement, FaultySystemsAreFlaggedAndPredictedAsIfTheyWereNot) {
    std::int64_t flagged = 0;
    for (std::size_t i = 0; i < collectives().records.size(); ++i) {
        const bool noted = collectives().records[i].fault_noted;
        const CollectivePrediction& row = collectives().predictions[i];
        EXPECT_EQ(row.skipped.empty() && noted, !row.flag.empty()) << row.id;
        flagged += row.flag.empty() ? 0 : 1;
    }
    EXPECT_GE(flagged, 20);
}

} // namespace
} // namespace shardplan::plan
