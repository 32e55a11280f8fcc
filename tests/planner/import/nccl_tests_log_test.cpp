#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::finds;
using test::line_of;
using test::loses;
using test::read_any;
using test::sample;

const std::string header =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  algbw   busbw #wrong\n";

TEST(NcclTestsLog, LinesOfTheLibraryInsideTheTableDoNotBreakIt) {
    const ForeignCluster file = read_any(sample("nccl_tests_interleaved.log"));
    ASSERT_TRUE(file.log);
    EXPECT_EQ(file.log->rows, 4);
    EXPECT_EQ(file.log->warnings, 1);
    EXPECT_TRUE(finds(file, "nccl-warning", "port error"));
    ASSERT_EQ(file.log->records.size(), 8U);
    const sim::CollectiveRecord& last = file.log->records.back();
    EXPECT_EQ(last.size_bytes, 67108864);
    EXPECT_EQ(last.in_place, true);
    EXPECT_DOUBLE_EQ(*last.busbw_gbytes, 4.90);
    EXPECT_EQ(last.gpus, 2);
    EXPECT_EQ(last.nodes, 2);
    EXPECT_EQ(last.ranks_per_node, 1);
    EXPECT_EQ(last.device, "A100-SXM4-40GB");
    EXPECT_FALSE(last.fault_noted);
    EXPECT_TRUE(last.scorable);
    EXPECT_FALSE(file.log->cliff_at);
}

TEST(NcclTestsLog, CollectiveThatNobodyNamesIsNotGuessed) {
    const ForeignCluster file = read_any(sample("nccl_tests_interleaved.log"));
    EXPECT_TRUE(file.log->records[0].collective.empty());
    EXPECT_TRUE(loses(file, 0, "which collective"));
}

TEST(NcclTestsLog, TagsBrokenRowsAndUncheckedResultsAreReadAndTheCliffIsFound) {
    const ForeignCluster file = read_any(sample("nccl_tests_rank_prefix.log"));
    EXPECT_EQ(file.log->rows, 3);
    EXPECT_EQ(file.log->cliff_at, 67108864);
    EXPECT_TRUE(finds(file, "cliff", "30.7 GB/s to 5.47 GB/s"));
    EXPECT_EQ(line_of(file, "cliff"), 6);
    ASSERT_EQ(file.log->records.size(), 6U);
    EXPECT_DOUBLE_EQ(*file.log->records[3].time_us, 23100.9); // the second half, a line later
    EXPECT_EQ(file.log->records[0].collective, "all_reduce");
    EXPECT_EQ(file.log->records[0].gpus, 16); // 2 (n - 1) / n of the two bandwidths
    EXPECT_TRUE(file.log->records[0].ranks_inferred);
    EXPECT_TRUE(file.lost.empty());
}

TEST(NcclTestsLog, WrongElementsAreFlaggedAndTheRowIsNotScorable) {
    const ForeignCluster file =
        read_any("all_reduce_perf -b 32M\n" + header +
                 "33554432 8388608 float sum -1 2051.0 16.36 30.67 12 2049.2 16.37 30.70 0\n");
    EXPECT_EQ(file.log->wrong, 12);
    EXPECT_TRUE(finds(file, "wrong-results", "12 wrong elements"));
    EXPECT_FALSE(file.log->records[0].scorable);
    EXPECT_EQ(file.log->records[0].fault, "wrong results");
    EXPECT_TRUE(file.log->records[1].scorable);
}

TEST(NcclTestsLog, RowsWithoutAnOperationOrARootAreRead) {
    const ForeignCluster file = read_any(
        "# Collective test starting: alltoall_perf\n" + header +
        "  1048576  16384  float  none  -1  100.0  10.49  9.18  0  101.0  10.38  9.08  N/A\n"
        "  2097152  32768  float  none  -1  150.0  13.98  12.23  0\n");
    ASSERT_EQ(file.log->records.size(), 3U);
    EXPECT_EQ(file.log->records[0].collective, "all_to_all");
    EXPECT_EQ(file.log->records[2].size_bytes, 2097152);
    EXPECT_EQ(file.log->rows, 2);
}

TEST(NcclTestsLog, RowThatBreaksOffIsLostAlone) {
    const ForeignCluster file =
        read_any("all_gather_perf\n" + header +
                 "1048576 16384 float none -1\n"
                 "2097152 32768 float none -1 150.0 13.98 12.23 0 151.0 13.88 12.15 0\n");
    EXPECT_EQ(file.log->rows, 1);
    EXPECT_TRUE(loses(file, 3, "breaks off"));
}

TEST(NcclTestsLog, LabelsOfLaunchersAndTheEnvironmentAreUnderstood) {
    const ForeignCluster file = read_any(
        "0: # Collective test starting: reduce_scatter_perf\n"
        "0: n1:7:7 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
        "0: n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0\n"
        "0: " +
        header + "0: 16777216 524288 float sum -1 100.0 167.77 146.80 0 101.0 166.11 145.35 0\n");
    ASSERT_EQ(file.log->records.size(), 2U);
    EXPECT_EQ(file.log->records[0].collective, "reduce_scatter");
    EXPECT_EQ(file.log->records[0].env, "NCCL_ALGO=Ring");
    EXPECT_EQ(file.log->records[0].algorithm, "Ring");
    EXPECT_EQ(file.log->records[0].fabric.kind, "roce");
    EXPECT_EQ(file.log->records[0].gpus, 8);
}

TEST(NcclTestsLog, ALogDescribesNoMachine) {
    const auto built =
        build_cluster(read_any(sample("nccl_tests_interleaved.log")), test::help_with());
    ASSERT_FALSE(built);
    EXPECT_NE(built.error().hint.find("validate --collectives"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan
