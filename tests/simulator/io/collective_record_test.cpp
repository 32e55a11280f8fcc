#include "simulator/io/collective_record.hpp"

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

TEST(CollectiveRecord, ReadsShapeNetworkAndTime) {
    const auto file = parse_collective_records(
        R"({"id": "c1", "system": "Two nodes", "system_id": "two", "curve": "two/ar",)"
        R"( "device": "H100-SXM-80GB", "nodes": 2, "gpus": 16, "ranks_per_node": 8,)"
        R"( "intra_kind": "nvswitch", "fabric": {"kind": "tcpx", "nics_per_node": 8,)"
        R"( "gbit_per_nic": 200}, "collective": "all_reduce", "size_bytes": 17179869184,)"
        R"( "time_us": 66132.0, "busbw_GBps": 487.3, "in_place": false, "quality": "measured",)"
        R"( "fault": null, "scorable": true})"
        "\n",
        "c.jsonl");
    ASSERT_TRUE(file) << to_text(file.error());
    EXPECT_TRUE(file->problems.empty());
    const CollectiveRecord& r = file->records.at(0);
    EXPECT_EQ(r.system, "two");
    EXPECT_EQ(r.fabric.nics_per_node, 8);
    EXPECT_EQ(r.size_bytes, std::int64_t{1} << 34);
    EXPECT_EQ(r.time_us, 66132.0);
    EXPECT_EQ(r.in_place, false);
    EXPECT_FALSE(r.fault);
    EXPECT_TRUE(r.scorable);
    EXPECT_EQ(r.line, 1);
}

TEST(CollectiveRecord, TakesForcedAlgorithmsFromTheEnvironment) {
    EXPECT_EQ(variable_in("NCCL_ALGO=NVLSTree; chart-read", "NCCL_ALGO"), "NVLSTree");
    EXPECT_EQ(variable_in("-x NCCL_PROTO=LL -x NCCL_ALGO=Ring,Tree", "NCCL_ALGO"), "Ring,Tree");
    EXPECT_EQ(variable_in("NCCL_ALGO=Ring,NCCL_PROTO=LL", "NCCL_ALGO"), "Ring");
    EXPECT_FALSE(variable_in("MY_NCCL_ALGO=Ring", "NCCL_ALGO"));
    const auto off = parse_collective_records(
        R"x({"collective": "all_reduce", "env": "NCCL_NVLS_ENABLE=0 (ring)"})x", "c.jsonl");
    ASSERT_TRUE(off);
    EXPECT_EQ(off->records.at(0).algorithm, "^NVLS,NVLSTree");
}

TEST(CollectiveRecord, ABadCellOrLineIsToldAndLosesNothingElse) {
    const auto file = parse_collective_records(
        "{\"id\": \"a\", \"size_bytes\": \"many\"}\n"
        "not json\n"
        "[1]\n"
        "{\"id\": \"b\", \"gpus\": -3}\n",
        "c.jsonl");
    ASSERT_TRUE(file);
    EXPECT_EQ(file->records.size(), 2U);
    EXPECT_FALSE(file->records[0].size_bytes);
    EXPECT_FALSE(file->records[1].gpus);
    ASSERT_EQ(file->problems.size(), 4U);
    EXPECT_NE(file->problems[1].where.find("c.jsonl:2"), std::string::npos);
    EXPECT_NE(file->problems[2].where.find("c.jsonl:3"), std::string::npos);
}

TEST(CollectiveRecord, AFileWithoutRecordsIsRefused) {
    EXPECT_FALSE(parse_collective_records("", "c.jsonl"));
    EXPECT_FALSE(parse_collective_records("plain text\n", "c.jsonl"));
}

} // namespace
} // namespace shardplan::sim
