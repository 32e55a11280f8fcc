#include "simulator/compute/attention_op.hpp"

namespace shardplan::sim {

namespace {

/// Scores, softmax and weighted sum of the values, one kernel that never writes the scores.
void price_flash(const AttentionShape& s, Op& op) {
    const auto qk = static_cast<double>(s.qk);
    const auto v = static_cast<double>(s.v);
    op.flops_forward = 2.0 * s.pairs * s.heads * (qk + v);
    op.flops_backward = 2.0 * s.pairs * s.heads * (3.0 * qk + 2.0 * v);
    op.traffic_forward = s.io_bytes;
    op.traffic_backward = 2.0 * s.io_bytes;
    op.kernels_forward = 1;
    op.kernels_backward = 3; // row sums, gradients, conversion of the query gradient
    if (s.window > 0 && s.window < s.keys) {
        // no block of queries sees more, and blocks of keys are cut at both ends of the window
        op.gemm.n = s.window;
        op.attention_edges = 2.0;
    }
}

/// Bytes per score and kernels of what lies between the two products.
struct ScoreTraffic {
    double forward = 0.0;
    double backward = 0.0;
    std::int32_t kernels_forward = 0;
    std::int32_t kernels_backward = 0;

    void add(double more_forward, double more_backward) {
        forward += more_forward;
        backward += more_backward;
        kernels_forward += more_forward > 0.0 ? 1 : 0;
        kernels_backward += more_backward > 0.0 ? 1 : 0;
    }
};

/// A framework's own operators, each a pass. Softmax reads its rows for the maximum, for the sum
/// and for the result, backward for the sum and for the result; what it sums backward, gradient
/// times result, is a pass before it. Source: PyTorch, ATen/native/cuda/SoftMax.cu. Rows of up to
/// 1024 are held by a warp and read once; that they take as long all the same is measured
/// (attention written out on A100 and H100, 512 and 1024 tokens), not in the source.
ScoreTraffic eager_passes(const AttentionShape& s) {
    const double e = bytes_per_element(s.dtype);
    const double wide = s.softmax.in_32_bits ? 4.0 : e;
    ScoreTraffic t;
    if (s.softmax.scales) t.add(2.0 * e, 2.0 * e);
    if (s.softmax.mask == SoftmaxPasses::Mask::filled) t.add(2.0 * e, 2.0 * e);
    if (s.softmax.mask == SoftmaxPasses::Mask::summed) t.add(3.0 * e, 0.0);
    for (int side = 0; s.softmax.in_32_bits && side < 2; ++side)
        t.add(e + 4.0, e + 4.0);
    t.add(4.0 * wide, 4.0 * wide);
    t.add(0.0, 3.0 * wide);
    return t;
}

/// The products read and write scores beside their work; that stands in their own time.
void price_unfused(const AttentionShape& s, Op& op) {
    const double scores = s.all_pairs * s.heads;
    const double e = bytes_per_element(s.dtype);
    op.flops_forward = 2.0 * scores * static_cast<double>(s.qk + s.v);
    op.flops_backward = 2.0 * op.flops_forward;
    op.writes_scores = true;
    ScoreTraffic t;
    if (s.softmax.fused) {
        t.add(2.0 * e, 3.0 * e);
    } else {
        t = eager_passes(s);
    }
    if (s.softmax.copies_heads) {
        // queries, keys and values brought to heads-first order; backward the gradients of all
        // four, and those of the three joined
        op.traffic_forward += 1.5 * s.io_bytes;
        op.traffic_backward += 3.5 * s.io_bytes;
        op.kernels_forward += 3;
        op.kernels_backward += 5;
    }
    if (s.dropout) t.add(2.0 * e + 1.0, 2.0 * e + 1.0); // and the mask it keeps
    op.traffic_forward += scores * t.forward;
    op.traffic_backward += scores * t.backward;
    op.kernels_forward += 2 + t.kernels_forward;
    op.kernels_backward += 4 + t.kernels_backward;
}

} // namespace

Op attention_op(const AttentionShape& s) {
    Op op;
    op.kind = OpKind::attention;
    op.name = "core_attention";
    op.dtype = s.dtype;
    // of heads whose values are narrower than their keys, the mean: what both products take
    // together
    op.gemm = {s.queries, s.keys, (s.qk + s.v) / 2,
               s.sequences * static_cast<std::int64_t>(s.heads)};
    if (writes_scores(s.impl)) {
        price_unfused(s, op);
    } else {
        price_flash(s, op);
    }
    return op;
}

} // namespace shardplan::sim
