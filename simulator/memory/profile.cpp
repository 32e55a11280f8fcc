#include "simulator/memory/profile.hpp"

#include <algorithm>
#include <limits>

#include "simulator/schedule/pipeline_order.hpp"

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

UnitWalk::UnitWalk(const TensorRules& rules, double held, bool splits)
    : without_output_(rules.recompute_without_output), splits_(splits) {
    // Per-operator policies run the whole unit again; otherwise a dropped tensor is back only
    // during its own operator.
    const bool rebuilds_unit = rules.selective == SelectivePolicy::per_operator;
    forward_.transient = &Op::transient_forward;
    backward_.transient = &Op::transient_backward;
    backward_.peak.held = held;
    selective_forward_.running = Held::rebuilt;
    selective_forward_.before = Held::between_passes;
    selective_forward_.transient = &Op::transient_forward;
    selective_forward_.selective = true;
    selective_backward_.running = Held::rebuilt;
    selective_backward_.before = rebuilds_unit ? Held::rebuilt : Held::between_passes;
    selective_backward_.transient = &Op::transient_backward;
    selective_backward_.selective = true;
    selective_backward_.peak.held = held;
    again_.transient = &Op::transient_forward;
    again_.peak.held = held;
    again_.peak.again = true;
    input_ = backward_;
    selective_input_ = selective_backward_;
    for (Pass* pass : {&input_, &selective_input_}) {
        pass->transient = &Op::transient_input;
        pass->peak.bytes = std::numeric_limits<double>::lowest();
    }
}

void UnitWalk::raise(Pass& pass, const Op& op, double bytes) {
    pass.peak.bytes = bytes;
    pass.peak.op = walked_;
    pass.peak.parts = stored_[index(pass.before)];
    add_kept(op, pass.running, pass.peak.parts);
    if (pass.selective) pass.peak.parts[TensorKind::activations] += Bytes(op.dropped_before);
    const bool omitted = &pass == &again_ && without_output_ && op.output;
    const double transient = omitted ? 0.0 : op.*pass.transient;
    pass.peak.parts[TensorKind::temporaries] += Bytes(transient + pass.peak.held);
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
            const bool omitted = pass == &again_ && without_output_ && op.output;
            const double bytes = pass->live + kept[index(pass->running)] +
                                 (omitted ? 0.0 : op.*pass->transient) +
                                 (pass->selective ? op.dropped_before : 0.0) + pass->peak.held;
            if (bytes > pass->peak.bytes) {
                raise(*pass, op, bytes);
            }
            pass->live += kept[index(pass->before)];
        }
        if (splits_) along_split(op, kept);
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

void UnitWalk::along_split(const Op& op, const std::array<double, ways>& kept) {
    double own = op.waiting;
    waiting_[TensorKind::temporaries] += Bytes(op.waiting);
    for (const StoredTensor& tensor : op.stored) {
        if (!tensor.for_weights) continue;
        own += tensor.bytes;
        waiting_[tensor.kind] += Bytes(tensor.bytes);
    }
    waiting_bytes_ += own;
    for (Pass* pass : {&input_, &selective_input_}) {
        const double bytes = pass->live + kept[index(pass->running)] + op.transient_input +
                             (pass->selective ? op.dropped_before : 0.0) + pass->peak.held -
                             waiting_bytes_;
        if (bytes > pass->peak.bytes) {
            raise(*pass, op, bytes);
            for (std::size_t k = 0; k < tensor_kind_count; ++k)
                pass->peak.parts.amounts[k] -= waiting_.amounts[k];
        }
        pass->live += kept[index(pass->before)];
    }
    if (op.kind == OpKind::norm) {
        normed_ = input_.peak;
        selective_normed_ = selective_input_.peak;
    }
    // gradients of weights are made up for from the last operator on, each letting go of its own
    if (own > 0.0 && waiting_bytes_ + op.transient_weight > weight_.bytes) {
        weight_.bytes = waiting_bytes_ + op.transient_weight;
        weight_.op = walked_;
        weight_.parts = waiting_;
        weight_.parts[TensorKind::temporaries] += Bytes(op.transient_weight);
    }
}

UnitProfile UnitWalk::profile(Recompute recompute, double input_bytes) const {
    UnitProfile out;
    const bool selective = recompute == Recompute::selective;
    out.input_bytes = input_bytes;
    out.forward = selective ? selective_forward_.peak : forward_.peak;
    out.backward = selective ? selective_backward_.peak : backward_.peak;
    const UnitPeak& again = again_.peak;
    if (splits_) finish_split(recompute, out);
    if (recompute == Recompute::full) {
        // The input is the only tensor that stays. The backward pass runs the forward again; the
        // output that gives, if it does, is alive until the unit's backward pass ends.
        for (UnitPeak* pass : {&out.backward, &out.input}) {
            *pass = higher(*pass, again);
            if (without_output_) continue;
            pass->bytes += input_bytes;
            pass->parts[TensorKind::activations] += Bytes(input_bytes);
        }
        out.stored[TensorKind::activations] = Bytes(input_bytes);
    } else {
        out.stored = stored_[index(selective ? Held::between_passes : Held::without_recomputation)];
    }
    out.stored_bytes = out.stored.total().value();
    out.logits = logits_;
    return out;
}

void UnitWalk::finish_split(Recompute recompute, UnitProfile& out) const {
    if (walked_ == 0) return;
    out.input = recompute == Recompute::selective ? selective_input_.peak : input_.peak;
    out.normed = recompute == Recompute::selective ? selective_normed_ : normed_;
    for (UnitPeak* pass : {&out.input, &out.normed}) {
        if (pass->op < 0) continue;
        pass->bytes += waiting_bytes_;
        for (std::size_t k = 0; k < tensor_kind_count; ++k)
            pass->parts.amounts[k] += waiting_.amounts[k];
    }
    out.weight = weight_;
    out.waiting = waiting_;
    out.waiting_bytes = waiting_bytes_;
}

bool splits_passes(const StackProfile& stack) {
    const auto& known = stack.capabilities.schedules;
    return std::any_of(known.begin(), known.end(), splits_backward);
}

UnitProfile profile_unit(const OpList& ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held) {
    UnitWalk walk(rules, held, true);
    walk.along(ops);
    return walk.profile(recompute, input_bytes);
}

} // namespace shardplan::sim
