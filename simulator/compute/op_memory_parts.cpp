#include "simulator/compute/op_memory_parts.hpp"

namespace shardplan::sim {

double weight_gradient(const OpContext& c, const Op& op, double elements) {
    return op.frozen || c.stack.tensors.fused_weight_gradient ? 0.0 : c.element * elements;
}

double kept_input_element(const OpContext& c) {
    const bool narrow = c.stack.tensors.keeps_cast_input &&
                        bytes_per_element(c.resolved.compute) < bytes_per_element(c.activation);
    return narrow ? 1.0 : c.element;
}

void keep(Op& op, std::string_view name, double bytes, Keep how, TensorKind kind) {
    if (bytes > 0.0) {
        op.stored.push_back({name, bytes, kind, how});
    }
}

void keep_input(Op& op, std::string_view name, double bytes, Keep how) {
    if (bytes > 0.0) {
        op.stored.push_back({name, bytes, TensorKind::activations, how, true});
    }
}

void set_norm(const OpContext& c, Op& op, double width, double rows, bool rms, bool feeds_linear,
              double in_width) {
    const double e = c.element;
    const double elements = width * rows;
    keep(op, "input", e * in_width * rows);
    keep(op, "statistics", (rms ? 4.0 : 8.0) * rows);
    if (feeds_linear) {
        const bool gathered = c.key.sp && c.stack.tensors.keeps_gathered_input;
        const double element = op.name == "final_norm" ? e : kept_input_element(c);
        keep_input(op, "output", element * width * (gathered ? c.tokens : rows));
    }
    op.transient_backward = 2.0 * e * elements;
    if (!rms || c.stack.tensors.norm == NormImpl::fused) {
        return;
    }
    keep(op, "normalised", e * elements);
    if (c.stack.tensors.norm == NormImpl::upcast) {
        keep(op, "fp32_input", 4.0 * elements);
        op.transient_forward = 8.0 * elements;
        op.transient_backward = 12.0 * elements;
    } else {
        op.transient_forward = (e + 4.0) * elements;
        op.transient_backward = (3.0 * e + 4.0) * elements;
    }
}

void set_replicated(const OpContext& c, Op& op, double in, double out) {
    const double e = c.element;
    op.transient_forward = e * out * c.local_tokens;
    op.transient_input = e * (out + in) * c.local_tokens;
    op.transient_weight = weight_gradient(c, op, in * out);
    op.transient_backward = op.transient_input + op.transient_weight;
    op.waiting = op.frozen ? 0.0 : e * out * c.local_tokens;
}

void set_residual(const OpContext& c, Op& op) {
    const double elements = as_double(c.hidden) * c.local_tokens;
    op.transient_forward = c.element * elements;
    if (c.model.hidden_dropout > 0.0) {
        keep(op, "dropout_mask", elements);
        op.transient_backward = c.element * elements;
    }
}

void clear_memory(OpList& ops) {
    for (Op& op : ops) {
        op.stored.clear();
        op.transient_forward = 0.0;
        op.transient_backward = op.transient_input = op.transient_weight = 0.0;
        op.waiting = op.dropped_before = 0.0;
    }
}

} // namespace shardplan::sim
