#include "simulator/estimate/unit_time.hpp"

#include <algorithm>

#include "simulator/estimate/collective_memo.hpp"

namespace shardplan::sim {

Paths paths_of(const Scenario& scenario, const Layout& layout) {
    Paths paths;
    for (std::size_t i = 0; i < group_count; ++i) {
        paths[i] = path_of(scenario, layout, static_cast<Group>(i));
    }
    return paths;
}

GroupPaths lend(const Paths& paths) {
    GroupPaths out{};
    for (std::size_t i = 0; i < group_count; ++i)
        out[i] = &paths[i];
    return out;
}

Overlap overlap_of(const StackProfile& stack) {
    Overlap o;
    if (has_feature(stack, Feature::no_overlap)) return o;
    const StackTime& t = stack.time;
    if (has_feature(stack, Feature::tp_comm_overlap) || has_feature(stack, Feature::async_tp)) {
        o.tp = t.tp_overlap.value;
    }
    o.cp = t.cp_overlap.value;
    o.pp = t.pp_overlap.value;
    if (has_feature(stack, Feature::dp_overlap)) o.dp = t.dp_overlap.value;
    o.gather = t.gather_overlap.value;
    o.slowdown = t.overlap_slowdown.value;
    return o;
}

namespace {

/// Communication of a pass by dimension, before anything is hidden.
struct PassComm {
    GroupTraffic tp, cp, ep;
    double calls = 0.0;
};

void add_comm(const CommOp& op, const GroupTraffic& traffic, PassComm& comm) {
    comm.calls += static_cast<double>(op.count);
    switch (op.group) {
        case Group::cp:
            comm.cp += traffic;
            break;
        case Group::ep:
        case Group::etp:
            comm.ep += traffic;
            break;
        case Group::tp:
        case Group::pp:
        case Group::dp:
        case Group::dp_cp:
        case Group::shard:
        case Group::replica:
        case Group::expert_dp:
            comm.tp += traffic;
            break;
    }
}

PassTime pass_time(const PassCost& cost, double kernels, const PassComm& comm,
                   const ComputeRates& rates, const Overlap& overlap, CpKind cp_kind) {
    PassTime t;
    t.gemm = cost.gemm;
    t.attention = cost.attention;
    t.elementwise = cost.elementwise;
    const Hiding tp = hide(comm.tp.seconds, overlap.tp, cost.gemm, overlap.slowdown);
    t.tp = tp.exposed;
    t.tp_hidden = tp.hidden;
    // only a ring has work to do while the next piece is on its way
    const double ring = cp_kind == CpKind::ring ? overlap.cp : 0.0;
    const Hiding cp = hide(comm.cp.seconds, ring, cost.attention, overlap.slowdown);
    t.cp = cp.exposed;
    t.cp_hidden = cp.hidden;
    t.ep = comm.ep.seconds;
    const double host = (kernels + comm.calls) * rates.launch;
    t.launch = std::max(0.0, host - (t.compute() + t.tp + t.cp + t.ep));
    return t;
}

GroupTraffic minus(GroupTraffic all, const GroupTraffic& part) {
    all += -1.0 * part;
    return all;
}

/// The forward pass once more, without what serves the output alone.
void set_full_recompute(const UnitWork& work, double scale, const PassComm& forward,
                        const PassComm& output, const ComputeRates& rates, const Overlap& overlap,
                        CpKind cp_kind, UnitTime& unit) {
    unit.full_recompute = unit.forward;
    unit.tp_again = forward.tp;
    unit.cp_again = forward.cp;
    unit.ep_again = forward.ep;
    if (work.output == PassCost{} && output.calls == 0.0) return;
    PassComm rest = forward;
    rest.tp = minus(forward.tp, output.tp);
    rest.cp = minus(forward.cp, output.cp);
    rest.ep = minus(forward.ep, output.ep);
    rest.calls -= output.calls;
    PassCost cost = work.forward;
    cost += -1.0 * work.output;
    unit.full_recompute = pass_time(cost, scale * cost.kernels, rest, rates, overlap, cp_kind);
    unit.tp_again = rest.tp;
    unit.cp_again = rest.cp;
    unit.ep_again = rest.ep;
}

} // namespace

void UnitWork::add(const OpList& ops, const ComputeRates& rates) {
    constexpr std::size_t usual = 8; // messages of one list
    messages.reserve(messages.size() + usual);
    for (const Op& op : ops) {
        const OpCost cost = op_cost(op, rates);
        forward += cost.forward;
        backward += cost.backward_input;
        backward += cost.backward_weight;
        backward_weight += cost.backward_weight.device();
        if (op.weights > 0.0) weight_tensors += 1.0;
        const bool repeats = op.selective_share > 0.0;
        // exchanged tokens are kept even where sorting them runs again
        const bool sends_again = repeats && op.kind != OpKind::dispatch;
        for (const CommOp& comm : op.comm_forward)
            messages.push_back({comm, false, sends_again, op.output});
        for (const CommOp& comm : op.comm_backward)
            messages.push_back({comm, true, false, op.output});
        for (const StoredTensor& tensor : op.stored)
            stored_bytes += tensor.bytes;
        if (repeats) again += op.selective_share * cost.forward;
        if (op.output) output += cost.forward;
    }
}

UnitTime unit_time(const UnitWork& work, const ComputeRates& rates, const Overlap& overlap,
                   const GroupPaths& paths, CollectiveMemo& collectives, CpKind cp_kind,
                   bool is_block) {
    const PassCost& forward = work.forward;
    const PassCost& backward = work.backward;
    const PassCost& again = work.again;
    PassComm comm_forward;
    PassComm comm_backward;
    PassComm comm_again;
    PassComm comm_output;
    for (const auto& [comm, in_backward, runs_again, output] : work.messages) {
        if (path_in(paths, comm.group).ranks <= 1) continue;
        const GroupTraffic traffic = static_cast<double>(comm.count) *
                                     collectives.price(paths, comm.group, comm.op, comm.bytes);
        add_comm(comm, traffic, in_backward ? comm_backward : comm_forward);
        if (runs_again) add_comm(comm, traffic, comm_again);
        if (output && !in_backward) add_comm(comm, traffic, comm_output);
    }
    UnitTime unit;
    unit.backward_weight = work.backward_weight;
    unit.stored_bytes = work.stored_bytes;
    unit.weight_tensors = work.weight_tensors;
    // The stack's own count covers what runs besides the operators: views, casts, copies.
    double scale = 1.0;
    if (is_block && forward.kernels > 0.0) {
        scale = std::max(1.0, rates.kernels_per_block / forward.kernels);
    }
    unit.forward =
        pass_time(forward, scale * forward.kernels, comm_forward, rates, overlap, cp_kind);
    unit.backward =
        pass_time(backward, scale * backward.kernels, comm_backward, rates, overlap, cp_kind);
    unit.selective_recompute =
        pass_time(again, scale * again.kernels, comm_again, rates, overlap, cp_kind);
    unit.tp_selective = comm_again.tp;
    unit.cp_selective = comm_again.cp;
    unit.ep_selective = comm_again.ep;
    unit.tp_forward = comm_forward.tp;
    unit.cp_forward = comm_forward.cp;
    unit.ep_forward = comm_forward.ep;
    set_full_recompute(work, scale, comm_forward, comm_output, rates, overlap, cp_kind, unit);
    unit.tp = comm_forward.tp;
    unit.tp += comm_backward.tp;
    unit.cp = comm_forward.cp;
    unit.cp += comm_backward.cp;
    unit.ep = comm_forward.ep;
    unit.ep += comm_backward.ep;
    return unit;
}

SharedHiding hide_beside(double seconds, double fraction, double share, const Exchanges& exchanges,
                         const HidingBudget& compute, double slowdown) {
    constexpr double half = 0.5;
    double own = share;
    double others = exchanges.share;
    if (own + others > 1.0) {
        const double others_wish = others;
        others = own <= half ? 1.0 - own : std::min(others, half);
        own = own <= half ? own : 1.0 - std::min(others_wish, half);
    }
    const double longer = others > 0.0 ? exchanges.share / others : 1.0;
    const double beside = exchanges.elsewhere + exchanges.shared * longer * own / share;
    const double window = compute.left() + beside;
    SharedHiding out;
    out.hiding = hide(seconds, fraction, window, 0.0);
    const double used = window > 0.0 ? out.hiding.hidden / window : 0.0;
    out.hiding.exposed += used * compute.left() * slowdown;
    out.slowed = used * exchanges.shared * (longer - 1.0);
    return out;
}

} // namespace shardplan::sim
