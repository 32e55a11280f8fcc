#include "simulator/compute/attention_op.hpp"

#include <gtest/gtest.h>

#include "simulator/compute/op_time.hpp"

namespace shardplan::sim {
namespace {

/// 32 heads of 128 over 4096 tokens under a causal mask.
AttentionShape causal() {
    AttentionShape s;
    s.queries = 4096;
    s.keys = 4096;
    s.qk = 128;
    s.v = 128;
    s.heads = 32.0;
    s.all_pairs = 4096.0 * 4096.0;
    s.pairs = s.all_pairs / 2.0;
    s.io_bytes = 4.0 * 4096.0 * 32.0 * 128.0 * 2.0;
    return s;
}

/// 100 TFLOP/s on 100 compute units, 1 TB/s, nothing lost.
ComputeRates ideal() {
    ComputeRates r;
    r.peak.fill(100e12);
    r.matrix = r.peak;
    r.memory_rate = 1e12;
    r.compute_units = 100;
    return r;
}

TEST(AttentionOp, TakesTwoProductsPerPairForwardAndFiveBackward) {
    AttentionShape s = causal();
    s.qk = 192; // keys are wider than values, as in multi-head latent attention
    const Op op = attention_op(s);
    EXPECT_EQ(op.flops_forward, 2.0 * s.pairs * 32.0 * (192.0 + 128.0));
    EXPECT_EQ(op.flops_backward, 2.0 * s.pairs * 32.0 * (3.0 * 192.0 + 2.0 * 128.0));
    EXPECT_EQ(op.traffic_forward, s.io_bytes);
    EXPECT_EQ(op.gemm.k, 160);
}

TEST(AttentionOp, OfWrittenScoresMakesNoUseOfTheMask) {
    AttentionShape s = causal();
    s.impl = AttentionImpl::fused_softmax;
    const Op op = attention_op(s);
    EXPECT_TRUE(op.writes_scores);
    EXPECT_EQ(op.flops_forward, 4.0 * s.all_pairs * 32.0 * 128.0);
    const double scores = s.all_pairs * 32.0;
    EXPECT_EQ(op.traffic_forward, 4.0 * scores);  // read and written in 16 bits
    EXPECT_EQ(op.traffic_backward, 6.0 * scores); // gradient and result read, gradient written
}

TEST(AttentionOp, CountsEveryPassOfAFrameworksOwnSoftmax) {
    AttentionShape s = causal();
    s.impl = AttentionImpl::unfused;
    s.softmax.fused = false;
    const double scores = s.all_pairs * 32.0;
    const Op bare = attention_op(s);
    EXPECT_EQ(bare.traffic_forward, 8.0 * scores);   // read for maximum, sum, result; written
    EXPECT_EQ(bare.traffic_backward, 14.0 * scores); // the product, then as much as forward
    s.softmax.mask = SoftmaxPasses::Mask::summed;
    s.softmax.copies_heads = true;
    const Op masked = attention_op(s);
    EXPECT_EQ(masked.traffic_forward, 14.0 * scores + 1.5 * s.io_bytes);
    EXPECT_EQ(masked.traffic_backward, 14.0 * scores + 3.5 * s.io_bytes);
    EXPECT_EQ(masked.kernels_forward, bare.kernels_forward + 4);
    s.softmax = {};
    s.softmax.fused = false;
    s.softmax.in_32_bits = true;
    EXPECT_EQ(attention_op(s).traffic_forward, (2.0 * 6.0 + 16.0) * scores);
    s.dropout = true;
    EXPECT_EQ(attention_op(s).traffic_forward, (2.0 * 6.0 + 16.0 + 5.0) * scores);
}

TEST(AttentionOp, OfAWindowIsNoLongerThanItsKeysAndPaysForBothEnds) {
    AttentionShape s = causal();
    s.window = 512;
    s.pairs = 4096.0 * 512.0 - 512.0 * 512.0 / 2.0;
    const Op op = attention_op(s);
    EXPECT_EQ(op.gemm.n, 512);
    EXPECT_EQ(op.attention_edges, 2.0);
    const OpCost without = op_cost(op, ideal());
    ComputeRates edged = ideal();
    edged.attention.edge = 60.0;
    const double keys = s.pairs / 4096.0; // of a query on average: 480
    EXPECT_NEAR(op_cost(op, edged).forward.attention,
                without.forward.attention * (keys + 120.0) / keys, 1e-12);
    s.window = 4096; // the whole sequence is no window
    EXPECT_EQ(attention_op(s).attention_edges, 1.0);
}

TEST(AttentionOp, ReachesLessWithHeadsWiderThanTheKernelHasRoomFor) {
    ComputeRates r = ideal();
    r.attention.widest = 128;
    r.attention.wide_forward = 0.8;
    r.attention.wide_backward = 0.5;
    AttentionShape s = causal();
    const OpCost narrow = op_cost(attention_op(s), r);
    s.qk = 256;
    s.v = 256;
    const OpCost wide = op_cost(attention_op(s), r);
    EXPECT_NEAR(wide.forward.attention, 2.0 / 0.8 * narrow.forward.attention, 1e-12);
    EXPECT_NEAR(wide.backward_input.attention, 2.0 / 0.5 * narrow.backward_input.attention, 1e-12);
}

} // namespace
} // namespace shardplan::sim
