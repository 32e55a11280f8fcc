#include "simulator/memory/profile.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

void raise(UnitPeak& peak, double bytes, const BytesByKind& parts, std::size_t op) {
    if (bytes > peak.bytes) {
        peak.bytes = bytes;
        peak.parts = parts;
        peak.op = static_cast<std::int32_t>(op);
    }
}

const UnitPeak& higher(const UnitPeak& a, const UnitPeak& b) { return b.bytes > a.bytes ? b : a; }

/// Bytes an operator keeps at a certain time.
double kept_bytes(const Op& op, Held when, BytesByKind& parts) {
    double sum = 0.0;
    for (const StoredTensor& tensor : op.stored) {
        if (is_held(tensor, when)) {
            parts[tensor.kind] += Bytes(tensor.bytes);
            sum += tensor.bytes;
        }
    }
    return sum;
}

/// How tensors of the operator that runs, and of those before it, are held.
struct Walk {
    Held running = Held::without_recomputation;
    Held before = Held::without_recomputation;
};

/// Forward walk: stored so far plus what the operator needs for itself.
UnitPeak walk_forward(const OpList& ops, Walk walk) {
    UnitPeak peak;
    BytesByKind live;
    double live_bytes = 0.0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        BytesByKind while_running = live;
        const double running_bytes = live_bytes + kept_bytes(ops[i], walk.running, while_running);
        while_running[TensorKind::temporaries] += Bytes(ops[i].transient_forward);
        raise(peak, running_bytes + ops[i].transient_forward, while_running, i);
        live_bytes += kept_bytes(ops[i], walk.before, live);
    }
    return peak;
}

/// Backward walk from the last operator: what is stored up to it, what it needs, and the gradient
/// of the residual stream.
UnitPeak walk_backward(const OpList& ops, Walk walk, double held) {
    UnitPeak peak;
    peak.held = held;
    BytesByKind live;
    double live_bytes = 0.0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        BytesByKind while_running = live;
        const double bytes = live_bytes + kept_bytes(ops[i], walk.running, while_running) +
                             ops[i].transient_backward + held;
        while_running[TensorKind::temporaries] += Bytes(ops[i].transient_backward + held);
        raise(peak, bytes, while_running, i);
        live_bytes += kept_bytes(ops[i], walk.before, live);
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
    out.forward = walk_forward(ops, {whole, between});
    out.backward = walk_backward(ops, {whole, rebuilds_unit ? whole : between}, held);
    if (recompute == Recompute::full) {
        // The input is the only tensor that stays. The backward pass runs the forward again; the
        // output that gives is alive until the unit's backward pass ends.
        UnitPeak again = walk_forward(ops, {});
        again.held = held;
        again.bytes += held;
        again.parts[TensorKind::temporaries] += Bytes(held);
        out.backward = higher(out.backward, again);
        out.backward.bytes += input_bytes;
        out.backward.parts[TensorKind::activations] += Bytes(input_bytes);
        out.stored[TensorKind::activations] = Bytes(input_bytes);
    } else {
        for (const Op& op : ops) {
            kept_bytes(op, between, out.stored);
        }
    }
    out.stored_bytes = out.stored.total().value();
    return out;
}

} // namespace shardplan::sim
