#include "simulator/io/kernel_record.hpp"

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

TEST(KernelRecord, ReadsShapesAndLeavesOpenWhatIsNotStated) {
    const auto kernels = parse_kernel_records(
        R"({"op": "gemm", "device": "H100-SXM-80GB", "dtype": "bf16", "impl": null, "m": 4096, )"
        R"("n": 1024, "k": 512, "accumulate": true, "tflops": 500.5, "scorable": true})",
        "kernels");
    ASSERT_TRUE(kernels);
    const KernelRecord& record = kernels->records.at(0);
    EXPECT_EQ(record.id, "line-1");
    EXPECT_EQ(record.op, "gemm");
    EXPECT_EQ(record.n, 1024);
    EXPECT_EQ(record.accumulate, true);
    EXPECT_EQ(record.tflops, 500.5);
    EXPECT_TRUE(record.scorable);
    EXPECT_FALSE(record.impl.has_value());
    EXPECT_FALSE(record.heads.has_value());
    EXPECT_TRUE(kernels->problems.empty());
}

TEST(KernelRecord, ValueOfWrongTypeAndBrokenLineAreLostAloneAndReported) {
    const auto kernels =
        parse_kernel_records("{\"id\": \"a\", \"m\": \"many\", \"n\": 8}\n{broken\n", "kernels");
    ASSERT_TRUE(kernels);
    ASSERT_EQ(kernels->records.size(), 1U);
    EXPECT_FALSE(kernels->records[0].m.has_value());
    EXPECT_EQ(kernels->records[0].n, 8);
    ASSERT_EQ(kernels->problems.size(), 2U);
    EXPECT_EQ(kernels->problems[0].where, "kernels:1: /m");
    EXPECT_EQ(kernels->problems[1].where.rfind("kernels:2", 0), 0U) << kernels->problems[1].where;
}

TEST(KernelRecord, FileWithoutARecordSaysWhatOneIs) {
    const auto kernels = parse_kernel_records("\n", "kernels");
    ASSERT_FALSE(kernels);
    EXPECT_NE(kernels.error().what.find("no kernel record"), std::string::npos);
    EXPECT_NE(kernels.error().hint.find("tflops"), std::string::npos);
}

} // namespace
} // namespace shardplan::sim
