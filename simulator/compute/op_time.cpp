#include "simulator/compute/op_time.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace shardplan::sim {

namespace {

double rate_or_zero(const Device& device, Dtype dtype) {
    const auto it = device.peak_dense.find(std::string(name_of(dtype)));
    return it == device.peak_dense.end() ? 0.0 : it->second.value();
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Seconds of work of one kind of tile over the whole device; `at_once` products share waves.
///
/// A tile takes m n k multiply-adds, and before that the latency of its first loads, which does not
/// depend on how wide the tile is: it is charged as `ramp` elements of k of the full tile.
double tiled_seconds(const ComputeRates& r, double rate, const Gemm& g, std::int64_t at_once,
                     std::int64_t bm, std::int64_t bn) {
    const std::int64_t tiles = ceil_div(g.m, bm) * ceil_div(g.n, bn);
    const double waves = static_cast<double>(ceil_div(tiles * at_once, r.compute_units)) *
                         static_cast<double>(g.count) / static_cast<double>(at_once);
    const double fill = static_cast<double>(r.tile_m * r.tile_n) * r.ramp;
    const double work = 2.0 * (static_cast<double>(bm * bn) * static_cast<double>(g.k) + fill);
    return waves * work * static_cast<double>(r.compute_units) / rate;
}

/// Libraries pick narrower tiles, and either orientation, where wide ones leave units idle.
double best_tiled_seconds(const ComputeRates& r, double rate, const Gemm& g, std::int64_t at_once) {
    const std::int64_t m = r.tile_m;
    const std::int64_t n = r.tile_n;
    const auto half = [](std::int64_t a) { return std::max<std::int64_t>(1, a / 2); };
    double best = tiled_seconds(r, rate, g, at_once, m, n);
    const auto try_tile = [&](std::int64_t bm, std::int64_t bn) {
        best = std::min(best, tiled_seconds(r, rate, g, at_once, bm, bn));
    };
    try_tile(n, m);
    try_tile(m, half(n));
    try_tile(half(m), half(n));
    try_tile(half(n), half(m));
    try_tile(half(m), half(half(n)));
    return best;
}

} // namespace

const AttentionRate& rate_of(const ComputeProfile& compute, AttentionImpl impl) {
    switch (impl) {
        case AttentionImpl::flash_1:
            return compute.flash_1;
        case AttentionImpl::flash_3:
            return compute.flash_3;
        case AttentionImpl::cudnn:
            return compute.cudnn;
        case AttentionImpl::flash_2:
        case AttentionImpl::unfused: // not asked for
        case AttentionImpl::fused_softmax:
            break;
    }
    return compute.flash_2;
}

double peak_of(const Device& device, Dtype dtype) {
    if (const double own = rate_or_zero(device, dtype); own > 0.0) return own;
    switch (dtype) {
        case Dtype::bf16:
            if (const double r = rate_or_zero(device, Dtype::fp16); r > 0.0) return r;
            break;
        case Dtype::fp16:
            if (const double r = rate_or_zero(device, Dtype::bf16); r > 0.0) return r;
            break;
        case Dtype::fp32:
        case Dtype::tf32:
        case Dtype::fp8:
        case Dtype::int8:
        case Dtype::fp4:
        case Dtype::nf4:
            break;
    }
    return rate_or_zero(device, Dtype::fp32);
}

namespace {

/// Operators that their instructions bound, where the device's rates of them are known.
void set_operator_rates(const OperatorRates& known, double share, ComputeRates& r) {
    const auto per_byte = [&](const Constant& rate) {
        return rate.value > 0.0 ? 1.0 / (rate.value * share) : 0.0;
    };
    const auto set = [&](OpKind kind, const Constant& forward, const Constant& backward) {
        r.per_byte[static_cast<std::size_t>(kind)] = {per_byte(forward), per_byte(backward)};
    };
    set(OpKind::norm, known.norm_forward, known.norm_backward);
    set(OpKind::activation, known.activation_forward, known.activation_backward);
    set(OpKind::rope, known.rope, known.rope);
    set(OpKind::loss, known.loss, known.loss);
    for (const OpKind kind : {OpKind::residual, OpKind::linear, OpKind::head, OpKind::embedding}) {
        set(kind, known.sums, known.sums);
    }
    r.per_gated_byte = {per_byte(known.gate_forward), per_byte(known.gate_backward)};
    if (known.update.value > 0.0) r.update_rate = known.update.value * share;
}

} // namespace

ComputeRates compute_rates(const Device& device, const StackProfile& stack,
                           const Resolved& resolved) {
    const ComputeProfile& compute = device.compute;
    const StackTime& time = stack.time;
    ComputeRates r;
    for (std::size_t i = 0; i < r.peak.size(); ++i) {
        const auto dtype = static_cast<Dtype>(i);
        r.peak[i] = peak_of(device, dtype);
        const bool narrow = bytes_per_element(dtype) < bytes_per_element(Dtype::bf16);
        const Constant& reached =
            narrow ? compute.narrow_matrix_efficiency : compute.matrix_efficiency;
        const bool by_row = narrow && resolved.recipe == Fp8Recipe::rowwise;
        r.matrix[i] = r.peak[i] * value_or(reached, 1.0) * time.gemm_efficiency.value *
                      (by_row ? value_or(time.rowwise_efficiency, 1.0) : 1.0);
    }
    const AttentionRate& kernel = rate_of(compute, resolved.attention);
    const double share = time.attention_efficiency.value * value_or(compute.attention_clock, 1.0);
    r.attention.forward = value_or(kernel.forward_efficiency, 1.0) * share;
    r.attention.backward = value_or(kernel.backward_efficiency, 1.0) * share;
    r.attention.widest = kernel.widest;
    r.attention.wide_forward = value_or(kernel.wide_forward, 1.0);
    r.attention.wide_backward = value_or(kernel.wide_backward, 1.0);
    r.attention.exponential = value_or(kernel.exponential, 0.0);
    r.attention.edge = value_or(kernel.edge, 0.0);
    r.attention.tail = value_or(compute.attention_tail, 0.0);
    const LinkBandwidth& memory = device.memory_bandwidth;
    const double physical = memory.physical.value() * value_or(compute.memory_efficiency, 1.0);
    r.memory_rate =
        (memory.measured ? memory.measured->value() : physical) * time.memory_efficiency.value;
    r.gather_rate =
        std::min(r.memory_rate, memory.physical.value() * value_or(compute.gather_efficiency, 1.0) *
                                    time.memory_efficiency.value);
    r.update_rate = r.memory_rate;
    if (compute.operators) {
        set_operator_rates(*compute.operators, time.memory_efficiency.value, r);
    }
    r.compute_units = device.compute_units;
    r.tile_m = compute.tile_m;
    r.tile_n = compute.tile_n;
    r.ramp = value_or(compute.matrix_ramp, 0.0);
    r.kernel_time = value_or(compute.kernel_time, 0.0);
    r.launch = has_feature(stack, Feature::cuda_graphs) ? 0.0 : time.launch.value;
    // a compiler makes one pass of what the operators themselves read and write
    r.passes = has_feature(stack, Feature::compile) ? 1.0 : time.elementwise_passes.value;
    r.kernels_per_block = time.kernels_per_block.value;
    r.fused_accumulation = stack.tensors.fused_weight_gradient;
    r.gradient_element = bytes_per_element(resolved.gradient);
    return r;
}

PassCost& PassCost::operator+=(const PassCost& o) {
    gemm += o.gemm;
    attention += o.attention;
    elementwise += o.elementwise;
    kernels += o.kernels;
    return *this;
}

PassCost operator*(double share, PassCost c) {
    c.gemm *= share;
    c.attention *= share;
    c.elementwise *= share;
    c.kernels *= share;
    return c;
}

double gemm_seconds(const ComputeRates& r, Dtype dtype, const Gemm& g, std::int64_t at_once,
                    double in, double out) {
    const auto m = static_cast<double>(g.m);
    const auto n = static_cast<double>(g.n);
    const auto k = static_cast<double>(g.k);
    const auto count = static_cast<double>(g.count);
    const double rate = r.matrix[static_cast<std::size_t>(dtype)];
    if (rate <= 0.0 || g.m <= 0 || g.n <= 0 || g.k <= 0) return 0.0;
    const std::int64_t together = std::clamp<std::int64_t>(at_once, 1, g.count);
    const double compute = r.compute_units > 0 ? best_tiled_seconds(r, rate, g, together)
                                               : 2.0 * m * n * k * count / rate;
    const double per_byte = r.memory_rate > 0.0 ? 1.0 / r.memory_rate : 0.0;
    const double written = count * m * n * out * per_byte;
    const double read = count * (m * k + k * n) * in * per_byte;
    // half of the time a tile spends writing passes before another tile takes over its unit
    return std::max(compute + written / 2.0, read + written);
}

namespace {

/// Queries that one compute unit of a fused attention kernel works on.
constexpr double query_block = 128.0;

/// Fused attention. `flops`: of the pass, over all (query, key) pairs; `efficiency`: of the peak.
/// The kernel is as long as its work spread over all units, but not shorter than one block of
/// queries. `tail`: of the longest block, while units run dry at the end; the backward pass works
/// by blocks of keys, of which those that take longest start first. Sources: see AttentionRate.
double attention_seconds(const ComputeRates& r, const Op& op, double flops, double efficiency,
                         double tail) {
    const double rate = r.peak[static_cast<std::size_t>(op.dtype)] * efficiency;
    if (rate <= 0.0 || flops <= 0.0) return 0.0;
    const auto queries = static_cast<double>(std::max<std::int64_t>(1, op.gemm.m * op.gemm.count));
    // keys that a query sees on average: half of the sequence under a causal mask, fewer in a
    // window
    const double head = static_cast<double>(std::max<std::int64_t>(1, op.gemm.k));
    const double keys = std::max(1.0, op.flops_forward / (4.0 * queries * head));
    const double per_pair = flops / (queries * keys) + r.attention.exponential;
    const double edge = r.attention.edge * op.attention_edges;
    const double work = queries * (keys + edge) * per_pair / rate;
    const auto units = static_cast<double>(std::max<std::int64_t>(1, r.compute_units));
    const double most_keys = std::min(static_cast<double>(op.gemm.n), 2.0 * keys);
    const double longest = query_block * (most_keys + edge) * per_pair * units / rate;
    return std::max(work, longest) + tail * longest;
}

/// Scores written out: two batched products forward, four backward.
void set_unfused(const Op& op, const ComputeRates& r, OpCost& cost) {
    const Gemm& g = op.gemm;
    const double e = bytes_per_element(op.dtype);
    const double inner = gemm_seconds(r, op.dtype, g, g.count, e, e);
    const double outer = gemm_seconds(r, op.dtype, {g.m, g.k, g.n, g.count}, g.count, e, e);
    cost.forward.attention = inner + outer;
    cost.backward_input.attention = inner + 3.0 * outer;
}

} // namespace

namespace {

/// Of the memory-bound work of an operator, from its instructions where those are known.
SecondsPerByte per_byte_of(const Op& op, const ComputeRates& r, double memory) {
    const SecondsPerByte& own =
        op.gated ? r.per_gated_byte : r.per_byte[static_cast<std::size_t>(op.kind)];
    return {own.forward > 0.0 ? own.forward : memory, own.backward > 0.0 ? own.backward : memory};
}

} // namespace

OpCost op_cost(const Op& op, const ComputeRates& r) {
    OpCost cost;
    cost.forward.kernels = op.kernels_forward;
    cost.backward_input.kernels = op.kernels_backward;
    const bool sorts = op.kind == OpKind::dispatch || op.kind == OpKind::combine;
    const double rate = sorts ? r.gather_rate : r.memory_rate;
    const double memory = rate > 0.0 ? 1.0 / rate : 0.0;
    const SecondsPerByte per_byte = per_byte_of(op, r, memory);
    const double gap_forward = r.kernel_time * op.kernels_forward;
    const double gap_backward = r.kernel_time * op.kernels_backward;
    if (op.kind == OpKind::attention && !op.writes_scores) {
        const AttentionRates& a = r.attention;
        const bool wide = op.gemm.k > a.widest;
        const double forward = a.forward * (wide ? a.wide_forward : 1.0);
        const double backward = a.backward * (wide ? a.wide_backward : 1.0);
        cost.forward.attention =
            gap_forward + std::max(attention_seconds(r, op, op.flops_forward, forward, a.tail),
                                   op.traffic_forward * memory);
        cost.backward_input.attention =
            gap_backward + std::max(attention_seconds(r, op, op.flops_backward, backward, 0.0),
                                    op.traffic_backward * memory);
        cost.forward.elementwise = op.sum_forward * memory;
        cost.backward_input.elementwise = op.sum_backward * memory;
        return cost;
    }
    // every pass over written-out scores is counted one by one already
    const double passes = op.writes_scores ? 1.0 : r.passes;
    cost.forward.elementwise = passes * op.traffic_forward * per_byte.forward + gap_forward;
    cost.backward_input.elementwise =
        passes * op.traffic_backward * per_byte.backward + gap_backward;
    if (op.gemm.m <= 0) return cost;
    if (op.kind == OpKind::attention) {
        set_unfused(op, r, cost);
        return cost;
    }
    const double in = bytes_per_element(op.dtype);
    const double out = std::max(2.0, in);
    const std::int64_t together = op.at_once;
    const Gemm& g = op.gemm;
    cost.forward.gemm = gemm_seconds(r, op.dtype, g, together, in, out);
    cost.backward_input.gemm =
        gemm_seconds(r, op.dtype, {g.m, g.k, g.n, g.count}, together, in, out);
    if (!op.frozen) {
        const double accumulated = r.fused_accumulation ? 2.0 * r.gradient_element : out;
        cost.backward_weight.gemm =
            gemm_seconds(r, op.dtype, {g.k, g.n, g.m, g.count}, together, in, accumulated);
        const bool runs = op.kernels_forward > 0;
        const bool one_each = op.kernels_backward >= 2 * op.gemm.count;
        cost.backward_weight.kernels =
            !runs ? 0.0 : (one_each ? static_cast<double>(op.gemm.count) : 1.0);
        cost.backward_input.kernels -= cost.backward_weight.kernels;
    }
    return cost;
}

} // namespace shardplan::sim
