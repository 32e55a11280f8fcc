#include "planner/analysis/collectives.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/analysis/collectives_fit.hpp"
#include "simulator/io/catalogue.hpp"

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

TEST(Collectives, AFitNeedsFourSizesOfOneSystemAndNetwork) {
    const auto reproducer = CollectiveReproducer::make();
    ASSERT_TRUE(reproducer);
    auto records = curve_of(0.8, 3e6);
    records.resize(3);
    EXPECT_FALSE(fit_fabric(*reproducer, records));
    EXPECT_FALSE(fit_fabric(*reproducer, {}));
    records = curve_of(0.8, 3e6);
    records[1].system = "another";
    EXPECT_FALSE(fit_fabric(*reproducer, records));
    records = curve_of(0.8, 3e6);
    records[1] = record(1, 1 << 20);
    records[1].time_us = 100.0;
    const auto mixed = fit_fabric(*reproducer, records);
    ASSERT_FALSE(mixed);
    EXPECT_NE(mixed.error().what.find("infiniband and nvswitch"), std::string::npos);
}

TEST(Collectives, NumbersOfNodesOnOneNetworkAreFittedTogether) {
    auto records = curve_of(0.8, 3e6);
    for (std::size_t i = 0; i < records.size(); i += 2) {
        records[i].nodes = 2; // as fast as four, near enough to be fitted
        records[i].gpus = 16;
    }
    const auto result = fit_fabrics(records);
    ASSERT_TRUE(result) << to_text(result.error());
    ASSERT_EQ(result->fits.size(), 1U);
    EXPECT_EQ(result->fits[0].shapes, (std::vector<FitShape>{{2, 16}, {4, 32}}));
    EXPECT_EQ(result->fits[0].residuals.size(), records.size());
    EXPECT_LT(result->fits[0].after.median, result->fits[0].before.median);
}

TEST(Collectives, NodesAreFittedBeforeTheNetworkBetweenThem) {
    auto records = curve_of(0.8, 3e6);
    std::vector<sim::CollectiveRecord> inside;
    for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 4) {
        inside.push_back(record(1, bytes));
    }
    const auto rows = predict(inside);
    for (std::size_t i = 0; i < inside.size(); ++i) {
        inside[i].time_us = 1.2 * rows[i].time_us;
    }
    records.insert(records.end(), inside.begin(), inside.end());
    const auto result = fit_fabrics(records);
    ASSERT_TRUE(result);
    ASSERT_EQ(result->fits.size(), 2U);
    EXPECT_EQ(result->fits[0].fabric, "nvswitch");
    EXPECT_EQ(result->fits[1].fabric, "infiniband");
    const auto file = calibration_of(result->fits, "tool", "input");
    ASSERT_TRUE(file) << to_text(file.error());
    EXPECT_EQ(file->entries.size(),
              result->fits[0].decided.size() + result->fits[1].decided.size());
    EXPECT_EQ(file->date, ""); // no clock: the same records give the same bytes
}

TEST(Collectives, FaultsAndWhatCannotBePredictedAreLeftOutOfAFitAndNamed) {
    auto records = curve_of(0.8, 3e6);
    records[0].fault_noted = true;
    records[0].fault = "wrong results";
    records[1].device = "no such device";
    const auto result = fit_fabrics(records);
    ASSERT_TRUE(result);
    ASSERT_EQ(result->fits.size(), 1U);
    EXPECT_EQ(result->fits[0].residuals.size(), records.size() - 2);
    ASSERT_EQ(result->left_out.size(), 2U);
    EXPECT_EQ(result->left_out[0].why, "faulty: wrong results");
    EXPECT_NE(result->left_out[1].why.find("no such device"), std::string::npos);
}

TEST(Collectives, ACalibrationHoldsOneMachine) {
    auto records = curve_of(0.8, 3e6);
    auto others = curve_of(0.7, 3e6);
    for (sim::CollectiveRecord& other : others) {
        other.system = "another";
    }
    records.insert(records.end(), others.begin(), others.end());
    const auto result = fit_fabrics(records);
    ASSERT_TRUE(result);
    ASSERT_EQ(result->fits.size(), 2U);
    const auto file = calibration_of(result->fits, "tool", "input");
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().hint.find("--system"), std::string::npos);
}

TEST(Collectives, WhatTheRecordsConfirmIsCalibratedAndWhatTheyDoNotShowIsNot) {
    const auto reproducer = CollectiveReproducer::make();
    ASSERT_TRUE(reproducer);
    auto records = curve_of(0.95, 1.2e6);
    const auto plain = predict(records);
    for (std::size_t i = 0; i < records.size(); ++i) {
        records[i].time_us = plain[i].time_us; // as the profile has it
    }
    const auto fit = fit_fabric(*reproducer, records);
    ASSERT_TRUE(fit);
    const auto decided = [&](const std::string& name) {
        for (const DecidedConstant& one : fit->decided) {
            if (one.path == "fabric.infiniband." + name) {
                return one.before == one.after;
            }
        }
        return false;
    };
    EXPECT_TRUE(decided("tree.bandwidth_efficiency"));
    for (const DecidedConstant& one : fit->decided) {
        EXPECT_EQ(one.before, one.after) << one.path;
        EXPECT_EQ(one.path.find(".low_latency."), std::string::npos) << one.path; // from 1 MiB up
    }
}

TEST(Collectives, OnAMachineItsOwnLinksArePriced) {
    auto machine = sim::load_cluster("dgx-h100");
    ASSERT_TRUE(machine);
    sim::Cluster slow = machine->value;
    slow.node_groups.front().node.nics.per_nic.physical = sim::Bandwidth(12.5e9);
    sim::CollectiveRecord one = record(4, std::int64_t{1} << 32);
    const auto usual = predict_collectives({one}, {}, machine->value);
    one.fabric.gbit_per_nic = 100.0;
    const auto slower = predict_collectives({one}, {}, slow);
    ASSERT_TRUE(usual && slower);
    EXPECT_GT(slower->front().time_us, 2.0 * usual->front().time_us);
}

TEST(Collectives, OnAMachineOfSeveralNodeGroupsTheNodesAreThoseOfTheDevice) {
    sim::Cluster mixed = sim::load_cluster("dgx-a100")->value;
    mixed.scalable = false;
    mixed.node_groups[0].count = 2;
    mixed.node_groups.push_back(sim::load_cluster("dgx-h100")->value.node_groups[0]);
    mixed.node_groups[1].count = 2;
    const auto alone = predict_collectives({record(1, 1 << 28), record(2, 1 << 28)}, {},
                                           sim::load_cluster("dgx-h100")->value);
    const auto within = predict_collectives({record(1, 1 << 28), record(2, 1 << 28)}, {}, mixed);
    ASSERT_TRUE(alone && within);
    EXPECT_EQ(within->at(0).time_us, alone->at(0).time_us);
    // over all of the machine the slower cards decide
    const auto all = predict_collectives({record(4, std::int64_t{1} << 32)}, {}, mixed);
    const auto fast = predict_collectives({record(4, std::int64_t{1} << 32)}, {},
                                          sim::load_cluster("dgx-h100")->value);
    ASSERT_TRUE(all && fast);
    EXPECT_GT(all->front().time_us, 1.5 * fast->front().time_us);
}

TEST(Collectives, OnAPartOfATorusAreTimedOnThatPart) {
    sim::Cluster torus = sim::load_cluster("dgx-h100")->value;
    torus.scalable = false;
    torus.node_groups[0].count = 16;
    torus.fabric.rails = false;
    torus.fabric.levels.clear();
    torus.node_groups[0].node.nics = {}; // the links end at the devices
    torus.fabric.torus.assign(2, {4, {sim::Bandwidth(25e9), {}, {}}, {}, true});
    const auto rows = predict_collectives(
        {record(16, 1 << 28), record(4, 1 << 28), record(6, 1 << 28)}, {}, torus);
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->at(0).algorithm, "torus_2d");
    EXPECT_GT(rows->at(1).time_us, 0.0);
    EXPECT_NE(rows->at(2).skipped.find("no whole number of parts of the torus"), std::string::npos)
        << rows->at(2).skipped;
}

} // namespace
} // namespace shardplan::plan
