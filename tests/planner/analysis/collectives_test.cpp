#include "planner/analysis/collectives.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/analysis/collectives_fit.hpp"

namespace shardplan::plan {
namespace {

sim::CollectiveRecord record(std::int64_t nodes, std::int64_t bytes) {
    sim::CollectiveRecord r;
    r.id = std::to_string(nodes) + "-" + std::to_string(bytes);
    r.system = "made-up";
    r.curve = "made-up/" + std::to_string(nodes);
    r.collective = "all_reduce";
    r.device = "H100-SXM-80GB";
    r.nodes = nodes;
    r.ranks_per_node = 8;
    r.gpus = 8 * nodes;
    r.intra_kind = "nvswitch";
    r.fabric = {nodes > 1 ? "infiniband" : "none", 8, 400.0, {}};
    r.library = "nccl";
    r.size_bytes = bytes;
    r.quality = "measured";
    return r;
}

std::vector<CollectivePrediction> predict(const std::vector<sim::CollectiveRecord>& records) {
    auto rows = predict_collectives(records, {});
    EXPECT_TRUE(rows) << (rows ? "" : to_text(rows.error()));
    return rows ? *rows : std::vector<CollectivePrediction>{};
}

TEST(Collectives, RowsComeInTheOrderOfTheRecordsAndSayWhyOneIsSkipped) {
    std::vector<sim::CollectiveRecord> records = {record(1, 1 << 20), record(4, 1 << 26),
                                                  record(1, 1 << 28)};
    records[1].device.reset();
    records.push_back(record(2, 1 << 20));
    records.back().collective = "all_shuffle";
    const auto rows = predict(records);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_GT(rows[0].time_us, 0.0);
    EXPECT_NE(rows[1].skipped.find("device"), std::string::npos);
    EXPECT_EQ(rows[2].algorithm, "nvls");
    EXPECT_NE(rows[3].skipped.find("all_shuffle"), std::string::npos);
}

TEST(Collectives, AForcedAlgorithmIsTheOneThatIsPriced) {
    sim::CollectiveRecord forced = record(1, 1 << 28);
    forced.algorithm = "Ring";
    const auto rows = predict({record(1, 1 << 28), forced});
    EXPECT_EQ(rows[1].algorithm, "ring");
    EXPECT_GT(rows[1].time_us, rows[0].time_us);
}

TEST(Collectives, CardsTheRecordDoesNotNameComeFromAClusterOfTheDeviceWithANote) {
    sim::CollectiveRecord open = record(4, 1 << 28);
    open.fabric.nics_per_node.reset();
    open.fabric.gbit_per_nic.reset();
    const auto rows = predict({open});
    EXPECT_TRUE(rows[0].skipped.empty()) << rows[0].skipped;
    EXPECT_FALSE(rows[0].notes.empty());
}

TEST(Collectives, AFaultIsFlaggedAndStaysOutOfTheFigures) {
    std::vector<sim::CollectiveRecord> records = {record(1, 1 << 26), record(1, 1 << 27)};
    for (sim::CollectiveRecord& r : records) {
        r.time_us = 1000.0;
    }
    records[1].fault_noted = true;
    records[1].fault = "one card of four";
    const auto rows = predict(records);
    EXPECT_NE(rows[1].flag.find("one card of four"), std::string::npos);
    const auto groups = score_collectives(records, rows);
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_EQ(groups[0].flagged, 1);
    EXPECT_EQ(groups[0].time.rows, 1);
}

TEST(Collectives, ASystemFarBelowItsLinksIsRemarkedOn) {
    sim::CollectiveRecord slow = record(1, 1 << 28);
    const auto rows = predict({slow});
    slow.time_us = 3.0 * rows[0].time_us;
    const auto groups = score_collectives({slow}, rows);
    EXPECT_NE(groups[0].remark.find("33 % of what these links should give"), std::string::npos);
    slow.time_us = 1.2 * rows[0].time_us;
    EXPECT_EQ(score_collectives({slow}, rows)[0].remark, "");
}

/// A curve as a network with these constants would give it.
std::vector<sim::CollectiveRecord> curve_of(double share, double half) {
    std::vector<sim::CollectiveRecord> records;
    for (std::int64_t bytes = 1 << 20; bytes <= std::int64_t{1} << 33; bytes *= 2) {
        records.push_back(record(4, bytes));
    }
    sim::Calibration truth;
    truth.entries = {
        {"fabric.infiniband.bandwidth_efficiency", "infiniband", share, 0, 0, 0.0, 1, ""},
        {"fabric.infiniband.tree.bandwidth_efficiency", "infiniband", share, 0, 0, 0.0, 1, ""},
        {"fabric.infiniband.tree.half_size", "infiniband", half, 0, 0, 0.0, 1, ""}};
    const auto rows = predict_collectives(records, truth);
    for (std::size_t i = 0; i < records.size(); ++i) {
        records[i].time_us = rows->at(i).time_us;
    }
    return records;
}

TEST(Collectives, AFitFindsTheConstantsOfTheNetworkItWasMeasuredOn) {
    const auto reproducer = CollectiveReproducer::make();
    ASSERT_TRUE(reproducer);
    const auto records = curve_of(0.80, 3e6);
    const auto fit = fit_fabric(*reproducer, records);
    ASSERT_TRUE(fit) << to_text(fit.error());
    EXPECT_EQ(fit->fabric, "infiniband");
    EXPECT_GT(fit->before.median, 0.05);
    EXPECT_LT(fit->after.median, 0.01);
    EXPECT_EQ(fit->residuals.size(), records.size());
    EXPECT_EQ(fit->flag, "");
    const auto rows = predict_collectives(records, fit->calibration);
    ASSERT_TRUE(rows) << to_text(rows.error());
    EXPECT_NEAR(rows->back().time_us / *records.back().time_us, 1.0, 0.02);
    for (const sim::CalibrationEntry& entry : fit->calibration.entries) {
        EXPECT_EQ(entry.size_lo, 1 << 20);
        EXPECT_EQ(entry.samples, 14);
    }
}

TEST(Collectives, AFitThatMatchesAMistunedSystemSaysSo) {
    const auto reproducer = CollectiveReproducer::make();
    ASSERT_TRUE(reproducer);
    const auto fit = fit_fabric(*reproducer, curve_of(0.30, 1e6));
    ASSERT_TRUE(fit);
    EXPECT_NE(fit->flag.find("% of what these links should give"), std::string::npos);
}

TEST(Collectives, AFitNeedsFourSizesOfOneShape) {
    const auto reproducer = CollectiveReproducer::make();
    ASSERT_TRUE(reproducer);
    auto records = curve_of(0.8, 3e6);
    records.resize(3);
    EXPECT_FALSE(fit_fabric(*reproducer, records));
    EXPECT_FALSE(fit_fabric(*reproducer, {}));
    records = curve_of(0.8, 3e6);
    records[1].nodes = 8;
    EXPECT_FALSE(fit_fabric(*reproducer, records));
}

} // namespace
} // namespace shardplan::plan
