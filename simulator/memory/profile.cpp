#include "simulator/memory/profile.hpp"

#include <algorithm>

#include "simulator/schedule/pass_order.hpp"

namespace shardplan::sim {

namespace {

void raise(UnitPeak& peak, double bytes, const BytesByKind& parts, std::size_t op) {
    if (bytes > peak.bytes) {
        peak.bytes = bytes;
        peak.parts = parts;
        peak.op = static_cast<std::int32_t>(op);
    }
}

void add(BytesByKind& sum, const BytesByKind& other, double factor = 1.0) {
    for (std::size_t i = 0; i < tensor_kind_count; ++i) {
        sum.amounts[i] += factor * other.amounts[i];
    }
}

/// A peak that happens while `base` is alive too.
UnitPeak above(const BytesByKind& base, double base_bytes, const UnitPeak& peak) {
    UnitPeak out = peak;
    add(out.parts, base);
    out.bytes += base_bytes;
    return out;
}

const UnitPeak& higher(const UnitPeak& a, const UnitPeak& b) {
    return b.bytes > a.bytes ? b : a;
}

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
    peak.in_backward = true;
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
    case Keep::until_backward: return true;
    case Keep::dropped_by_selective: return when != Held::between_passes;
    case Keep::only_by_selective: return when != Held::without_recomputation;
    }
    return true;
}

UnitProfile profile_unit(OpList ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held) {
    UnitProfile out;
    const bool selective = recompute == Recompute::selective;
    // Per-operator policies run the whole unit again; otherwise a dropped tensor is back only during
    // its own operator.
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
        again.in_backward = true;
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
    out.ops = std::move(ops);
    return out;
}

ChunkProfile profile_chunk(const std::vector<UnitRun>& units) {
    ChunkProfile out;
    for (std::size_t i = 0; i < units.size(); ++i) {
        const UnitRun& run = units[i];
        if (run.count <= 0) {
            continue;
        }
        // The last of a row of equal units sees the most already stored.
        BytesByKind before = out.stored;
        add(before, run.unit->stored, static_cast<double>(run.count - 1));
        const double before_bytes =
            out.stored_bytes + static_cast<double>(run.count - 1) * run.unit->stored_bytes();
        UnitPeak forward = above(before, before_bytes, run.unit->forward);
        UnitPeak backward = above(before, before_bytes, run.unit->backward);
        forward.run = static_cast<std::int32_t>(i);
        backward.run = static_cast<std::int32_t>(i);
        if (run.head) {
            out.loss = higher(out.loss, higher(forward, backward));
        } else {
            out.forward = higher(out.forward, forward);
            out.backward = higher(out.backward, backward);
        }
        add(out.stored, run.unit->stored, static_cast<double>(run.count));
        out.stored_bytes += static_cast<double>(run.count) * run.unit->stored_bytes();
    }
    return out;
}

LiveSet replay(const std::vector<ChunkProfile>& chunks, ScheduleKind schedule, std::int64_t pp,
               std::int64_t stage, std::int64_t micro_batches) {
    LiveSet out;
    out.in_flight.assign(chunks.size(), 0);
    std::vector<std::int64_t> alive(chunks.size(), 0);
    const std::int64_t m = representative_micro_batches(schedule, pp, micro_batches);
    const auto consider = [&](UnitPeak& worst, std::vector<std::int64_t>& alive_then,
                              const UnitPeak& peak, std::size_t chunk) {
        BytesByKind base;
        double bytes = 0.0;
        for (std::size_t c = 0; c < chunks.size(); ++c) {
            add(base, chunks[c].stored, static_cast<double>(alive[c]));
            bytes += static_cast<double>(alive[c]) * chunks[c].stored_bytes;
        }
        if (peak.bytes > 0.0 && bytes + peak.bytes > worst.bytes) {
            worst = above(base, bytes, peak);
            worst.chunk = static_cast<std::int32_t>(chunk);
            alive_then = alive;
        }
    };
    for (const Pass& pass :
         pass_order(schedule, pp, stage, static_cast<std::int64_t>(chunks.size()), m)) {
        const auto c = static_cast<std::size_t>(pass.chunk);
        if (!pass.forward) {
            --alive[c];
        }
        if (pass.forward) {
            consider(out.forward, out.alive_at_forward, chunks[c].forward, c);
        } else {
            consider(out.backward, out.alive_at_backward, chunks[c].backward, c);
        }
        consider(out.loss, out.alive_at_loss, chunks[c].loss, c);
        if (pass.forward) {
            ++alive[c];
            out.in_flight[c] = std::max(out.in_flight[c], alive[c]);
        }
    }
    return out;
}

} // namespace shardplan::sim
