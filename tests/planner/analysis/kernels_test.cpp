#include "planner/analysis/kernels.hpp"

#include <gtest/gtest.h>

namespace shardplan::plan {
namespace {

sim::KernelRecord product(std::int64_t m, std::int64_t n, std::int64_t k) {
    sim::KernelRecord r;
    r.op = "gemm";
    r.device = "A100-SXM-80GB";
    r.dtype = "bf16";
    r.m = m;
    r.n = n;
    r.k = k;
    r.tflops = 250.0;
    r.scorable = true;
    return r;
}

sim::KernelRecord attention(const char* op, bool causal) {
    sim::KernelRecord r;
    r.op = op;
    r.device = "H100-SXM-80GB";
    r.dtype = "fp16";
    r.impl = "fa2";
    r.batch = 4;
    r.heads = r.kv_heads = 16;
    r.seq_q = r.seq_k = 4096;
    r.head_dim = r.head_dim_v = 128;
    r.causal = causal;
    r.flops_counted = "full";
    r.tflops = 400.0;
    r.scorable = true;
    return r;
}

KernelPrediction predicted(const sim::KernelRecord& record) {
    auto rows = predict_kernels({record});
    EXPECT_TRUE(rows) << (rows ? "" : sim::to_text(rows.error()));
    return rows ? rows->at(0) : KernelPrediction{};
}

TEST(Kernels, MeasuredTimeIsTheCountedWorkOverTheRate) {
    const KernelPrediction row = predicted(product(8192, 8192, 8192));
    EXPECT_EQ(row.skipped, "");
    EXPECT_DOUBLE_EQ(row.measured_s, 2.0 * 8192 * 8192 * 8192 / 250e12);
    EXPECT_GT(row.seconds, row.measured_s * 0.8);
    EXPECT_LT(row.seconds, row.measured_s * 1.2);
    sim::KernelRecord half = attention("attention_fwd", true);
    const double full = predicted(half).measured_s;
    half.flops_counted = "causal-half";
    EXPECT_DOUBLE_EQ(predicted(half).measured_s, full / 2.0);
}

TEST(Kernels, BothPassesOfAttentionAreTheSumOfEach) {
    const double forward = predicted(attention("attention_fwd", false)).seconds;
    const double backward = predicted(attention("attention_bwd", false)).seconds;
    EXPECT_DOUBLE_EQ(predicted(attention("attention_fwd_bwd", false)).seconds, forward + backward);
    EXPECT_GT(backward, 2.0 * forward);
    EXPECT_LT(predicted(attention("attention_fwd", true)).seconds, 0.6 * forward);
}

TEST(Kernels, GroupedProductsWithoutAKernelAreThoseOfTransformerEngine) {
    sim::KernelRecord grouped = product(512, 4096, 2048);
    grouped.op = "grouped_gemm";
    grouped.groups = 32;
    grouped.stage = "fwd";
    const KernelPrediction many = predicted(grouped);
    ASSERT_EQ(many.notes.size(), 1U);
    EXPECT_EQ(many.notes[0].path, "impl");
    grouped.impl = "deepgemm";
    EXPECT_LT(predicted(grouped).seconds, many.seconds); // one kernel instead of 32
    grouped.stage = "bwd_grad_w"; // m is the inner dimension: results are 32 weights
    const double weights = predicted(grouped).seconds;
    grouped.stage = "bwd_grad_act";
    EXPECT_GT(weights, predicted(grouped).seconds);
}

TEST(Kernels, WhatCannotBePredictedSaysWhy) {
    sim::KernelRecord open = product(64, 64, 64);
    open.scorable = false;
    EXPECT_NE(predicted(open).skipped.find("not stated"), std::string::npos);
    sim::KernelRecord shapeless = product(64, 64, 64);
    shapeless.k.reset();
    EXPECT_NE(predicted(shapeless).skipped.find("shape"), std::string::npos);
    sim::KernelRecord elsewhere = product(64, 64, 64);
    elsewhere.device = "H100-LPX";
    EXPECT_NE(predicted(elsewhere).skipped.find("H100-LPX"), std::string::npos);
    sim::KernelRecord strange = attention("attention_fwd", true);
    strange.impl = "flashmla";
    EXPECT_NE(predicted(strange).skipped.find("flashmla"), std::string::npos);
    sim::KernelRecord decode = attention("attention_decode", true);
    EXPECT_NE(predicted(decode).skipped.find("attention_decode"), std::string::npos);
    sim::KernelRecord odd = product(64, 64, 64);
    odd.dtype = "fp7";
    EXPECT_NE(predicted(odd).skipped.find("fp7"), std::string::npos);
}

TEST(Kernels, FiguresAreByGroupInOrderAndOverAll) {
    const std::vector<sim::KernelRecord> records = {
        product(1, 1, 1), attention("attention_fwd", true), product(1, 1, 1)};
    std::vector<KernelPrediction> rows(3);
    rows[0].seconds = 1.1;
    rows[0].measured_s = 1.0;
    rows[1].skipped = "reason";
    rows[2].seconds = 0.6;
    rows[2].measured_s = 1.0;
    const auto groups = score_kernels(records, rows, {"operator"});
    ASSERT_EQ(groups.size(), 3U);
    EXPECT_EQ(groups[0].name, "gemm");
    EXPECT_EQ(groups[0].time.rows, 2);
    EXPECT_NEAR(groups[0].time.median, 0.25, 1e-12);
    EXPECT_NEAR(groups[0].max, 0.4, 1e-12);
    EXPECT_NEAR(groups[0].time.bias, -0.15, 1e-12);
    EXPECT_EQ(groups[1].name, "attention_fwd");
    EXPECT_EQ(groups[1].skipped, 1);
    EXPECT_EQ(groups[2].name, "all");
    EXPECT_EQ(groups[2].records, 3);
    EXPECT_EQ(kernel_group_key(records[1], {"kernel", "device"}), "H100-SXM-80GB / fa2");
}

} // namespace
} // namespace shardplan::plan
