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
    r.matrix = r.peak;
    r.memory_rate = 1e12;
    r.gather_rate = 1e12;
    r.compute_units = 100;
    return r;
}

/// Nothing is written, so that the work of tiles stands alone.
double seconds(const sim::ComputeRates& r, sim::Gemm g, std::int64_t at_once = 1) {
    return gemm_seconds(r, sim::Dtype::bf16, g, at_once, 2.0, 0.0);
}

sim::Constant stated(double value) {
    sim::Constant c;
    c.value = value;
    c.source = "test";
    return c;
}

TEST(GemmTime, IsFlopsOverPeakWhenTilesFillTheDevice) {
    const sim::Gemm g{1280, 1280, 8192, 1}; // 100 tiles of 128 x 128 on 100 units
    EXPECT_DOUBLE_EQ(seconds(ideal(), g), 2.0 * 1280 * 1280 * 8192 / 100e12);
}

TEST(GemmTime, PaysForAWholeWaveWhereTheLastOneIsNearlyEmpty) {
    // 101 tiles need a second wave; narrower tiles, of which 202 to 808 fit better, soften it
    const double full = seconds(ideal(), {1280, 1280, 8192, 1});
    const double over = seconds(ideal(), {128 * 101, 128, 8192, 1});
    EXPECT_GT(over, 1.1 * full);
    EXPECT_LE(over, 2.0 * full);
}

TEST(GemmTime, IsBoundByMemoryForFewRows) {
    const sim::Gemm g{1, 8192, 8192, 1};
    const double bytes = (8192.0 + 8192.0 * 8192.0) * 2.0;
    EXPECT_DOUBLE_EQ(seconds(ideal(), g), bytes / 1e12);
    const double written = gemm_seconds(ideal(), sim::Dtype::bf16, g, 1, 2.0, 2.0);
    EXPECT_DOUBLE_EQ(written, (bytes + 8192.0 * 2.0) / 1e12);
}

TEST(GemmTime, HidesHalfOfWhatItWritesBehindOtherTiles) {
    const sim::Gemm g{1280, 1280, 8192, 1};
    const double dry = seconds(ideal(), g);
    const double wet = gemm_seconds(ideal(), sim::Dtype::bf16, g, 1, 2.0, 8.0);
    EXPECT_DOUBLE_EQ(wet, dry + 1280.0 * 1280.0 * 8.0 / 1e12 / 2.0);
}

TEST(GemmTime, RampsUpWithTheInnerDimension) {
    sim::ComputeRates r = ideal();
    r.ramp = 128.0;
    const auto efficiency = [&](std::int64_t k) {
        return 2.0 * 1280 * 1280 * static_cast<double>(k) / 100e12 / seconds(r, {1280, 1280, k, 1});
    };
    EXPECT_DOUBLE_EQ(efficiency(8192), 8192.0 / (8192.0 + 128.0));
    EXPECT_LT(efficiency(512), efficiency(1024));
    EXPECT_LT(efficiency(1024), efficiency(8192));
}

TEST(GemmTime, LetsGroupedProductsShareWaves) {
    const sim::Gemm experts{128, 1280, 8192, 10}; // ten tiles each
    sim::ComputeRates r = ideal();
    r.ramp = 8192.0; // a wave of any width takes as long again to start
    EXPECT_LT(seconds(r, experts, 10), seconds(r, experts, 1) / 2.0);
    EXPECT_LT(seconds(r, experts, 10), seconds(r, experts, 4));
    EXPECT_LT(seconds(r, experts, 4), seconds(r, experts, 1));
    EXPECT_DOUBLE_EQ(seconds(r, experts, 100), seconds(r, experts, 10));
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

TEST(OpTime, ScalesElementwiseWorkByTheTrafficOfTheStack) {
    sim::Op op;
    op.kind = sim::OpKind::norm;
    op.traffic_forward = 2e9;
    op.kernels_forward = 3;
    sim::ComputeRates r = ideal();
    r.passes = 1.5;
    r.kernel_time = 1e-5;
    EXPECT_DOUBLE_EQ(op_cost(op, r).forward.elementwise, 1.5 * 2e-3 + 3e-5);
}

TEST(OpTime, SortsTokensAtTheRateOfGathers) {
    sim::Op op;
    op.kind = sim::OpKind::dispatch;
    op.traffic_forward = 1e9;
    sim::ComputeRates r = ideal();
    r.gather_rate = 0.5e12;
    EXPECT_DOUBLE_EQ(op_cost(op, r).forward.elementwise, 2e-3);
    op.kind = sim::OpKind::residual;
    EXPECT_DOUBLE_EQ(op_cost(op, r).forward.elementwise, 1e-3);
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

/// 32 heads of 4096 queries under a causal mask.
sim::Op attention(std::int64_t head) {
    sim::Op op;
    op.kind = sim::OpKind::attention;
    op.gemm = {4096, 4096, head, 32};
    op.flops_forward = 4.0 * 32.0 * 4096.0 * 2048.0 * static_cast<double>(head);
    op.flops_backward = 2.5 * op.flops_forward;
    return op;
}

TEST(OpTime, PaysForTheExponentialOfEveryPair) {
    sim::ComputeRates r = ideal();
    const double alone = op_cost(attention(64), r).forward.attention;
    r.attention.exponential = 128.0; // flops, where a head of 64 has 256 per pair
    EXPECT_DOUBLE_EQ(op_cost(attention(64), r).forward.attention, 1.5 * alone);
    EXPECT_NEAR(op_cost(attention(128), r).forward.attention, 1.25 * 2.0 * alone, 1e-12);
}

TEST(OpTime, PaysForTheEdgeOfEveryPieceOfARing) {
    sim::ComputeRates r = ideal();
    r.attention.edge = 256.0; // of 2048 keys that a query sees on average
    sim::Op op = attention(128);
    const double whole = op_cost(op, r).forward.attention;
    op.attention_edges = 4.0;
    EXPECT_NEAR(op_cost(op, r).forward.attention, whole * (2048.0 + 1024.0) / (2048.0 + 256.0),
                1e-12);
    op.sum_forward = 1e9;
    EXPECT_DOUBLE_EQ(op_cost(op, r).forward.elementwise, 1e-3);
}

TEST(OpTime, IsNotShorterThanOneBlockOfQueries) {
    const sim::ComputeRates r = ideal();
    sim::Op op = attention(128);
    op.gemm.count = 1; // 32 blocks of queries on 100 units
    op.flops_forward /= 32.0;
    const double block = 128.0 * 4096.0 * 4.0 * 128.0 * 100.0 / 100e12;
    EXPECT_DOUBLE_EQ(op_cost(op, r).forward.attention, block);
}

TEST(OpTime, PricesWrittenScoresAsBatchedProducts) {
    sim::Op op = attention(128);
    op.writes_scores = true;
    op.traffic_forward = 1e9;
    const sim::OpCost cost = op_cost(op, ideal());
    const double inner = gemm_seconds(ideal(), sim::Dtype::bf16, op.gemm, 32, 2.0, 2.0);
    const double outer =
        gemm_seconds(ideal(), sim::Dtype::bf16, {4096, 128, 4096, 32}, 32, 2.0, 2.0);
    EXPECT_DOUBLE_EQ(cost.forward.attention, inner + outer);
    EXPECT_DOUBLE_EQ(cost.backward_input.attention, inner + 3.0 * outer);
    EXPECT_DOUBLE_EQ(cost.forward.elementwise, 1e-3);
}

TEST(OpTime, TakesTheRatesOfTheKernelThatRuns) {
    sim::Device device = h100_sxm();
    device.compute.flash_2.forward_efficiency = stated(0.5);
    device.compute.cudnn.forward_efficiency = stated(0.9);
    sim::Resolved r = resolved(4096, 1);
    sim::StackProfile stack = generic_stack();
    stack.time.attention_efficiency.value = 0.5;
    r.attention = sim::AttentionImpl::flash_2;
    EXPECT_DOUBLE_EQ(compute_rates(device, stack, r).attention.forward, 0.25);
    r.attention = sim::AttentionImpl::cudnn;
    EXPECT_DOUBLE_EQ(compute_rates(device, stack, r).attention.forward, 0.45);
    device.compute.attention_clock = stated(0.8); // of the product the rates were measured on
    EXPECT_DOUBLE_EQ(compute_rates(device, stack, r).attention.forward, 0.36);
    device.compute.attention_clock = {};
    r.attention = sim::AttentionImpl::flash_3; // not stated: nothing is lost
    EXPECT_DOUBLE_EQ(compute_rates(device, stack, r).attention.forward, 0.5);
}

TEST(OpTime, TakesTheEfficiencyOfTheFormat) {
    sim::Device device = h100_sxm();
    device.compute.matrix_efficiency = stated(0.8);
    device.compute.narrow_matrix_efficiency = stated(0.6);
    sim::StackProfile stack = generic_stack();
    stack.time.gemm_efficiency.value = 0.5;
    stack.time.rowwise_efficiency = stated(0.5);
    sim::Resolved r = resolved(4096, 1);
    const auto rate = [&](sim::Dtype dtype) {
        const sim::ComputeRates rates = compute_rates(device, stack, r);
        const auto i = static_cast<std::size_t>(dtype);
        return rates.matrix[i] / rates.peak[i];
    };
    EXPECT_DOUBLE_EQ(rate(sim::Dtype::bf16), 0.4);
    EXPECT_DOUBLE_EQ(rate(sim::Dtype::fp8), 0.3);
    r.recipe = sim::Fp8Recipe::rowwise;
    EXPECT_DOUBLE_EQ(rate(sim::Dtype::bf16), 0.4);
    EXPECT_DOUBLE_EQ(rate(sim::Dtype::fp8), 0.15);
}

TEST(OpTime, TakesOnePassWhereACompilerFuses) {
    sim::StackProfile stack = generic_stack();
    const sim::Resolved r = resolved(4096, 1);
    EXPECT_DOUBLE_EQ(compute_rates(h100_sxm(), stack, r).passes,
                     stack.time.elementwise_passes.value);
    stack.features.push_back(sim::Feature::compile);
    EXPECT_DOUBLE_EQ(compute_rates(h100_sxm(), stack, r).passes, 1.0);
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
