#include <algorithm>

#include "simulator/compute/attention_op.hpp"
#include "simulator/compute/op_builder.hpp"

namespace shardplan::sim {

namespace {

/// Heads of one rank: KV heads fewer than the ranks are copied.
double local_heads(std::int64_t heads, std::int32_t tp) {
    return std::max(1.0, static_cast<double>(heads) / tp);
}

/// Exchange of keys and values between the ranks of a context-parallel group.
/// Sources: Liu et al. 2023 (ring attention, arXiv 2310.01889), Jacobs et al. 2023 (Ulysses
/// all-to-all, arXiv 2309.14509), Llama 3 (arXiv 2407.21783, section 3.3.2: all-gather).
void add_context_comm(const OpContext& c, double q_width, double kv_width, double kv_heads,
                      double out_width, Op& op) {
    const std::int32_t cp = c.key.cp;
    if (cp == 1) return;
    const double kv_block = c.tokens * kv_width * c.element;
    switch (c.key.cp_kind) {
        case CpKind::ring:
            op.comm_forward.push_back({Group::cp, Collective::send_recv, kv_block, cp - 1});
            op.comm_backward.push_back({Group::cp, Collective::send_recv, 2.0 * kv_block, cp - 1});
            return;
        case CpKind::all_gather:
            op.comm_forward.push_back({Group::cp, Collective::all_gather, cp * kv_block, 1});
            op.comm_backward.push_back({Group::cp, Collective::all_gather, cp * kv_block, 1});
            op.comm_backward.push_back({Group::cp, Collective::reduce_scatter, cp * kv_block, 1});
            return;
        case CpKind::all_to_all:
            break;
    }
    // of fewer key heads than ranks, several ranks get the same one
    const double copies = std::max(1.0, cp / kv_heads);
    const double in = c.tokens * (q_width + copies * kv_width) * c.element;
    const double out = c.tokens * out_width * c.element;
    op.comm_forward.push_back({Group::cp, Collective::all_to_all, in, 1});
    op.comm_forward.push_back({Group::cp, Collective::all_to_all, out, 1});
    op.comm_backward.push_back({Group::cp, Collective::all_to_all, out, 1});
    op.comm_backward.push_back({Group::cp, Collective::all_to_all, in, 1});
}

/// Where no kernel of its own does the softmax: scaled, masked and converted to 32 bits and back.
SoftmaxPasses softmax_of(AttentionImpl impl) {
    if (impl == AttentionImpl::fused_softmax) return {};
    return {false, true, true, false, SoftmaxPasses::Mask::filled};
}

void add_core(const OpContext& c, const Attention& a, double kv_width, OpList& out) {
    const double heads = local_heads(a.heads, c.key.tp);
    const auto qk = static_cast<double>(a.qk_head_dim);
    const auto v = static_cast<double>(a.v_head_dim);
    AttentionShape shape;
    shape.dtype = c.activation;
    shape.impl = c.resolved.attention;
    shape.queries = c.resolved.sequence / c.key.cp;
    shape.keys = c.resolved.sequence;
    shape.qk = a.qk_head_dim;
    shape.v = a.v_head_dim;
    shape.heads = heads;
    shape.sequences = c.key.micro_batch;
    shape.window = skips_before_window(shape.impl) ? a.window : 0;
    shape.pairs = causal_pairs(c.resolved, c.key.micro_batch, shape.window) / c.key.cp;
    shape.all_pairs = 2.0 * causal_pairs(c.resolved, c.key.micro_batch, 0) / c.key.cp;
    shape.io_bytes = c.tokens * (heads * (qk + v) + kv_width) * c.element;
    shape.softmax = softmax_of(c.resolved.attention);
    shape.dropout = c.model.attention_dropout > 0.0;
    Op op = attention_op(shape);
    op.selective_share = 1.0; // Megatron's policy; others are set once the block is known
    if (c.key.cp > 1 && c.key.cp_kind == CpKind::ring && !op.writes_scores) {
        // one kernel per piece of keys; each output but the first is rescaled and added in 32 bits
        op.attention_edges *= c.key.cp;
        const double sums = (c.key.cp - 1.0) * c.tokens * heads;
        op.kernels_forward += 3 * (c.key.cp - 1);
        op.kernels_backward += 3 * (c.key.cp - 1);
        op.sum_forward = sums * v * (c.element + 8.0);
        op.sum_backward = sums * qk * (c.element + 8.0) +
                          (c.key.cp - 1.0) * c.tokens * kv_width * (c.element + 8.0);
    }
    add_context_comm(c, heads * qk, kv_width, kv_width / (qk + v), heads * v, op);
    out.push_back(std::move(op));
}

void add_plain_attention(const OpContext& c, const Attention& a, bool reduces, OpList& out) {
    const auto hidden = static_cast<double>(c.hidden);
    const std::int32_t tp = c.key.tp;
    const auto qk = static_cast<double>(a.qk_head_dim);
    const auto v = static_cast<double>(a.v_head_dim);
    const double q_width = static_cast<double>(a.heads) * qk * (a.output_gate ? 2.0 : 1.0);
    const double kv_heads = local_heads(a.kv_heads, tp);
    const double kv_local = kv_heads * (qk + v);
    LinearShape qkv{"qkv", "qkv_lora_down", "qkv_lora_up"};
    qkv.in = hidden;
    qkv.out = q_width + static_cast<double>(a.kv_heads) * (qk + v);
    qkv.out_local = q_width / tp + kv_local;
    qkv.bias = a.qkv_bias;
    qkv.maps = 3.0;
    qkv.attention = true;
    add_linear(c, qkv, out);
    const double q_local = local_heads(a.heads, tp) * qk;
    if (a.qk_norm != QkNorm::none) {
        const double width = q_local + kv_heads * qk;
        add_norm(c, "qk_norm", NormKind::rmsnorm, true, false, c.tokens, width, out);
        // weights: one head's worth, or the width of the split projection
        Op& norm = out.back();
        norm.weights = a.qk_norm == QkNorm::per_head ? 2.0 * qk : width;
        norm.weight_bytes = norm.weights * bytes_per_element(c.resolved.parameter);
        if (a.qk_norm == QkNorm::full_projection && tp > 1) {
            // a sum of each row of queries and one of keys
            norm.comm_forward.push_back({Group::tp, Collective::all_reduce, 4.0 * c.tokens, 2});
            norm.comm_backward.push_back({Group::tp, Collective::all_reduce, 4.0 * c.tokens, 2});
        }
    }
    if (a.rope_dim > 0 && c.model.embedding.positions == Positions::rope) {
        add_rope(c, q_local + kv_heads * qk, out);
    }
    add_core(c, a, kv_local, out);
    if (a.output_gate) {
        Ffn gate;
        gate.gated = true;
        add_activation(c, "output_gate", gate, c.tokens, local_heads(a.heads, tp) * v, out);
    }
    LinearShape proj{"attention_out", "attention_out_lora_down", "attention_out_lora_up"};
    proj.split = Split::row;
    proj.in = static_cast<double>(a.heads) * v;
    proj.out = hidden;
    proj.bias = a.out_bias;
    proj.reduces_output = reduces;
    proj.attention = true;
    add_linear(c, proj, out);
}

/// DeepSeek-V2 (arXiv 2405.04434): queries, keys and values come from compressed vectors. The
/// down-projections are whole on every rank and see its own tokens; under sp the compressed
/// vectors are gathered, not the hidden ones.
void add_latent_attention(const OpContext& c, const Attention& a, bool reduces, OpList& out) {
    const auto hidden = static_cast<double>(c.hidden);
    const auto heads = static_cast<double>(a.heads);
    const auto qk = static_cast<double>(a.qk_head_dim);
    const auto v = static_cast<double>(a.v_head_dim);
    const auto rope = static_cast<double>(a.rope_dim);
    const auto q_rank = static_cast<double>(a.q_rank);
    const auto kv_rank = static_cast<double>(a.kv_rank);
    LinearShape q_up{"q_up", "q_up_lora_down", "q_up_lora_up"};
    q_up.in = hidden;
    q_up.out = heads * qk;
    q_up.attention = true;
    if (a.q_rank > 0) {
        LinearShape q_down{"q_down", "q_down_lora_down", "q_down_lora_up", Split::replicated};
        q_down.in = hidden;
        q_down.out = q_rank;
        q_down.bias = a.qkv_bias;
        q_down.attention = true;
        add_linear(c, q_down, out);
        add_norm(c, "q_norm", NormKind::rmsnorm, true, false, c.local_tokens, q_rank, out);
        q_up.in = q_rank;
    }
    add_linear(c, q_up, out);
    LinearShape kv_down{"kv_down", "kv_down_lora_down", "kv_down_lora_up", Split::replicated};
    kv_down.in = hidden;
    kv_down.out = kv_rank + rope;
    kv_down.bias = a.qkv_bias;
    kv_down.attention = true;
    add_linear(c, kv_down, out);
    add_norm(c, "kv_norm", NormKind::rmsnorm, true, false, c.local_tokens, kv_rank, out);
    LinearShape kv_up{"kv_up", "kv_up_lora_down", "kv_up_lora_up"};
    kv_up.in = kv_rank;
    kv_up.out = heads * (qk - rope + v);
    kv_up.attention = true;
    add_linear(c, kv_up, out);
    if (c.key.tp > 1) {
        // the rotated part of the keys is each rank's own tokens'; its gradient comes from all
        // heads
        const double bytes = c.tokens * rope * c.element;
        Op& op = out.back();
        if (c.key.sp) op.comm_forward.push_back({Group::tp, Collective::all_gather, bytes, 1});
        op.comm_backward.push_back(
            {Group::tp, c.key.sp ? Collective::reduce_scatter : Collective::all_reduce, bytes, 1});
    }
    const double heads_local = local_heads(a.heads, c.key.tp);
    add_rope(c, heads_local * qk + heads_local * qk, out); // rotated parts are joined to the rest
    add_core(c, a, heads_local * (qk + v), out);
    LinearShape proj{"attention_out", "attention_out_lora_down", "attention_out_lora_up"};
    proj.split = Split::row;
    proj.in = heads * v;
    proj.out = hidden;
    proj.bias = a.out_bias;
    proj.reduces_output = reduces;
    proj.attention = true;
    add_linear(c, proj, out);
}

} // namespace

void add_attention(const OpContext& c, const BlockKind& kind, OpList& out) {
    const Attention& a = kind.attention;
    // A parallel block adds both halves up before it reduces them once.
    const bool reduces = !(kind.norms.parallel && kind.ffn.kind == FfnKind::dense);
    switch (a.kind) {
        case AttentionKind::mha:
        case AttentionKind::gqa:
            add_plain_attention(c, a, reduces, out);
            return;
        case AttentionKind::mla:
            add_latent_attention(c, a, reduces, out);
            return;
        case AttentionKind::linear: // held and refused by name
        case AttentionKind::ssm:
        case AttentionKind::none:
            return;
    }
}

} // namespace shardplan::sim
