#include <algorithm>

#include "simulator/compute/op_memory.hpp"
#include "simulator/compute/op_memory_parts.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

/// Tokens whose logits and their gradients, in one place, exist at a time; 0: those of all.
double rows_at_a_time(const OpContext& c) {
    return std::min(c.tokens, as_double(c.stack.tensors.loss_rows));
}

void set_head(const OpContext& c, double in, double columns, Op& op) {
    const double e = c.element;
    if (const double rows = rows_at_a_time(c); rows > 0.0) {
        // all products of the head run beside the loss of their rows
        op.transient_forward = e * columns * rows + e * in * c.tokens;
        op.transient_backward = 0.0;
        return;
    }
    const double logits = e * columns * c.tokens;
    op.transient_forward = logits;
    // Gradient of the logits and of the input, and the weight's, which also exists where products
    // accumulate into the main gradient unless a placeholder stands in for it.
    const bool placeholder =
        c.stack.tensors.fused_weight_gradient && c.stack.tensors.weight_gradient_placeholder;
    op.transient_backward =
        logits + e * in * c.tokens + (op.frozen || placeholder ? 0.0 : e * in * columns);
    if (c.key.sp) {
        op.transient_backward += e * in * c.local_tokens;
        if (c.stack.tensors.gather_buffer == GatherBuffer::none) {
            op.transient_forward += e * in * c.tokens;
            op.transient_backward += e * in * c.tokens;
        }
    }
    op.transient_backward += as_double(c.stack.tensors.logits_kept) * logits;
}

void set_loss(const OpContext& c, double columns, Op& op) {
    const double e = c.element;
    const double n = columns * c.tokens;
    const auto kind = TensorKind::logits;
    const auto keep_logits = [&](std::string_view name, double bytes) {
        keep(op, name, bytes, Keep::until_backward, kind);
    };
    switch (c.stack.tensors.loss) {
        case LossImpl::fused:
            if (rows_at_a_time(c) > 0.0) {
                op.transient_forward = 8.0 * c.tokens;
                return;
            }
            keep_logits("logit_gradient", e * n);
            op.transient_forward = 16.0 * c.tokens;
            return;
        case LossImpl::vocab_parallel:
            // the fp32 copy of the logits becomes the softmax in place; the 16-bit logits are alive
            // in the forward pass, their gradient in the backward pass
            keep_logits("softmax", 4.0 * n);
            op.transient_forward = e * n;
            op.transient_backward = e * n;
            return;
        case LossImpl::eager: {
            const double kept = as_double(c.stack.tensors.logits_kept);
            keep_logits("log_softmax", 4.0 * n);
            keep_logits("logits", kept * e * n);
            op.transient_forward = 4.0 * n + std::max(0.0, 1.0 - kept) * e * n;
            op.transient_backward = 8.0 * n;
            return;
        }
        case LossImpl::chunked:
            // an eighth of the rows at a time
            op.transient_forward = 10.0 / 8.0 * n;
            op.transient_backward = 14.0 / 8.0 * n;
            return;
    }
}

} // namespace

void set_end_memory(const OpContext& c, OpList& ops) {
    clear_memory(ops);
    if (c.stack.tensors.buffers == PassBuffers::written) {
        set_written_end_memory(c, ops);
        return;
    }
    const Embedding& e = c.model.embedding;
    const Part& trunk = *trunk_of(c.model);
    const double hidden = as_double(trunk.hidden);
    const double table = e.projection_width > 0 ? as_double(e.projection_width) : hidden;
    const bool rms = trunk.norm_kind == NormKind::rmsnorm;
    const double rows = as_double(
        padded_vocab(e.vocab, std::max<std::int64_t>(1, c.resolved.vocab_multiple), c.key.tp));
    const double split_rows = rows / c.key.tp;
    for (Op& op : ops) {
        if (op.kind == OpKind::embedding) {
            keep(op, "token_ids", 16.0 * c.tokens);
            op.transient_forward = 2.0 * c.element * hidden * c.tokens;
            op.transient_backward =
                c.element * hidden * c.tokens + (op.frozen ? 0.0 : c.element * table * split_rows);
        } else if (op.kind == OpKind::norm) {
            set_norm(c, op, hidden, c.local_tokens, rms, op.name == "final_norm", hidden);
        } else if (op.kind == OpKind::residual) {
            set_residual(c, op);
        } else if (op.kind == OpKind::head) {
            set_head(c, table, split_rows, op);
        } else if (op.kind == OpKind::loss) {
            set_loss(c, c.stack.tensors.vocab_parallel_loss ? split_rows : rows, op);
        } else {
            set_replicated(c, op, hidden, table);
        }
    }
    for (Op& op : ops) {
        if (op.transient_input == 0.0) op.transient_input = op.transient_backward;
        // what goes into the last product waits with the gradient of the logits
        if (op.kind == OpKind::head && !op.frozen) {
            op.waiting = op.transient_backward > 0.0 ? c.element * split_rows * c.tokens : 0.0;
        }
    }
}

} // namespace shardplan::sim
