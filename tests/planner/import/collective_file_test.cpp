#include "planner/import/collective_file.hpp"

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"
#include "tests/planner/cli/run_verb.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using shardplan::test::TemporaryFile;

const std::string samples = SHARDPLAN_SOURCE_DIR "/samples/machine/";
const std::string inputs = SHARDPLAN_SOURCE_DIR "/tests/data/inputs/";

CollectiveFile read(const std::string& path) {
    auto file = read_collectives(path);
    EXPECT_TRUE(file) << (file ? "" : to_text(file.error()));
    return file ? *file : CollectiveFile();
}

TimedMachine machine(const std::string& cluster = "") {
    TimedMachine out;
    if (auto devices = sim::load_devices()) {
        out.catalogue = *devices;
    }
    if (!cluster.empty()) {
        auto loaded = sim::load_cluster(cluster);
        EXPECT_TRUE(loaded) << cluster;
        if (loaded) {
            out.cluster = loaded->value;
        }
    }
    return out;
}

/// What is said against completing a file; empty: nothing.
std::string refusal(CollectiveFile file, const TimedMachine& of) {
    const auto status = complete_collectives(file, of);
    return status ? "" : to_text(status.error());
}

bool says(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
}

TEST(CollectiveFile, ALogIsKnownByItsContentAndNamesItsHosts) {
    const CollectiveFile file = read(samples + "p5-all_reduce.log");
    EXPECT_TRUE(file.is_log);
    EXPECT_EQ(file.hosts, "p5-1 and p5-2");
    EXPECT_EQ(file.records.records.size(), 26U);
    EXPECT_TRUE(file.input.starts_with("p5-all_reduce.log ")) << file.input;
}

TEST(CollectiveFile, OtherTextIsReadAsRecordsAndADescriptionOfAMachineIsRefused) {
    const TemporaryFile lines(
        "c.jsonl", "{\"collective\": \"all_reduce\", \"size_bytes\": 8, \"time_us\": 14}\n");
    const CollectiveFile file = read(lines.path());
    EXPECT_FALSE(file.is_log);
    EXPECT_EQ(file.records.records.size(), 1U);
    const auto machine_file = read_collectives(samples + "dgx-topo.txt");
    ASSERT_FALSE(machine_file);
    EXPECT_TRUE(says(machine_file.error().hint, "--cluster")) << machine_file.error().hint;
    EXPECT_FALSE(read_collectives("no-such-file"));
}

TEST(CollectiveFile, ALogOfOneNodeNeedsNoMachine) {
    CollectiveFile file = read(samples + "dgx-all_reduce.log");
    ASSERT_TRUE(complete_collectives(file, machine()));
    const sim::CollectiveRecord& row = file.records.records.front();
    EXPECT_EQ(row.device, "H100-SXM-80GB");
    EXPECT_EQ(row.system, "H100-SXM-80GB");
    EXPECT_EQ(row.nodes, 1);
    EXPECT_EQ(row.ranks_per_node, 8);
}

TEST(CollectiveFile, ALogOfSeveralNodesTakesCardsAndNetworkFromTheMachine) {
    CollectiveFile file = read(samples + "p5-all_reduce.log");
    EXPECT_TRUE(says(refusal(file, machine()), "add --cluster"));
    ASSERT_TRUE(complete_collectives(file, machine("p5")));
    const sim::CollectiveRecord& row = file.records.records.front();
    EXPECT_EQ(row.system, "p5");
    EXPECT_EQ(row.fabric.kind, "efa");
    EXPECT_EQ(row.fabric.nics_per_node, 32);
    EXPECT_DOUBLE_EQ(*row.fabric.gbit_per_nic, 100.0);
    EXPECT_EQ(row.intra_kind, "nvswitch");
}

TEST(CollectiveFile, AMachineThatTheLogContradictsIsRefusedWithBothSides) {
    const CollectiveFile file = read(samples + "p5-all_reduce.log");
    const std::string other = refusal(file, machine("dgx-a100"));
    EXPECT_TRUE(says(other, "NVIDIA H100 80GB HBM3") && says(other, "A100-SXM-80GB")) << other;
    TimedMachine small = machine("p5");
    small.cluster->node_groups.front().node.devices = 4;
    EXPECT_TRUE(says(refusal(file, small), "8 ranks on a node")) << refusal(file, small);
    TimedMachine alone = machine("p5");
    alone.cluster->fabric.kind = sim::FabricKind::none;
    EXPECT_TRUE(says(refusal(file, alone), "cluster.fabric.kind=")) << refusal(file, alone);
    TimedMachine more = machine("p5");
    more.gpus = 32;
    EXPECT_TRUE(says(refusal(file, more), "16 ranks")) << refusal(file, more);
}

TEST(CollectiveFile, AProductThatNobodyKnowsIsTheMachinesIfThatIsSaid) {
    auto text = sim::read_file(samples + "p5-all_reduce.log");
    ASSERT_TRUE(text);
    for (std::size_t at = 0; (at = text->find("NVIDIA H100 80GB HBM3")) != std::string::npos;) {
        text->replace(at, 21, "Frobnicator 9000");
    }
    const auto file = parse_collectives(*text, "log");
    ASSERT_TRUE(file);
    EXPECT_TRUE(says(refusal(*file, machine("p5")), "--device"));
    TimedMachine meant = machine("p5");
    meant.device = "H100-SXM-80GB";
    EXPECT_EQ(refusal(*file, meant), "");
    meant.device = "A100-SXM-80GB";
    EXPECT_TRUE(says(refusal(*file, meant), "leave --device out"));
}

TEST(CollectiveFile, RecordsThatStateANetworkMustAgreeWithTheMachine) {
    const TemporaryFile lines(
        "c.jsonl",
        R"({"collective": "all_reduce", "device": "H100-SXM-80GB", "nodes": 2, "gpus": 16,)"
        R"( "ranks_per_node": 8, "fabric": {"kind": "roce"}, "size_bytes": 8, "time_us": 14})"
        "\n");
    const std::string text = refusal(read(lines.path()), machine("dgx-h100"));
    EXPECT_TRUE(says(text, "roce between nodes") && says(text, "infiniband")) << text;
}

TEST(CollectiveFile, WhatALogLeavesOpenIsAskedForOneThingAtATime) {
    // no program is named, and on two ranks the bandwidths do not tell
    CollectiveFile file = read(inputs + "nccl_tests_interleaved.log");
    TimedMachine of = machine("dgx-a100-40");
    EXPECT_TRUE(says(refusal(file, of), "--collective")) << refusal(file, of);
    of.collective = "all_reduce";
    ASSERT_TRUE(complete_collectives(file, of));
    EXPECT_EQ(file.records.records.front().collective, "all_reduce");
    EXPECT_EQ(file.records.records.front().fabric.nics_per_node, 1); // one rank, one card

    const CollectiveFile prefixed = read(inputs + "nccl_tests_rank_prefix.log");
    EXPECT_TRUE(says(refusal(prefixed, machine()), "--device"));
    TimedMachine device = machine();
    device.device = "H100-SXM-80GB";
    EXPECT_TRUE(says(refusal(prefixed, device), "on how many nodes its 16 ranks ran"));
    CollectiveFile spread = prefixed;
    ASSERT_TRUE(complete_collectives(spread, machine("dgx-h100")));
    EXPECT_EQ(spread.records.records.front().nodes, 2);
    ASSERT_EQ(spread.assumptions.size(), 2U); // each once, not for every row
    EXPECT_EQ(spread.assumptions[0].value, "16");
    EXPECT_EQ(spread.assumptions[1].path, "timings.nodes");
    EXPECT_EQ(spread.records.records.front().ranks_per_node, 8);
}

TEST(CollectiveFile, WrongResultsAndRowsBehindACliffAreFaults) {
    const CollectiveFile file = read(inputs + "nccl_tests_rank_prefix.log");
    const auto& rows = file.records.records;
    ASSERT_EQ(rows.size(), 6U);
    EXPECT_FALSE(rows[0].fault_noted);
    for (std::size_t i = 2; i < rows.size(); ++i) {
        EXPECT_TRUE(rows[i].fault_noted) << i;
        EXPECT_FALSE(rows[i].scorable) << i;
        EXPECT_TRUE(says(*rows[i].fault, "cliff")) << *rows[i].fault;
    }
    EXPECT_EQ(file.records.problems.size(), 2U);
    EXPECT_TRUE(file.records.problems.front().where.ends_with(".log:6"));
}

TEST(CollectiveFile, RanksThatNameNoHostAreSpreadOverTheMachine) {
    auto text = sim::read_file(samples + "p5-all_reduce.log");
    ASSERT_TRUE(text);
    for (const std::string host : {" on p5-1 ", " on p5-2 "}) {
        for (std::size_t at = 0; (at = text->find(host)) != std::string::npos;) {
            text->erase(at, host.size() - 1);
        }
    }
    auto file = parse_collectives(*text, "log");
    ASSERT_TRUE(file);
    EXPECT_EQ(file->hosts, "");
    ASSERT_TRUE(complete_collectives(*file, machine("p5")));
    EXPECT_EQ(file->records.records.front().nodes, 2);
    EXPECT_EQ(file->records.records.front().ranks_per_node, 8);
}

TEST(CollectiveFile, AllReduceIsKnownByItsBandwidths) {
    std::string text = plan::test::sample("nccl_tests_rank_prefix.log");
    text.erase(text.find("# Collective test"), text.find('\n') - text.find("# Collective test"));
    const TemporaryFile log("unnamed.log", text);
    const CollectiveFile file = read(log.path());
    ASSERT_TRUE(file.is_log);
    EXPECT_EQ(file.records.records.front().collective, "all_reduce");
}

} // namespace
} // namespace shardplan::plan
