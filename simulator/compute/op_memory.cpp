#include "simulator/compute/op_memory.hpp"

#include <algorithm>

#include "simulator/compute/op_memory_parts.hpp"

namespace shardplan::sim {

namespace {

/// Widths of one block on one rank, in elements per token.
struct Widths {
    double hidden = 0.0;
    double q = 0.0; ///< query heads x head size
    double k = 0.0; ///< as attention takes them
    double v = 0.0;
    double projected_k = 0.0; ///< as the projection gives them
    double out = 0.0;         ///< attention output
    double heads = 0.0;
    double head_dim = 0.0;
};

Widths widths_of(const OpContext& c, const Attention& a) {
    const double tp = c.key.tp;
    Widths w;
    w.hidden = as_double(c.hidden);
    w.heads = as_double(a.heads) / tp;
    double kv_heads = std::max(as_double(a.kv_heads) / tp, 1.0);
    w.projected_k = kv_heads * as_double(a.qk_head_dim);
    if (c.key.cp > 1 && c.key.cp_kind == CpKind::all_to_all) {
        // after the exchange; fewer heads than ranks are copied
        kv_heads = std::max(kv_heads, as_double(c.key.cp));
    }
    const bool latent = a.kind == AttentionKind::mla;
    w.head_dim = as_double(a.qk_head_dim);
    w.q = w.heads * as_double(a.qk_head_dim);
    w.k = (latent ? w.heads : kv_heads) * as_double(a.qk_head_dim);
    w.v = (latent ? w.heads : kv_heads) * as_double(a.v_head_dim);
    w.out = w.heads * as_double(a.v_head_dim);
    return w;
}

/// Column-parallel product: its input is kept by whoever made it. Under sp the input is gathered
/// for the product and again for the weight gradient.
void set_column(const OpContext& c, Op& op, double in, double out, bool gathers) {
    const double e = c.element;
    const double y = e * out * c.tokens;
    const bool gathered = c.key.sp && gathers;
    const double whole = gathered ? e * in * c.tokens : 0.0;
    op.transient_forward = whole + y;
    op.transient_input = y + e * in * c.tokens;
    op.transient_backward = op.transient_input + weight_gradient(c, op, in * out);
    if (gathered) {
        op.transient_backward += whole + e * in * c.local_tokens;
        op.transient_input += e * in * c.local_tokens;
    }
    op.waiting = op.frozen ? 0.0 : y;
    op.transient_weight = whole + weight_gradient(c, op, in * out);
}

/// Row-parallel product. Under sp the whole output exists before it is scattered, and its gradient
/// is gathered.
void set_row(const OpContext& c, Op& op, double in, double out) {
    const double e = c.element;
    const double whole = e * out * c.tokens;
    const double local = e * out * c.local_tokens;
    op.transient_forward = whole + (c.key.sp ? local : 0.0);
    // Without dropout the gradient of the output is the residual stream's, counted elsewhere.
    const double gradient = c.model.hidden_dropout > 0.0 ? local : 0.0;
    op.transient_input = gradient + (c.key.sp ? whole : 0.0) + e * in * c.tokens;
    op.transient_weight = weight_gradient(c, op, in * out);
    op.transient_backward = op.transient_input + op.transient_weight;
    op.waiting = op.frozen ? 0.0 : whole;
}

void set_rope(const OpContext& c, const Widths& w, bool latent, double assembled, Op& op) {
    const double e = c.element;
    const double rotated = (w.q + w.k) * c.tokens;
    const double all = (w.q + w.k + w.v) * c.tokens;
    keep(op, "query", e * w.q * c.tokens);
    keep(op, "key", e * w.k * c.tokens);
    if (latent) {
        // Rotated and plain parts are joined into new tensors, the values copied beside them.
        keep(op, "value", e * w.v * c.tokens);
        op.transient_forward = e * assembled * c.tokens;
        op.transient_backward = e * all + e * assembled * c.tokens;
        return;
    }
    switch (c.stack.tensors.rope) {
        case RopeImpl::fused:
            op.transient_forward = e * all;
            op.transient_backward = 2.0 * e * all;
            return;
        case RopeImpl::eager:
            op.transient_forward = 8.0 * rotated;
            op.transient_backward = (8.0 + e) * rotated;
            return;
        case RopeImpl::with_tables:
            keep(op, "cosine_sine", 8.0 * w.head_dim * c.tokens);
            op.transient_forward = 2.0 * e * rotated;
            op.transient_backward = 3.0 * e * rotated;
            return;
    }
}

/// Scores written to memory: (query, key) pairs times heads on one rank.
void set_unfused_attention(const OpContext& c, const Widths& w, double io, Op& op) {
    const double e = c.element;
    const auto drop = Keep::dropped_by_selective;
    const double sequence = as_double(c.resolved.sequence);
    const double pairs = as_double(c.key.micro_batch) * sequence * sequence / c.key.cp;
    const double scores = pairs * w.heads;
    const bool fused = c.resolved.attention == AttentionImpl::fused_softmax;
    keep(op, "softmax", e * scores, drop);
    if (!fused) {
        keep(op, "fp32_softmax", 4.0 * scores, drop);
        keep(op, "mask", pairs, drop);
    }
    if (c.model.attention_dropout > 0.0) {
        keep(op, "dropout_mask", scores, drop);
        keep(op, "dropped", e * scores, drop);
    }
    op.transient_forward = fused ? e * scores : (e + 4.0) * scores;
    op.transient_backward = io + (fused ? 2.0 * e : e + 8.0) * scores;
}

void set_flash_attention(const OpContext& c, const Widths& w, double io, Op& op) {
    const double per_head = 4.0 * w.heads * c.tokens;
    const double accumulator = 4.0 * w.q * c.tokens;
    keep(op, "log_sum_exp", per_head);
    // fp32 accumulator of the query gradient and the row sums of output x gradient
    op.transient_backward = io + accumulator + per_head;
    if (c.resolved.attention == AttentionImpl::flash_1) {
        op.transient_forward = accumulator;
    }
}

/// Buffers of context parallelism around the kernel.
void set_context_exchange(const OpContext& c, const Widths& w, Op& op) {
    if (c.key.cp == 1) {
        return;
    }
    const double e = c.element;
    const double cp = c.key.cp;
    const double kv = e * (w.k + w.v) * c.tokens;
    const double qkv = kv + e * w.q * c.tokens;
    const double out = e * w.out * c.tokens;
    switch (c.key.cp_kind) {
        case CpKind::ring:
            // One partial output and its statistics per step until the final correction, and two
            // blocks of keys and values in flight.
            op.transient_forward += cp * (out + 4.0 * w.heads * c.tokens) + 2.0 * kv;
            op.transient_backward += 4.0 * kv;
            return;
        case CpKind::all_to_all:
            // The kernel keeps its output before the exchange back, the projection the one after
            // it.
            keep(op, "exchanged_output", out);
            op.transient_forward += qkv;
            op.transient_backward += qkv;
            return;
        case CpKind::all_gather:
            op.transient_forward += cp * kv;
            op.transient_backward += 2.0 * cp * kv;
            return;
    }
}

void set_core_attention(const OpContext& c, const Widths& w, bool grouped_heads, Op& op) {
    const double e = c.element;
    const double out = e * w.out * c.tokens;
    const double io = out + e * (w.q + w.k + w.v) * c.tokens;
    keep_input(op, "output", out);
    if (writes_scores(c.resolved.attention)) {
        set_unfused_attention(c, w, io, op);
    } else {
        set_flash_attention(c, w, io, op);
        // A kernel that works in [batch, sequence] order leaves a second copy in the order of the
        // projection; with one sequence the two orders are the same.
        const bool reordered =
            c.stack.tensors.sequence_first && c.resolved.attention != AttentionImpl::cudnn &&
            c.key.micro_batch > 1 && (c.key.cp == 1 || c.key.cp_kind != CpKind::all_to_all);
        if (c.stack.tensors.attention_copy || reordered) {
            keep(op, "output_copy", out);
            op.transient_forward += out;
        }
    }
    if (c.stack.tensors.repeat_kv && grouped_heads) {
        const double expanded = e * (w.q + w.out) * c.tokens;
        keep(op, "expanded_key_value", expanded);
        op.transient_backward += expanded;
    }
    set_context_exchange(c, w, op);
}

void set_activation(const OpContext& c, const Ffn& f, double rows, double width, bool weighted,
                    Op& op) {
    const double e = c.element;
    const double inputs = e * width * rows;
    keep(op, "up", inputs);
    if (f.gated) {
        keep(op, "gate", inputs);
        if (!c.stack.tensors.fused_glu) {
            keep(op, "activated_gate", inputs);
        }
        op.transient_forward = inputs;
        op.transient_backward = 3.0 * inputs;
    } else if (weighted) {
        // The expert's output is weighted here: the activated values are kept for the product with
        // the fp32 probability.
        keep(op, "activated", inputs);
        op.transient_forward = (4.0 + e) * width * rows;
        op.transient_backward = (2.0 * e + 4.0) * width * rows;
    } else {
        op.transient_forward = inputs;
        op.transient_backward = 2.0 * inputs;
    }
}

/// Router, token exchange and experts. `beside`: bytes of the shared experts' output, which waits.
void set_expert_op(const OpContext& c, const Ffn& f, double beside, Op& op) {
    const double e = c.element;
    const double hidden = as_double(c.hidden);
    const RoutedTokens routed = routed_tokens(c, f);
    const double sent = e * hidden * routed.sent;
    const double done = e * hidden * routed.done;
    const double experts_here = std::max(1.0, as_double(f.experts) / c.key.ep);
    // The layer's function holds the permuted send buffer, and the received one where it is sorted
    // again, until it returns.
    const double held = sent + (experts_here > 1.0 ? done : 0.0);
    const double width = as_double(f.expert_width) / c.key.etp;
    const double up = (f.gated ? 2.0 : 1.0) * width;
    if (op.name == "router") {
        const double scores = c.local_tokens * as_double(f.experts);
        // scores and sparse probabilities in fp32, and the boolean map
        keep(op, "scores", 9.0 * scores);
        op.transient_forward = 4.0 * scores;
        op.transient_backward = 8.0 * scores + 2.0 * e * hidden * c.local_tokens;
        return;
    }
    if (op.kind == OpKind::dispatch) {
        keep_input(op, "dispatched", done);
        keep(op, "probabilities", 8.0 * routed.done);
        op.transient_backward = 2.0 * done;
    } else if (op.name == "expert_up") {
        op.transient_forward = e * up * routed.done;
        op.waiting = e * up * routed.done;
        op.transient_weight = weight_gradient(c, op, experts_here * hidden * up);
        op.transient_backward = op.waiting + done + op.transient_weight;
    } else if (op.name == "expert_activation") {
        set_activation(c, f, routed.done, width, true, op);
    } else if (op.name == "expert_down") {
        keep_input(op, "input", kept_input_element(c) * width * routed.done);
        op.transient_forward = done;
        op.waiting = done;
        op.transient_weight = weight_gradient(c, op, experts_here * hidden * width);
        op.transient_backward = done + e * width * routed.done + op.transient_weight;
    } else if (op.kind == OpKind::combine) {
        op.transient_forward = done + (experts_here > 1.0 ? done : sent);
        op.transient_backward = 2.0 * done;
    }
    op.transient_forward += held + beside;
    op.transient_backward += beside;
}

void set_attention_op(const OpContext& c, const BlockKind& kind, const Widths& w, Op& op) {
    const Attention& a = kind.attention;
    const double e = c.element;
    const bool rotates = a.rope_dim > 0 && c.model.embedding.positions == Positions::rope;
    const bool latent = a.kind == AttentionKind::mla;
    const double q_rank = as_double(a.q_rank);
    const double kv_rank = as_double(a.kv_rank);
    const double rope = as_double(a.rope_dim);
    const double kv_up = w.heads * (as_double(a.qk_head_dim) - rope + as_double(a.v_head_dim));
    if (op.name == "qkv") {
        set_column(c, op, w.hidden, w.q + w.k + w.v, true);
        if (!rotates || c.stack.tensors.packed_qkv) {
            keep(op, "query_key_value", e * (w.q + w.k + w.v) * c.tokens);
        } else {
            keep(op, "value", e * w.v * c.tokens);
        }
    } else if (op.name == "qk_norm") {
        const bool per_head = a.qk_norm == QkNorm::per_head;
        const double heads = w.heads + w.projected_k / std::max(1.0, w.head_dim);
        const double width = w.q + w.projected_k;
        set_norm(c, op, width, c.tokens, true, false, width);
        // one statistic per head, or one of queries and one of keys
        op.stored[1].bytes = 4.0 * (per_head ? heads : 2.0) * c.tokens;
    } else if (op.kind == OpKind::rope) {
        set_rope(c, w, latent, kv_up, op);
    } else if (op.kind == OpKind::attention) {
        set_core_attention(c, w, a.kv_heads < a.heads && !latent, op);
    } else if (op.name == "attention_out") {
        if (kept_input_element(c) < e) {
            keep(op, "cast_input", w.out * c.tokens);
        }
        set_row(c, op, w.out, w.hidden);
    } else if (op.name == "q_down") {
        set_replicated(c, op, w.hidden, q_rank);
    } else if (op.name == "kv_down") {
        set_replicated(c, op, w.hidden, kv_rank + rope);
    } else if (op.name == "q_norm") {
        set_norm(c, op, q_rank, c.local_tokens, true, true, q_rank);
    } else if (op.name == "kv_norm") {
        set_norm(c, op, kv_rank, c.local_tokens, true, true, kv_rank + rope);
    } else if (op.name == "q_up") {
        set_column(c, op, a.q_rank > 0 ? q_rank : w.hidden, w.q, true);
    } else if (op.name == "kv_up") {
        set_column(c, op, kv_rank, kv_up, true);
    }
}

void set_ffn_op(const OpContext& c, const BlockKind& kind, double beside, Op& op) {
    const Ffn& f = kind.ffn;
    const double tp = c.key.tp;
    const bool shared = op.name.starts_with("shared");
    const double width = as_double(shared ? f.shared_width : f.width) / tp;
    const double up = (f.gated ? 2.0 : 1.0) * width;
    const double hidden = as_double(c.hidden);
    if (op.name == "mlp_up" || op.name == "shared_up") {
        set_column(c, op, hidden, up, true);
    } else if (op.name == "mlp_activation" || op.name == "shared_activation") {
        set_activation(c, f, c.tokens, width, false, op);
    } else if (op.name == "mlp_down" || op.name == "shared_down") {
        keep_input(op, "input", kept_input_element(c) * width * c.tokens);
        set_row(c, op, width, hidden);
    } else if (op.name == "shared_gate") {
        keep(op, "gate", c.element * c.local_tokens);
    } else if (op.name == "ffn_linear") {
        set_replicated(c, op, hidden, hidden);
    } else {
        set_expert_op(c, f, beside, op);
    }
}

/// torchtitan's policy keeps the block input, the attention kernel's results and the output of
/// every second product (queries, values, gate, down); the rest of the block is computed again.
/// Nothing reads the last of them, so a compiler drops it.
void mark_per_operator_policy(const OpContext& c, OpList& ops) {
    for (Op& op : ops) {
        for (StoredTensor& t : op.stored) {
            const bool kept =
                (op.name == "attention_norm" && t.name == "input") ||
                (op.kind == OpKind::attention && (t.name == "output" || t.name == "log_sum_exp")) ||
                t.name == "query" || t.name == "value" || t.name == "gate";
            t.keep = kept ? Keep::until_backward : Keep::dropped_by_selective;
        }
        if (op.name == "mlp_down" && !has_feature(c.stack, Feature::compile)) {
            keep(op, "cached_output", c.element * as_double(c.hidden) * c.local_tokens,
                 Keep::only_by_selective);
        }
    }
}

/// Factors of an adapter: the input of each.
void set_adapter(const OpContext& c, Op& op) {
    const bool down = op.name.ends_with("lora_down");
    keep(op, down ? "adapter_input" : "adapter_middle",
         down ? 0.0 : c.element * as_double(op.gemm.m) * as_double(op.gemm.k));
    op.transient_forward = c.element * as_double(op.gemm.m) * as_double(op.gemm.n);
    op.transient_backward = op.transient_forward;
}

/// Without a norm before it, a half of the block reads the residual stream itself.
void keep_unnormalised_inputs(const OpContext& c, const BlockKind& kind, OpList& ops) {
    const double bytes = c.element * as_double(c.hidden) * c.local_tokens;
    for (Op& op : ops) {
        const bool attention = op.name == "qkv" || op.name == "q_down" ||
                               (op.name == "q_up" && kind.attention.q_rank == 0);
        const bool ffn = op.name == "mlp_up" || op.name == "router";
        if ((attention && !kind.norms.pre_attention) ||
            (ffn && !kind.norms.pre_ffn && !kind.norms.parallel)) {
            keep(op, "input", bytes);
        }
    }
}

} // namespace

void set_block_memory(const OpContext& c, const BlockKind& kind, OpList& ops) {
    clear_memory(ops);
    if (c.stack.tensors.buffers == PassBuffers::written) {
        set_written_block_memory(c, kind, ops);
        return;
    }
    const Widths w = widths_of(c, kind.attention);
    const bool rms = kind.norms.kind == NormKind::rmsnorm;
    const bool waits = kind.ffn.kind == FfnKind::moe && kind.ffn.shared_width > 0;
    const double beside = waits ? c.element * w.hidden * c.local_tokens : 0.0;
    for (Op& op : ops) {
        const bool attention_norm =
            op.name == "q_norm" || op.name == "kv_norm" || op.name == "qk_norm";
        if (op.name.find("lora") != std::string_view::npos) {
            set_adapter(c, op);
        } else if (op.kind == OpKind::norm && !attention_norm) {
            const bool feeds = !op.name.starts_with("post");
            set_norm(c, op, w.hidden, c.local_tokens, rms, feeds, w.hidden);
            // halves side by side read the same input, which the first norm keeps
            if (kind.norms.parallel && kind.norms.pre_attention && op.name == "ffn_norm") {
                op.stored[0].bytes = 0.0;
            }
        } else if (op.kind == OpKind::residual) {
            set_residual(c, op);
        } else if (op.name == "output_gate") {
            set_activation(c, Ffn{.gated = true}, c.tokens, w.out, false, op);
        } else if (attention_norm || op.kind == OpKind::rope || op.kind == OpKind::attention ||
                   op.name == "qkv" || op.name.starts_with("q_") || op.name.starts_with("kv_") ||
                   op.name == "attention_out") {
            set_attention_op(c, kind, w, op);
        } else {
            set_ffn_op(c, kind, beside, op);
        }
    }
    keep_unnormalised_inputs(c, kind, ops);
    if (c.stack.tensors.selective == SelectivePolicy::per_operator) {
        mark_per_operator_policy(c, ops);
    }
    for (Op& op : ops) {
        if (op.transient_input == 0.0) op.transient_input = op.transient_backward;
    }
}

} // namespace shardplan::sim
