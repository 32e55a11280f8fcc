#include "simulator/memory/profile.hpp"

#include <algorithm>

namespace shardplan::sim {

namespace {

const UnitPeak& higher(const UnitPeak& a, const UnitPeak& b) { return b.bytes > a.bytes ? b : a; }

std::size_t index(Held when) { return static_cast<std::size_t>(when); }
constexpr std::array<Held, 3> all_ways = {Held::without_recomputation, Held::between_passes,
                                          Held::rebuilt};

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

UnitWalk::UnitWalk(const TensorRules& rules, double held) {
    // Per-operator policies run the whole unit again; otherwise a dropped tensor is back only
    // during its own operator.
    const bool rebuilds_unit = rules.selective == SelectivePolicy::per_operator;
    forward_.transient = &Op::transient_forward;
    backward_.transient = &Op::transient_backward;
    backward_.peak.held = held;
    selective_forward_.running = Held::rebuilt;
    selective_forward_.before = Held::between_passes;
    selective_forward_.transient = &Op::transient_forward;
    selective_backward_.running = Held::rebuilt;
    selective_backward_.before = rebuilds_unit ? Held::rebuilt : Held::between_passes;
    selective_backward_.transient = &Op::transient_backward;
    selective_backward_.peak.held = held;
    again_.transient = &Op::transient_forward;
    again_.peak.held = held;
}

void UnitWalk::raise(Pass& pass, const Op& op, double bytes) {
    pass.peak.bytes = bytes;
    pass.peak.op = walked_;
    pass.peak.parts = stored_[index(pass.before)];
    add_kept(op, pass.running, pass.peak.parts);
    pass.peak.parts[TensorKind::temporaries] += Bytes(op.*pass.transient + pass.peak.held);
}

/// The backward pass meets the same instants as the forward pass from the other end, with the
/// gradient of the residual stream beside them.
void UnitWalk::along(const OpList& ops) {
    for (const Op& op : ops) {
        std::array<double, ways> kept{};
        for (const Held when : all_ways) {
            kept[index(when)] = kept_bytes(op, when);
        }
        for (Pass* pass :
             {&forward_, &backward_, &selective_forward_, &selective_backward_, &again_}) {
            const double bytes =
                pass->live + kept[index(pass->running)] + op.*pass->transient + pass->peak.held;
            if (bytes > pass->peak.bytes) {
                raise(*pass, op, bytes);
            }
            pass->live += kept[index(pass->before)];
        }
        for (const Held when : all_ways) {
            add_kept(op, when, stored_[index(when)]);
        }
        ++walked_;
    }
    if (ops.empty()) {
        return;
    }
    logits_ = 0.0;
    for (const StoredTensor& tensor : ops.back().stored) {
        logits_ += tensor.name == "logits" ? tensor.bytes : 0.0;
    }
}

UnitProfile UnitWalk::profile(Recompute recompute, double input_bytes) const {
    UnitProfile out;
    const bool selective = recompute == Recompute::selective;
    out.input_bytes = input_bytes;
    out.forward = selective ? selective_forward_.peak : forward_.peak;
    out.backward = selective ? selective_backward_.peak : backward_.peak;
    if (recompute == Recompute::full) {
        // The input is the only tensor that stays. The backward pass runs the forward again; the
        // output that gives is alive until the unit's backward pass ends.
        out.backward = higher(out.backward, again_.peak);
        out.backward.bytes += input_bytes;
        out.backward.parts[TensorKind::activations] += Bytes(input_bytes);
        out.stored[TensorKind::activations] = Bytes(input_bytes);
    } else {
        out.stored = stored_[index(selective ? Held::between_passes : Held::without_recomputation)];
    }
    out.stored_bytes = out.stored.total().value();
    out.logits = logits_;
    return out;
}

UnitProfile profile_unit(const OpList& ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held) {
    UnitWalk walk(rules, held);
    walk.along(ops);
    return walk.profile(recompute, input_bytes);
}

} // namespace shardplan::sim
