#include "simulator/compute/op_time.hpp"

#include <gtest/gtest.h>

#include "simulator/compute/flops.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

sim::Resolved resolved(std::int64_t sequence, std::int64_t batch) {
    sim::Resolved r;
    r.sequence = sequence;
    r.sequence_mean_square = static_cast<double>(sequence) * static_cast<double>(sequence);
    r.global_batch = batch;
    return r;
}

/// Rates without any loss: 100 TFLOP/s on 100 compute units, 1 TB/s.
sim::ComputeRates ideal() {
    sim::ComputeRates r;
    r.peak.fill(100e12);
    r.memory_rate = 1e12;
    r.compute_units = 100;
    r.tile = {128, 128, 32, 0};
    return r;
}

double seconds(const sim::ComputeRates& r, sim::Gemm g, bool together = true) {
    return gemm_seconds(r, sim::Dtype::bf16, g, together, 2.0, 2.0);
}

TEST(GemmTime, IsFlopsOverPeakWhenTilesFillTheDevice) {
    const sim::Gemm g{1280, 1280, 8192, 1}; // 100 tiles of 128 x 128 on 100 units
    EXPECT_DOUBLE_EQ(seconds(ideal(), g), 2.0 * 1280 * 1280 * 8192 / 100e12);
}

TEST(GemmTime, PaysForAWholeWaveWhereTheLastOneIsNearlyEmpty) {
    // 101 tiles need a second wave; narrower tiles, of which 202 or 404 fit better, soften it
    const double full = seconds(ideal(), {1280, 1280, 8192, 1});
    const double over = seconds(ideal(), {128 * 101, 128, 8192, 1});
    EXPECT_GT(over, 1.2 * full);
    EXPECT_LE(over, 2.0 * full);
}

TEST(GemmTime, IsBoundByMemoryForFewRows) {
    const sim::Gemm g{1, 8192, 8192, 1};
    const double bytes = (8192.0 + 8192.0 * 8192.0 + 8192.0) * 2.0;
    EXPECT_DOUBLE_EQ(seconds(ideal(), g), bytes / 1e12);
}

TEST(GemmTime, RampsUpWithTheInnerDimension) {
    sim::ComputeRates r = ideal();
    r.tile.ahead = 4;
    const auto efficiency = [&](std::int64_t k) {
        return 2.0 * 1280 * 1280 * static_cast<double>(k) / 100e12 / seconds(r, {1280, 1280, k, 1});
    };
    EXPECT_DOUBLE_EQ(efficiency(8192), 8192.0 / (8192.0 + 128.0));
    EXPECT_LT(efficiency(512), efficiency(1024));
    EXPECT_LT(efficiency(1024), efficiency(8192));
}

TEST(GemmTime, LetsGroupedProductsShareWaves) {
    const sim::Gemm experts{128, 1280, 8192, 10}; // ten tiles each
    EXPECT_LT(seconds(ideal(), experts, true), seconds(ideal(), experts, false) / 2.0);
}

TEST(OpTime, ChargesElementwiseWorkByItsBytes) {
    sim::Op op;
    op.kind = sim::OpKind::norm;
    op.traffic_forward = 2e9;
    op.traffic_backward = 4e9;
    const sim::OpCost cost = op_cost(op, ideal());
    EXPECT_DOUBLE_EQ(cost.forward.elementwise, 2e-3);
    EXPECT_DOUBLE_EQ(cost.backward_input.elementwise, 4e-3);
}

TEST(OpTime, KeepsTheWeightGradientApart) {
    sim::Op op;
    op.gemm = {1280, 1280, 1280, 1};
    op.kernels_forward = 1;
    op.kernels_backward = 2;
    const sim::OpCost cost = op_cost(op, ideal());
    EXPECT_DOUBLE_EQ(cost.backward_weight.gemm, cost.backward_input.gemm);
    op.frozen = true;
    EXPECT_EQ(op_cost(op, ideal()).backward_weight.gemm, 0.0);
}

TEST(OpTime, IsSlowerPerFlopForSmallHeads) {
    sim::Op op;
    op.kind = sim::OpKind::attention;
    op.flops_forward = 1e12;
    op.gemm = {4096, 4096, 128, 32};
    const double wide = op_cost(op, ideal()).forward.attention;
    op.gemm.k = 64;
    EXPECT_GT(op_cost(op, ideal()).forward.attention, 1.1 * wide);
}

TEST(OpTime, GivesKernelsOfTheGenerationBeforeLessOfHopper) {
    sim::Resolved r = resolved(4096, 1);
    r.attention = sim::AttentionImpl::flash_2;
    EXPECT_LT(compute_rates(h100_sxm(), generic_stack(), r).attention_share, 0.7);
    EXPECT_EQ(compute_rates(a100_sxm_80gb(), generic_stack(), r).attention_share, 1.0);
    r.attention = sim::AttentionImpl::flash_3;
    EXPECT_EQ(compute_rates(h100_sxm(), generic_stack(), r).attention_share, 1.0);
}

TEST(OpTime, KnowsNoPeakWhereTheSheetStatesNone) {
    sim::Device device = a100_sxm_80gb();
    EXPECT_EQ(peak_of(device, sim::Dtype::bf16), 312e12);
    device.peak_dense.clear();
    EXPECT_EQ(peak_of(device, sim::Dtype::bf16), 0.0);
}

TEST(ModelFlops, AreSixPerParameterAndTokenAndTwelveForAttention) {
    // Llama-3-8B: every parameter but the input table and the norms is multiplied with
    const double norms = 65.0 * 4096.0;
    const double parameters = 8030261248.0 - 128256.0 * 4096.0 - norms;
    const double tokens = 8192.0 * 4.0;
    const double attention = 12.0 * 32.0 * 4096.0 * 8192.0;
    EXPECT_DOUBLE_EQ(model_flops_per_step(llama_3_8b(), resolved(8192, 4)).value(),
                     tokens * (6.0 * parameters + attention));
}

TEST(ModelFlops, OfSelectiveRecomputationAreTheScoresUnderMegatronsPolicy) {
    EXPECT_DOUBLE_EQ(
        selective_forward_flops_per_step(llama_3_8b(), resolved(8192, 4), generic_stack()).value(),
        4.0 * 32.0 * 4.0 * 8192.0 * 8192.0 * 4096.0);
}

TEST(ModelFlops, CountOnlyTheExpertsATokenIsSentTo) {
    const double total = model_flops_per_step(mixtral_8x7b(), resolved(4096, 1)).value();
    const double per_token = total / 4096.0;
    // 12.9 B active parameters, of which the input table (0.13 B) is only looked up
    EXPECT_NEAR(per_token, 6.0 * 12.75e9 + 12.0 * 32 * 4096 * 4096, 0.01 * per_token);
}

} // namespace
} // namespace shardplan::test
