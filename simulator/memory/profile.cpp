#include "simulator/memory/profile.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

const UnitPeak& higher(const UnitPeak& a, const UnitPeak& b) { return b.bytes > a.bytes ? b : a; }

/// Bytes an operator keeps at a certain time.
double kept_bytes(const Op& op, Held when) {
    double sum = 0.0;
    for (const StoredTensor& tensor : op.stored) {
        sum += is_held(tensor, when) ? tensor.bytes : 0.0;
    }
    return sum;
}

void add_kept(const Op& op, Held when, BytesByKind& parts) {
    for (const StoredTensor& tensor : op.stored) {
        if (is_held(tensor, when)) {
            parts[tensor.kind] += Bytes(tensor.bytes);
        }
    }
}

/// How tensors of the operator that runs, and of those before it, are held.
struct Walk {
    Held running = Held::without_recomputation;
    Held before = Held::without_recomputation;
};

/// Walks along the operators: what is stored up to each, and what it needs for itself
/// (`transient`). The backward pass meets the same instants from the other end, with the gradient
/// of the residual stream (`held`) beside them.
UnitPeak walk_along(const OpList& ops, Walk walk, double Op::*transient, double held) {
    UnitPeak peak;
    peak.held = held;
    double live = 0.0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const double before = kept_bytes(ops[i], walk.before);
        const double running =
            walk.running == walk.before ? before : kept_bytes(ops[i], walk.running);
        const double bytes = live + running + ops[i].*transient + held;
        if (bytes > peak.bytes) {
            peak.bytes = bytes;
            peak.op = static_cast<std::int32_t>(i);
        }
        live += before;
    }
    for (std::int32_t i = 0; i <= peak.op; ++i) {
        add_kept(ops[static_cast<std::size_t>(i)], i == peak.op ? walk.running : walk.before,
                 peak.parts);
    }
    if (peak.op >= 0) {
        peak.parts[TensorKind::temporaries] +=
            Bytes(ops[static_cast<std::size_t>(peak.op)].*transient + held);
    }
    return peak;
}

} // namespace

bool is_held(const StoredTensor& tensor, Held when) {
    switch (tensor.keep) {
        case Keep::until_backward:
            return true;
        case Keep::dropped_by_selective:
            return when != Held::between_passes;
        case Keep::only_by_selective:
            return when != Held::without_recomputation;
    }
    return true;
}

UnitProfile profile_unit(const OpList& ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held) {
    UnitProfile out;
    const bool selective = recompute == Recompute::selective;
    // Per-operator policies run the whole unit again; otherwise a dropped tensor is back only
    // during its own operator.
    const bool rebuilds_unit = selective && rules.selective == SelectivePolicy::per_operator;
    out.input_bytes = input_bytes;
    const Held whole = selective ? Held::rebuilt : Held::without_recomputation;
    const Held between = selective ? Held::between_passes : Held::without_recomputation;
    out.forward = walk_along(ops, {whole, between}, &Op::transient_forward, 0.0);
    out.backward =
        walk_along(ops, {whole, rebuilds_unit ? whole : between}, &Op::transient_backward, held);
    if (recompute == Recompute::full) {
        // The input is the only tensor that stays. The backward pass runs the forward again; the
        // output that gives is alive until the unit's backward pass ends.
        const UnitPeak again = walk_along(ops, {}, &Op::transient_forward, held);
        out.backward = higher(out.backward, again);
        out.backward.bytes += input_bytes;
        out.backward.parts[TensorKind::activations] += Bytes(input_bytes);
        out.stored[TensorKind::activations] = Bytes(input_bytes);
    } else {
        for (const Op& op : ops) {
            add_kept(op, between, out.stored);
        }
    }
    out.stored_bytes = out.stored.total().value();
    for (const StoredTensor& tensor : ops.back().stored) {
        out.logits += tensor.name == "logits" ? tensor.bytes : 0.0;
    }
    return out;
}

} // namespace shardplan::sim
