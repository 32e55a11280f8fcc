#include "simulator/compute/op_builder.hpp"

#include <algorithm>

namespace shardplan::sim {

ShardingKey sharding_of(const Layout& layout) {
    ShardingKey key;
    key.micro_batch = layout.micro_batch;
    key.tp = layout.tp;
    key.cp = layout.cp;
    key.ep = layout.ep;
    key.etp = static_cast<std::int32_t>(etp_of(layout));
    key.sp = layout.sp && layout.tp > 1;
    key.cp_kind = layout.cp_kind;
    key.sharded_parameters = layout.shard == Shard::all;
    return key;
}

Fusion fusion_of(const StackProfile& stack) {
    const TensorRules& rules = stack.tensors;
    Fusion f;
    f.elementwise = rules.fused_elementwise;
    f.glu = rules.fused_elementwise || rules.fused_glu;
    f.rope = rules.rope == RopeImpl::fused;
    f.norm = rules.norm == NormImpl::fused;
    f.gradient_accumulation = rules.fused_weight_gradient;
    // a compiler makes one kernel of the eager loss
    f.loss = rules.loss == LossImpl::eager && has_feature(stack, Feature::compile) ? LossImpl::fused
                                                                                   : rules.loss;
    return f;
}

Dtype activation_dtype(const Resolved& resolved) {
    switch (resolved.compute) {
        case Dtype::fp32:
        case Dtype::tf32:
            return Dtype::fp32;
        case Dtype::fp16:
            return Dtype::fp16;
        case Dtype::bf16:
        case Dtype::fp8:
        case Dtype::int8:
        case Dtype::fp4:
        case Dtype::nf4:
            break;
    }
    return Dtype::bf16;
}

OpContext op_context(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                     const ShardingKey& key, std::int64_t hidden) {
    OpContext c{model, resolved, stack, key, fusion_of(stack)};
    c.hidden = hidden;
    c.tokens = static_cast<double>(key.micro_batch * resolved.sequence) / key.cp;
    c.local_tokens = key.sp ? c.tokens / key.tp : c.tokens;
    c.activation = activation_dtype(resolved);
    c.element = bytes_per_element(c.activation);
    return c;
}

double cast_bytes(const OpContext& c, double narrow) {
    // a scale per row of either orientation takes two readings of its own for each
    if (has_feature(c.stack, Feature::float8_rowwise)) return 4.0 * c.element + 2.0 * narrow;
    const bool current = has_feature(c.stack, Feature::float8_tensorwise);
    return c.element + 2.0 * narrow + (current ? c.element : 0.0);
}

namespace {

bool trains_base(const OpContext& c) { return c.resolved.method.kind == MethodKind::full; }

bool is_adapted(const OpContext& c, const LinearShape& s) {
    return !trains_base(c) && !s.lora_down.empty() &&
           (s.attention || c.resolved.method.targets == LoraTargets::all_linear);
}

Dtype product_dtype(const OpContext& c, const LinearShape& s) {
    return s.narrow ? c.resolved.compute : c.activation;
}

/// Bytes read and written to bring `elements` into an 8-bit or smaller format: 16-bit in, one copy
/// out for the product and one transposed for the gradient product. Scales that come from the
/// tensor at hand (and not from earlier steps, as Transformer Engine's) take a reading before it.
/// Source: Transformer Engine keeps both orientations of what a weight gradient reads; torchao,
/// float8_scaling_utils.py.
double cast_traffic(const OpContext& c, const LinearShape& s, double elements) {
    const double narrow = bytes_per_element(product_dtype(c, s));
    return narrow < 2.0 ? elements * cast_bytes(c, narrow) : 0.0;
}

/// Traffic of adding a new weight gradient into the accumulated one.
double accumulation_traffic(const OpContext& c, double weights) {
    const double kept = bytes_per_element(c.resolved.gradient);
    return c.fusion.gradient_accumulation ? 0.0 : weights * (c.element + 2.0 * kept);
}

/// Collectives around a split map. Source: Shoeybi et al. 2019 (arXiv 1909.08053) for tensor
/// parallelism, Korthikanti et al. 2022 (arXiv 2205.05198) for its sequence-parallel form, which
/// keeps the gathered input sharded and gathers it again for the weight gradient, unless the stack
/// keeps it whole.
void add_split_comm(const OpContext& c, const LinearShape& s, bool frozen, Op& op) {
    if (c.key.tp == 1 || s.split == Split::replicated) return;
    if (s.split == Split::column && s.gathers_input) {
        const double bytes = c.tokens * s.in * c.element;
        if (c.key.sp) {
            op.comm_forward.push_back({Group::tp, Collective::all_gather, bytes, 1});
            const bool again = s.gathers_again && !frozen && !c.stack.tensors.keeps_gathered_input;
            if (again) op.comm_backward.push_back({Group::tp, Collective::all_gather, bytes, 1});
            op.comm_backward.push_back({Group::tp, Collective::reduce_scatter, bytes, 1});
        } else {
            op.comm_backward.push_back({Group::tp, Collective::all_reduce, bytes, 1});
        }
    }
    if (s.split == Split::row && s.reduces_output) {
        const double bytes = c.tokens * s.out * c.element;
        if (c.key.sp) {
            op.comm_forward.push_back({Group::tp, Collective::reduce_scatter, bytes, 1});
            op.comm_backward.push_back({Group::tp, Collective::all_gather, bytes, 1});
        } else {
            op.comm_forward.push_back({Group::tp, Collective::all_reduce, bytes, 1});
        }
    }
}

void add_product(std::string_view name, double m, double n, double k, Op& op) {
    op.kind = OpKind::linear;
    op.name = name;
    op.gemm = {static_cast<std::int64_t>(m), static_cast<std::int64_t>(n),
               static_cast<std::int64_t>(k), 1};
    op.flops_forward = 2.0 * m * n * k;
    op.flops_backward = (op.frozen ? 1.0 : 2.0) * op.flops_forward;
    op.kernels_forward = 1;
    op.kernels_backward = op.frozen ? 1 : 2;
}

/// Hu et al. 2021 (arXiv 2106.09685): y = W x + B A x, with A of rank x in and B of out x rank.
void add_adapter(const OpContext& c, const LinearShape& s, double tokens, double in, double out_,
                 OpList& out) {
    const auto rank = static_cast<double>(c.resolved.method.rank);
    Op down;
    down.dtype = c.activation;
    add_product(s.lora_down, tokens, rank * s.maps, in, down);
    down.weights = in * rank * s.maps;
    down.weight_bytes = down.weights * c.element;
    Op up;
    up.dtype = c.activation;
    add_product(s.lora_up, tokens, out_, rank, up);
    up.weights = out_ * rank;
    up.weight_bytes = up.weights * c.element;
    // scaling the product and adding it to the frozen map's output
    up.traffic_forward = 3.0 * tokens * out_ * c.element;
    up.traffic_backward = 2.0 * tokens * in * c.element;
    up.kernels_forward += 2;
    up.kernels_backward += 1;
    out.push_back(std::move(down));
    out.push_back(std::move(up));
}

} // namespace

void add_linear(const OpContext& c, const LinearShape& s, OpList& out) {
    const double tp = c.key.tp;
    const double tokens = s.split == Split::replicated ? c.local_tokens : c.tokens;
    const double in = s.split == Split::row ? s.in / tp : s.in;
    double n = s.split == Split::column ? s.out / tp : s.out;
    if (s.out_local > 0.0) n = s.out_local;
    Op op;
    op.dtype = product_dtype(c, s);
    op.frozen = !trains_base(c);
    const bool adapted = is_adapted(c, s);
    add_product(s.name, tokens, n, in, op);
    const double weights = in * n;
    op.weights = weights + (s.bias ? n : 0.0);
    op.weight_bytes = op.weights * bytes_per_element(c.resolved.parameter);
    // weights are brought into the format for every micro-batch anew
    op.traffic_forward = cast_traffic(c, s, tokens * in + weights);
    op.traffic_backward = cast_traffic(c, s, tokens * n);
    if (op.traffic_forward > 0.0) {
        op.kernels_forward += 1;
        op.kernels_backward += 1;
    }
    if (c.stack.tensors.residual_begins_product && s.bias && s.split != Split::row) {
        // written where the product adds to it; a map into the residual stream finds it there
        op.traffic_forward += tokens * n * c.element;
        op.kernels_forward += 1;
    }
    if (c.resolved.method.kind == MethodKind::qlora) {
        // the frozen 4-bit weights are unpacked before each of the two products
        const double unpack = weights * (bytes_per_element(Dtype::nf4) + c.element);
        op.traffic_forward += unpack;
        op.traffic_backward += unpack;
        op.kernels_forward += 1;
        op.kernels_backward += 1;
    }
    if (!op.frozen) {
        op.traffic_backward += accumulation_traffic(c, weights);
        if (!c.fusion.gradient_accumulation) op.kernels_backward += 1;
        if (s.bias) {
            op.traffic_backward += tokens * n * c.element;
            op.kernels_backward += 1;
        }
    }
    add_split_comm(c, s, op.frozen && !adapted, op);
    out.push_back(std::move(op));
    if (adapted) add_adapter(c, s, tokens, in, n, out);
}

namespace {

/// Bytes per element that a normalisation reads and writes in each pass.
struct NormTraffic {
    double forward = 0.0;
    double backward = 0.0;
};

/// One kernel: input in, output out; backward input, gradient twice, gradient out. Eager
/// root-mean-square: square, mean, product with the inverse root, product with the weight, each a
/// pass of its own, and backward the gradients of each; in 32 bits with conversions on both sides
/// where the code asks for it.
NormTraffic norm_traffic(const OpContext& c, NormKind kind) {
    const double e = c.element;
    constexpr double f = 4.0;
    if (kind == NormKind::layernorm) return {2.0 * e, 4.0 * e};
    switch (c.stack.tensors.norm) {
        case NormImpl::fused:
            break;
        case NormImpl::upcast:
            return {4.0 * e + 7.0 * f, 8.0 * e + 14.0 * f};
        case NormImpl::native:
            return {7.0 * e, 18.0 * e};
    }
    return {2.0 * e, 4.0 * e};
}

} // namespace

void add_norm(const OpContext& c, std::string_view name, NormKind kind, bool affine, bool bias,
              double tokens, double width, OpList& out) {
    const bool fused = c.fusion.norm || kind == NormKind::layernorm;
    const NormTraffic traffic = norm_traffic(c, kind);
    Op op;
    op.kind = OpKind::norm;
    op.name = name;
    op.dtype = c.activation;
    op.frozen = !trains_base(c);
    op.traffic_forward = traffic.forward * tokens * width;
    op.traffic_backward = traffic.backward * tokens * width;
    op.kernels_forward = fused ? 1 : 6;
    op.kernels_backward = fused ? 2 : 10;
    op.weights = affine ? (bias ? 2.0 : 1.0) * width : 0.0;
    op.weight_bytes = op.weights * bytes_per_element(c.resolved.parameter);
    out.push_back(std::move(op));
}

void add_residual(const OpContext& c, std::string_view name, OpList& out) {
    const double bytes = c.local_tokens * static_cast<double>(c.hidden) * c.element;
    const bool dropout = c.model.hidden_dropout > 0.0;
    const double mask = dropout ? c.local_tokens * static_cast<double>(c.hidden) : 0.0;
    Op op;
    op.kind = OpKind::residual;
    op.name = name;
    op.dtype = c.activation;
    // fused: one pass over both inputs; unfused: dropout is a pass of its own
    op.traffic_forward = 3.0 * bytes + mask;
    op.traffic_backward = 3.0 * bytes + mask;
    op.kernels_forward = 1;
    op.kernels_backward = 1;
    if (c.stack.tensors.residual_begins_product) {
        // copied to where the product adds to it; backward nothing is left to do
        op.traffic_forward = 2.0 * bytes + mask;
        op.traffic_backward = mask;
        op.kernels_backward = dropout ? 1 : 0;
    }
    if (dropout) {
        if (!c.fusion.elementwise) {
            op.traffic_forward += 2.0 * bytes;
            op.traffic_backward += 2.0 * bytes;
            op.kernels_forward += 1;
            op.kernels_backward += 1;
        }
    }
    out.push_back(std::move(op));
}

void add_rope(const OpContext& c, double width, OpList& out) {
    const double bytes = c.tokens * width * c.element;
    Op op;
    op.kind = OpKind::rope;
    op.name = "rope";
    op.dtype = c.activation;
    // eager: two products with tables, a negation of half, a concatenation and a sum; as complex
    // numbers: conversion to 32 bits, product, conversion back, which move as much
    const bool fused = c.fusion.rope && !c.stack.tensors.complex_rope;
    const double passes = fused ? 2.0 : 10.0;
    op.traffic_forward = passes * bytes;
    op.traffic_backward = passes * bytes;
    op.kernels_forward = fused ? 2 : 10;
    op.kernels_backward = op.kernels_forward;
    out.push_back(std::move(op));
}

void add_activation(const OpContext& c, std::string_view name, const Ffn& ffn, double tokens,
                    double width, OpList& out) {
    const double bytes = tokens * width * c.element;
    const bool fused = ffn.gated ? c.fusion.glu : c.fusion.elementwise;
    // eager, gated: the activation and the product are passes of their own
    const double extra = ffn.gated && !fused ? 2.0 : 0.0;
    Op op;
    op.kind = OpKind::activation;
    op.name = name;
    op.gated = ffn.gated;
    op.dtype = c.activation;
    const double inputs = ffn.gated ? 2.0 : 1.0;
    op.traffic_forward = (inputs + 1.0 + extra) * bytes;
    op.traffic_backward = (2.0 * inputs + 1.0 + 2.0 * extra) * bytes;
    op.kernels_forward = fused ? 1 : (ffn.gated ? 2 : 1) + (ffn.bias ? 1 : 0);
    op.kernels_backward = fused ? 1 : (ffn.gated ? 4 : 2);
    out.push_back(std::move(op));
}

double causal_pairs(const Resolved& resolved, std::int64_t micro_batch, std::int64_t window) {
    const auto samples = static_cast<double>(micro_batch);
    const auto sequence = static_cast<double>(resolved.sequence);
    const double square =
        resolved.sequence_mean_square > 0.0 ? resolved.sequence_mean_square : sequence * sequence;
    const auto seen = static_cast<double>(window);
    if (window > 0 && seen < sequence) {
        // the first w queries see on average w / 2 keys, the others w
        return samples * std::min(square / 2.0, sequence * seen - seen * seen / 2.0);
    }
    return samples * square / 2.0;
}

} // namespace shardplan::sim
