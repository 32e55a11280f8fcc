#include "simulator/io/sweep_record.hpp"

#include <string>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

const std::string machine_line =
    R"({"machine":{"cpu":"some","device":"cpu-generic","ranks":2,"threads":1,"cores":2},)"
    R"("probe":{"spread":0.05,"samples":9}})"
    "\n";
const std::string product_line =
    R"({"id":"a","op":"gemm","dtype":"fp32","m":1,"n":2,"k":3,"tflops":0.01,"scorable":true})"
    "\n";

TEST(SweepRecord, LinesBelongToTheMachineAboveThem) {
    const std::string text =
        machine_line + product_line +
        R"({"id":"b","op":"gemm","alone":true,"m":1,"n":2,"k":3,"tflops":0.02,"scorable":true})"
        "\n" +
        machine_line +
        R"({"id":"c","op":"norm_fwd","rows":4,"width":8,"bytes":256,"seconds":1e-6})"
        "\n"
        R"({"id":"d","collective":"all_reduce","size_bytes":1024,"time_us":5,"gpus":2})"
        "\n";
    const auto read = parse_sweeps(text, "s.jsonl");
    ASSERT_TRUE(read);
    ASSERT_EQ(read->sweeps.size(), 2U);
    EXPECT_EQ(read->sweeps[0].machine.ranks, 2);
    EXPECT_DOUBLE_EQ(read->sweeps[0].machine.probe_spread, 0.05);
    ASSERT_EQ(read->sweeps[0].kernels.size(), 1U);
    EXPECT_EQ(read->sweeps[0].kernels[0].id, "a");
    ASSERT_EQ(read->sweeps[0].alone.size(), 1U);
    EXPECT_EQ(read->sweeps[0].alone[0].id, "b");
    EXPECT_TRUE(read->sweeps[0].operators.empty());
    ASSERT_EQ(read->sweeps[1].operators.size(), 1U);
    EXPECT_EQ(read->sweeps[1].operators[0].bytes, 256.0);
    ASSERT_EQ(read->sweeps[1].collectives.size(), 1U);
    EXPECT_EQ(read->sweeps[1].collectives[0].id, "d");
}

TEST(SweepRecord, IsToldFromOtherRecordsByItsFirstLine) {
    EXPECT_TRUE(is_sweep(machine_line + product_line));
    EXPECT_FALSE(is_sweep(product_line));
    EXPECT_FALSE(is_sweep("# nccl-tests"));
    EXPECT_FALSE(is_sweep(""));
}

TEST(SweepRecord, MeasurementsWithoutAMachineAreRefused) {
    const auto read = parse_sweeps(product_line + machine_line, "s.jsonl");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().where, "s.jsonl:1");
}

TEST(SweepRecord, AMachineThatDoesNotSayWhatARankIsIsRefused) {
    const auto read = parse_sweeps(R"({"machine":{"cpu":"some"}})", "s.jsonl");
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().what.find("device"), std::string::npos);
}

TEST(SweepRecord, ABrokenLineLosesItselfAlone) {
    const auto read = parse_sweeps(machine_line + "{\"op\":\n" + product_line, "s.jsonl");
    ASSERT_TRUE(read);
    EXPECT_FALSE(read->problems.empty());
    EXPECT_EQ(read->sweeps[0].kernels.size(), 1U);
}

} // namespace
} // namespace shardplan::sim
