#include "simulator/compute/op_list.hpp"

#include <iterator>
#include <utility>

#include "simulator/compute/op_builder.hpp"
#include "simulator/compute/op_memory.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

/// torchtitan's policy: attention kernels, exchanged tokens and every second product of the block
/// (query, value, gate, down map) are kept, the others and all element-wise work run again.
/// Source: torchtitan, activation_checkpoint.py, save list with a count of products.
void set_per_operator_shares(const BlockKind& kind, OpList& ops) {
    const auto key_share = [&] {
        const Attention& a = kind.attention;
        const double key = static_cast<double>(a.kv_heads * a.qk_head_dim);
        return key / (static_cast<double>(a.heads * a.qk_head_dim) + key +
                      static_cast<double>(a.kv_heads * a.v_head_dim));
    };
    for (Op& op : ops) {
        switch (op.kind) {
            case OpKind::linear:
                op.selective_share = op.name == "attention_out" ? 1.0 : 0.0;
                if (op.name == "qkv") op.selective_share = key_share();
                if (op.name == "mlp_up" || op.name == "shared_up") {
                    op.selective_share = kind.ffn.gated ? 0.5 : 0.0;
                }
                break;
            case OpKind::grouped_linear:
                op.selective_share = op.name == "expert_up" && kind.ffn.gated ? 0.5 : 0.0;
                break;
            case OpKind::norm:
            case OpKind::rope:
            case OpKind::activation:
            case OpKind::router:
            case OpKind::dispatch:
                op.selective_share = 1.0;
                break;
            case OpKind::residual:
                op.selective_share = op.name == "attention_residual" ? 1.0 : 0.0;
                break;
            case OpKind::attention:
            case OpKind::combine:
            case OpKind::embedding:
            case OpKind::head:
            case OpKind::loss:
                op.selective_share = 0.0;
                break;
        }
    }
}

/// What no backward pass needs: the last map, and what brings its output into the residual stream.
void mark_output(OpList& ops) {
    for (Op& op : ops) {
        op.output = op.kind == OpKind::combine || op.name == "mlp_down" ||
                    op.name == "expert_down" || op.name == "shared_down" ||
                    op.name == "ffn_linear" || op.name == "ffn_residual";
    }
}

} // namespace

OpList block_ops(const BlockKind& kind, std::int64_t hidden, const ModelSpec& model,
                 const Resolved& resolved, const StackProfile& stack, const ShardingKey& sharding,
                 BlockPart part, OpList room) {
    const OpContext c = op_context(model, resolved, stack, sharding, hidden);
    const bool routes = kind.ffn.kind == FfnKind::moe;
    const bool begins = part != BlockPart::from_experts;
    const bool ends = part != BlockPart::before_experts || !routes;
    const Norms& n = kind.norms;
    const auto norm = [&](std::string_view name, OpList& out) {
        add_norm(c, name, n.kind, n.affine, n.bias, c.local_tokens, static_cast<double>(hidden),
                 out);
    };
    OpList out = std::move(room);
    out.clear();
    if (!begins && !routes) return out;
    out.reserve(begins ? 24 : 8);
    const bool attends = kind.attention.kind != AttentionKind::none;
    const bool feeds = kind.ffn.kind != FfnKind::none;
    if (attends && begins) {
        if (n.pre_attention) norm("attention_norm", out);
        add_attention(c, kind, out);
        if (n.post_attention) norm("post_attention_norm", out);
        // a parallel block adds both halves to the residual stream at its end
        if (!n.parallel) add_residual(c, "attention_residual", out);
    }
    if (feeds && begins) {
        if (n.pre_ffn) norm("ffn_norm", out);
        add_ffn(c, kind, out);
    }
    if (routes && ends) add_routed_experts(c, kind, out);
    if (feeds && ends) {
        if (n.post_ffn) norm("post_ffn_norm", out);
        add_residual(c, "ffn_residual", out);
    }
    if (attends && ends && n.parallel) add_residual(c, "attention_residual", out);
    if (stack.tensors.selective == SelectivePolicy::per_operator) {
        set_per_operator_shares(kind, out);
    }
    if (stack.tensors.recompute_without_output && !n.post_ffn && !n.parallel) mark_output(out);
    set_block_memory(c, kind, out);
    return out;
}

namespace {

Op table_op(const OpContext& c, double width) {
    const Embedding& e = c.model.embedding;
    const double tp = c.key.tp;
    const double rows =
        static_cast<double>(padded_vocab(e.vocab, c.resolved.vocab_multiple, c.key.tp)) / tp;
    const double bytes = c.tokens * width * c.element;
    const bool learned = e.position_rows > 0;
    Op op;
    op.kind = OpKind::embedding;
    op.name = "token_table";
    op.dtype = c.activation;
    op.frozen = c.resolved.method.kind != MethodKind::full;
    op.traffic_forward =
        2.0 * bytes + (learned ? 3.0 * bytes : 0.0) + (tp > 1.0 ? 2.0 * bytes : 0.0);
    op.kernels_forward = 1 + (learned ? 2 : 0) + (tp > 1.0 ? 3 : 0);
    if (c.stack.tensors.table_rows_added) {
        op.traffic_forward = (learned ? 3.0 : 2.0) * bytes + (tp > 1.0 ? 2.0 * bytes : 0.0);
        op.kernels_forward = 1 + (tp > 1.0 ? 3 : 0);
    }
    const double positions = static_cast<double>(e.position_rows * c.hidden);
    op.weights = rows * width + positions;
    op.weight_bytes = op.weights * bytes_per_element(c.resolved.parameter);
    if (!op.frozen) {
        // rows are read, added to and written in a table of zeros in the parameters' format, which
        // is then added to the accumulated gradient as a whole
        const double kept = bytes_per_element(c.resolved.gradient);
        op.traffic_backward = 3.0 * bytes + op.weights * (2.0 * c.element + 2.0 * kept);
        op.kernels_backward = 3 + (learned ? 1 : 0);
        if (c.stack.tensors.table_rows_added) {
            op.traffic_backward = (learned ? 5.0 : 3.0) * bytes;
            op.kernels_backward = 1;
        }
    }
    if (c.key.tp > 1) {
        op.comm_forward.push_back(
            {Group::tp, c.key.sp ? Collective::reduce_scatter : Collective::all_reduce, bytes, 1});
        if (c.key.sp) {
            op.comm_backward.push_back({Group::tp, Collective::all_gather, bytes, 1});
        }
    }
    return op;
}

/// Loss over a vocabulary that is split by tp: three small all-reduces (maximum, target score, sum
/// of exponentials). Source: Megatron-LM, core/tensor_parallel/cross_entropy.py.
Op loss_op(const OpContext& c, double columns) {
    const double scores = c.tokens * columns;
    const double e = c.element;
    Op op;
    op.kind = OpKind::loss;
    op.name = "cross_entropy";
    op.dtype = Dtype::fp32;
    switch (c.fusion.loss) {
        case LossImpl::fused:
            // logits in, their gradient out, once for the sums and once for the values
            op.traffic_forward = 2.0 * e * scores;
            op.traffic_backward = 2.0 * e * scores;
            op.kernels_forward = 2;
            op.kernels_backward = 1;
            break;
        case LossImpl::vocab_parallel:
            // copy in 32 bits; maximum; subtraction; exponential and sum; division by the sum
            op.traffic_forward = (e + 4.0 + 4.0 + 8.0 + 12.0 + 8.0) * scores;
            // softmax minus target in place, scaling, conversion
            op.traffic_backward = (8.0 + 4.0 + e) * scores;
            op.kernels_forward = 9;
            op.kernels_backward = 4;
            break;
        case LossImpl::eager:
        case LossImpl::chunked:
            // copy in 32 bits; log-softmax in two readings and one writing
            op.traffic_forward = (e + 4.0 + 12.0) * scores;
            // gradient of the selected score in a field of zeros; of log-softmax; conversion
            op.traffic_backward = (4.0 + 12.0 + 4.0 + e) * scores;
            op.kernels_forward = 4;
            op.kernels_backward = 4;
            break;
    }
    if (c.key.tp > 1 && !c.stack.tensors.vocab_parallel_loss) {
        const double whole = e * scores; // every rank computes the whole loss
        op.comm_forward.push_back({Group::tp, Collective::all_gather, whole, 1});
        return op;
    }
    if (c.key.tp > 1) {
        op.comm_forward.push_back({Group::tp, Collective::all_reduce, 4.0 * c.tokens, 3});
    }
    return op;
}

} // namespace

OpList embedding_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                     const ShardingKey& sharding) {
    const Part* trunk = trunk_of(model);
    OpList out;
    if (trunk == nullptr) return out;
    const OpContext c = op_context(model, resolved, stack, sharding, trunk->hidden);
    const Embedding& e = model.embedding;
    const bool projected = e.projection_width > 0 && e.projection_width != trunk->hidden;
    const auto width = static_cast<double>(projected ? e.projection_width : trunk->hidden);
    out.push_back(table_op(c, width));
    if (projected) {
        LinearShape map{"embedding_projection", "", "", Split::replicated};
        map.in = width;
        map.out = static_cast<double>(trunk->hidden);
        add_linear(c, map, out);
    }
    if (e.norm) {
        add_norm(c, "embedding_norm", trunk->norm_kind, trunk->norm_affine, trunk->norm_bias,
                 c.local_tokens, static_cast<double>(trunk->hidden), out);
    }
    if (model.hidden_dropout > 0.0) {
        const double elements = c.local_tokens * static_cast<double>(trunk->hidden);
        Op op;
        op.kind = OpKind::residual;
        op.name = "embedding_dropout";
        op.dtype = c.activation;
        op.traffic_forward = elements * (2.0 * c.element + 1.0);
        op.traffic_backward = op.traffic_forward;
        op.kernels_forward = 1;
        op.kernels_backward = 1;
        out.push_back(std::move(op));
    }
    set_end_memory(c, out);
    return out;
}

OpList prediction_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                      const ShardingKey& sharding) {
    const Part* trunk = trunk_of(model);
    OpList out = embedding_ops(model, resolved, stack, sharding);
    if (trunk == nullptr) return out;
    const OpContext c = op_context(model, resolved, stack, sharding, trunk->hidden);
    const auto hidden = static_cast<double>(trunk->hidden);
    for (const std::string_view name : {"prediction_hidden_norm", "prediction_embedding_norm"}) {
        add_norm(c, name, trunk->norm_kind, trunk->norm_affine, trunk->norm_bias, c.local_tokens,
                 hidden, out);
    }
    LinearShape map{"prediction_projection", "", ""};
    map.in = 2.0 * hidden;
    map.out = hidden;
    add_linear(c, map, out);
    OpList head = head_ops(model, resolved, stack, sharding);
    std::move(head.begin(), head.end(), std::back_inserter(out));
    return out;
}

OpList head_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                const ShardingKey& sharding) {
    const Part* trunk = trunk_of(model);
    OpList out;
    if (trunk == nullptr) return out;
    const OpContext c = op_context(model, resolved, stack, sharding, trunk->hidden);
    const Embedding& e = model.embedding;
    const bool projected = e.projection_width > 0 && e.projection_width != trunk->hidden;
    const auto hidden = static_cast<double>(trunk->hidden);
    if (trunk->final_norm) {
        add_norm(c, "final_norm", trunk->norm_kind, trunk->norm_affine, trunk->norm_bias,
                 c.local_tokens, hidden, out);
    }
    if (projected) {
        LinearShape map{"head_projection", "", "", Split::replicated};
        map.in = hidden;
        map.out = static_cast<double>(e.projection_width);
        add_linear(c, map, out);
    }
    const auto vocab =
        static_cast<double>(padded_vocab(e.vocab, resolved.vocab_multiple, sharding.tp));
    LinearShape head{"head", "", ""};
    head.in = projected ? static_cast<double>(e.projection_width) : hidden;
    head.out = vocab;
    head.bias = e.head_bias;
    head.narrow = false;
    // a loss of some rows at a time finds the head's gradient while what it gathered is there
    head.gathers_again = stack.tensors.loss_rows == 0;
    add_linear(c, head, out);
    Op& op = out.back();
    op.kind = OpKind::head;
    // the output table stays in 16 bits where the blocks' weights are stored in 4
    op.weight_bytes = op.weights * bytes_per_element(c.activation);
    const bool split = stack.tensors.vocab_parallel_loss;
    out.push_back(loss_op(c, split ? vocab / sharding.tp : vocab));
    set_end_memory(c, out);
    return out;
}

} // namespace shardplan::sim
