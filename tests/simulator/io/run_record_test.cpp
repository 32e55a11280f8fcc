#include "simulator/io/run_record.hpp"

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

TEST(RunRecord, NullAndAbsentValuesAreBothNotKnown) {
    const auto runs = parse_run_records(
        R"({"id": "a", "model": {"layers": 32, "kv_heads": null}, "layout": {"tp": 2}})", "runs");
    ASSERT_TRUE(runs);
    const RunRecord& record = runs->records.at(0);
    EXPECT_EQ(record.model.layers, 32);
    EXPECT_FALSE(record.model.kv_heads.has_value());
    EXPECT_FALSE(record.model.heads.has_value());
    EXPECT_EQ(record.layout.tp, 2);
    EXPECT_TRUE(runs->problems.empty());
}

TEST(RunRecord, UnknownKeysAreIgnored) {
    const auto runs = parse_run_records(
        R"({"id": "a", "trust": "high", "cluster": {"printed": {"intra": "NVLink"}}})", "runs");
    ASSERT_TRUE(runs);
    EXPECT_EQ(runs->records.size(), 1U);
    EXPECT_TRUE(runs->problems.empty());
}

TEST(RunRecord, BrokenLineIsLostAloneAndReportedWithItsNumber) {
    const auto runs = parse_run_records("{\"id\": \"a\"}\n\n{\"id\": \n{\"id\": \"c\"}\n", "runs");
    ASSERT_TRUE(runs);
    ASSERT_EQ(runs->records.size(), 2U);
    EXPECT_EQ(runs->records[1].id, "c");
    EXPECT_EQ(runs->records[1].line, 4);
    ASSERT_EQ(runs->problems.size(), 1U);
    EXPECT_EQ(runs->problems[0].where.rfind("runs:3", 0), 0U) << runs->problems[0].where;
}

TEST(RunRecord, ValueOfWrongTypeIsLostAloneAndReportedWithItsPlace) {
    const auto runs =
        parse_run_records(R"({"id": "a", "model": {"layers": "many", "hidden": 64}})", "runs");
    ASSERT_TRUE(runs);
    EXPECT_FALSE(runs->records[0].model.layers.has_value());
    EXPECT_EQ(runs->records[0].model.hidden, 64);
    ASSERT_EQ(runs->problems.size(), 1U);
    EXPECT_EQ(runs->problems[0].where, "runs:1: /model/layers");
}

TEST(RunRecord, NegativeSizesAreNotSizes) {
    const auto runs = parse_run_records(R"({"id": "a", "layout": {"tp": -2}})", "runs");
    ASSERT_TRUE(runs);
    EXPECT_FALSE(runs->records[0].layout.tp.has_value());
    EXPECT_EQ(runs->problems.size(), 1U);
}

TEST(RunRecord, WindowsLineEndsAndByteOrderMarkAreAccepted) {
    const auto runs =
        parse_run_records("\xEF\xBB\xBF{\"id\": \"a\"}\r\n{\"id\": \"b\"}\r\n", "runs");
    ASSERT_TRUE(runs);
    EXPECT_EQ(runs->records.size(), 2U);
    EXPECT_TRUE(runs->problems.empty());
}

TEST(RunRecord, WithoutIdTheLineNumberNamesARecord) {
    const auto runs = parse_run_records("{}\n", "runs");
    ASSERT_TRUE(runs);
    EXPECT_EQ(runs->records[0].id, "line-1");
}

TEST(RunRecord, FileWithoutAnyRecordIsAnError) {
    EXPECT_FALSE(parse_run_records("", "runs"));
    const auto broken = parse_run_records("[1]\n", "runs");
    ASSERT_FALSE(broken);
    EXPECT_FALSE(broken.error().hint.empty());
}

TEST(RunRecord, MemoryEntriesKeepTheirOrderAndMarks) {
    const auto one_line = parse_run_records(
        R"({"measured": {"memory": [{"gib": 10, "kind": "reserved", "rank": "first", )"
        R"("unit_uncertain": true}, {"gib": 9.5, "kind": "allocated", "rank": "last", )"
        R"("kind_uncertain": true}], "step_time_s": 2.5, "oom": true}})",
        "runs");
    ASSERT_TRUE(one_line);
    const RunMeasured& measured = one_line->records[0].measured;
    ASSERT_EQ(measured.memory.size(), 2U);
    EXPECT_EQ(measured.memory[0].kind, "reserved");
    EXPECT_TRUE(measured.memory[0].unit_uncertain);
    EXPECT_TRUE(measured.memory[1].kind_uncertain);
    EXPECT_EQ(measured.step_time_s, 2.5);
    EXPECT_TRUE(measured.oom);
}

} // namespace
} // namespace shardplan::sim
