#include <algorithm>

#include "simulator/compute/op_builder.hpp"

namespace shardplan::sim {

namespace {

/// Names of the two maps and the activation of a dense network.
struct DenseNames {
    std::string_view up, up_lora_down, up_lora_up, activation, down, down_lora_down, down_lora_up;
};
constexpr DenseNames dense_names = {"mlp_up",          "mlp_up_lora_down", "mlp_up_lora_up",
                                    "mlp_activation",  "mlp_down",         "mlp_down_lora_down",
                                    "mlp_down_lora_up"};
constexpr DenseNames shared_names = {
    "shared_up",   "shared_up_lora_down",   "shared_up_lora_up",  "shared_activation",
    "shared_down", "shared_down_lora_down", "shared_down_lora_up"};

void add_dense(const OpContext& c, const Ffn& f, std::int64_t width, const DenseNames& names,
               bool shares_gather, OpList& out) {
    const auto hidden = static_cast<double>(c.hidden);
    const auto inner = static_cast<double>(width);
    LinearShape up{names.up, names.up_lora_down, names.up_lora_up};
    up.in = hidden;
    up.out = inner * (f.gated ? 2.0 : 1.0);
    up.bias = f.bias;
    up.maps = f.gated ? 2.0 : 1.0;
    up.gathers_input = !shares_gather;
    add_linear(c, up, out);
    add_activation(c, names.activation, f, c.tokens, inner / c.key.tp, out);
    LinearShape down{names.down, names.down_lora_down, names.down_lora_up};
    down.split = Split::row;
    down.in = inner;
    down.out = hidden;
    down.bias = f.bias;
    add_linear(c, down, out);
}

void add_router(const OpContext& c, const Ffn& f, OpList& out) {
    const auto experts = static_cast<double>(f.experts);
    LinearShape map{"router", "", "", Split::replicated};
    map.in = static_cast<double>(c.hidden);
    map.out = experts;
    map.bias = f.router_bias;
    map.narrow = false;
    add_linear(c, map, out);
    Op& op = out.back();
    op.kind = OpKind::router;
    // scores in 32 bits: softmax or sigmoid, selection, normalisation, counts per expert
    op.traffic_forward += 24.0 * c.local_tokens * experts;
    op.traffic_backward += 16.0 * c.local_tokens * experts;
    op.kernels_forward += c.fusion.elementwise ? 4 : 10;
    op.kernels_backward += c.fusion.elementwise ? 3 : 6;
}

/// Tokens change places with the other ranks that hold experts, on their way there or back.
void exchange_tokens(const OpContext& c, const RoutedTokens& routed, double row, Op& op) {
    if (c.key.ep <= 1) return;
    op.comm_forward.push_back({Group::ep, Collective::all_to_all, routed.sent * row, 1});
    op.comm_backward.push_back({Group::ep, Collective::all_to_all, routed.sent * row, 1});
    // over there they are grouped by sender, and sorted by expert again
    op.traffic_forward += 2.0 * routed.done * row;
    op.traffic_backward += 2.0 * routed.done * row;
    op.kernels_forward += 1;
    op.kernels_backward += 1;
}

/// Sorts tokens by expert and sends them to the ranks that hold the experts.
/// Source: GShard (Lepikhin et al. 2020, arXiv 2006.16668).
void add_dispatch(const OpContext& c, const RoutedTokens& routed, OpList& out) {
    const double row = static_cast<double>(c.hidden) * c.element;
    Op op;
    op.kind = OpKind::dispatch;
    op.name = "dispatch";
    op.dtype = c.activation;
    op.traffic_forward = 2.0 * routed.sent * row;
    op.traffic_backward = 2.0 * routed.sent * row;
    op.kernels_forward = 3;
    op.kernels_backward = 2;
    exchange_tokens(c, routed, row, op);
    if (c.key.etp > 1 && (c.key.sp || shares_tokens(c))) {
        op.comm_forward.push_back({Group::etp, Collective::all_gather, routed.done * row, 1});
        op.comm_backward.push_back({Group::etp, Collective::reduce_scatter, routed.done * row, 1});
    }
    if (shares_tokens(c)) {
        op.comm_backward.push_back({Group::tp, Collective::all_gather, c.local_tokens * row, 1});
    }
    out.push_back(std::move(op));
}

void add_combine(const OpContext& c, const RoutedTokens& routed, OpList& out) {
    const double row = static_cast<double>(c.hidden) * c.element;
    Op op;
    op.kind = OpKind::combine;
    op.name = "combine";
    op.dtype = c.activation;
    const double kept = c.local_tokens * row;
    op.traffic_forward = routed.sent * row + kept;
    op.traffic_backward = 2.0 * routed.sent * row + kept;
    op.kernels_forward = 2;
    op.kernels_backward = 2;
    exchange_tokens(c, routed, row, op);
    if (c.key.etp > 1) {
        if (c.key.sp || shares_tokens(c)) {
            op.comm_forward.push_back(
                {Group::etp, Collective::reduce_scatter, routed.done * row, 1});
            op.comm_backward.push_back({Group::etp, Collective::all_gather, routed.done * row, 1});
        } else {
            op.comm_forward.push_back({Group::etp, Collective::all_reduce, kept, 1});
            op.comm_backward.push_back({Group::etp, Collective::all_reduce, kept, 1});
        }
    }
    if (shares_tokens(c)) op.comm_forward.push_back({Group::tp, Collective::all_gather, kept, 1});
    out.push_back(std::move(op));
}

/// One map of all experts on the rank.
void add_grouped(const OpContext& c, const Ffn& f, std::string_view name, double tokens, double n,
                 double k, OpList& out) {
    const auto local = std::max<std::int64_t>(1, f.experts / std::max<std::int64_t>(1, c.key.ep));
    const auto rows = static_cast<std::int64_t>(std::max(1.0, tokens / static_cast<double>(local)));
    // Transformer Engine spreads the experts over streams, other grouped kernels take all.
    const bool te = has_feature(c.stack, Feature::te);
    const bool grouped = !te && has_feature(c.stack, Feature::grouped_gemm);
    Op op;
    op.kind = OpKind::grouped_linear;
    op.name = name;
    op.dtype = c.resolved.compute;
    op.frozen = c.resolved.method.kind != MethodKind::full;
    op.gemm = {rows, static_cast<std::int64_t>(n), static_cast<std::int64_t>(k), local};
    op.flops_forward = 2.0 * tokens * n * k;
    op.flops_backward = (op.frozen ? 1.0 : 2.0) * op.flops_forward;
    op.at_once = grouped ? local : (te ? te_streams : 1);
    const auto calls = static_cast<std::int32_t>(grouped ? 1 : local);
    op.kernels_forward = calls;
    op.kernels_backward = op.frozen ? calls : 2 * calls;
    const double weights = static_cast<double>(local) * n * k;
    op.weights = weights + (f.bias ? static_cast<double>(local) * n : 0.0);
    op.weight_bytes = op.weights * bytes_per_element(c.resolved.parameter);
    const double narrow = bytes_per_element(c.resolved.compute);
    if (narrow < 2.0) {
        op.traffic_forward += (tokens * k + weights) * cast_bytes(c, narrow);
        op.traffic_backward += tokens * n * cast_bytes(c, narrow);
    }
    if (!op.frozen && !c.fusion.gradient_accumulation) {
        op.traffic_backward += weights * (c.element + 2.0 * bytes_per_element(c.resolved.gradient));
    }
    out.push_back(std::move(op));
}

} // namespace

bool shares_tokens(const OpContext& c) {
    return c.key.tp > 1 && !c.key.sp && c.key.etp != c.key.tp;
}

RoutedTokens routed_tokens(const OpContext& c, const Ffn& f) {
    const double load =
        c.resolved.moe.capacity > 0.0 ? c.resolved.moe.capacity : c.resolved.moe.imbalance;
    const bool shares = shares_tokens(c);
    const double tokens = c.local_tokens / (shares ? static_cast<double>(c.key.tp) : 1.0);
    const double mean = tokens * static_cast<double>(f.top_k);
    // Under sp the ranks of the expert's tensor group hold different tokens; without it the same.
    const double gathered = c.key.sp || shares ? static_cast<double>(c.key.etp) : 1.0;
    return {mean * std::max(1.0, load), mean * std::max(1.0, load) * gathered};
}

void add_ffn(const OpContext& c, const BlockKind& kind, OpList& out) {
    const Ffn& f = kind.ffn;
    switch (f.kind) {
        case FfnKind::dense: {
            const bool shares = kind.norms.parallel && !kind.norms.pre_ffn;
            add_dense(c, f, f.width, dense_names, shares, out);
            return;
        }
        case FfnKind::moe:
            // shared experts run first: their input and output wait for the routed ones (Megatron)
            if (f.shared_width > 0) {
                add_dense(c, f, f.shared_width, shared_names, false, out);
                if (f.shared_gate) {
                    LinearShape gate{"shared_gate", "", "", Split::replicated};
                    gate.in = static_cast<double>(c.hidden);
                    gate.out = 1.0;
                    add_linear(c, gate, out);
                }
            }
            add_router(c, f, out);
            return;
        case FfnKind::linear: {
            LinearShape map{"ffn_linear", "", "", Split::replicated};
            map.in = static_cast<double>(c.hidden);
            map.out = static_cast<double>(c.hidden);
            map.bias = f.bias;
            add_linear(c, map, out);
            return;
        }
        case FfnKind::none:
            return;
    }
}

void add_routed_experts(const OpContext& c, const BlockKind& kind, OpList& out) {
    const Ffn& f = kind.ffn;
    const RoutedTokens routed = routed_tokens(c, f);
    const auto hidden = static_cast<double>(c.hidden);
    const double inner = static_cast<double>(f.expert_width) / c.key.etp;
    add_dispatch(c, routed, out);
    add_grouped(c, f, "expert_up", routed.done, inner * (f.gated ? 2.0 : 1.0), hidden, out);
    add_activation(c, "expert_activation", f, routed.done, inner, out);
    add_grouped(c, f, "expert_down", routed.done, hidden, inner, out);
    add_combine(c, routed, out);
}

} // namespace shardplan::sim
