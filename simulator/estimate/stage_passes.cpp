#include "simulator/estimate/stage_passes.hpp"

#include <utility>

namespace shardplan::sim {

namespace {

/// The activations (or their gradient) of a stage's end, as every rank holds them.
double boundary_bytes(const StepContext& c, const Layout& layout) {
    const double tokens = static_cast<double>(layout.micro_batch) *
                          static_cast<double>(c.resolved->sequence) / layout.cp;
    return tokens * c.hidden * c.activation_element / (layout.sp ? layout.tp : 1);
}

/// Ranks of a tensor-parallel group that each send a part of the same boundary tensor.
double senders(const StepContext& c, const Layout& layout) {
    return c.scenario->stack.tensors.scattered_messages && !layout.sp ? layout.tp : 1.0;
}

} // namespace

double message_bytes(const StepContext& c, const Layout& layout) {
    return boundary_bytes(c, layout) / senders(c, layout);
}

PassTime recompute_of(const UnitUse& use, const UnitTime& unit, Recompute kind) {
    switch (kind) {
        case Recompute::none:
            return {};
        case Recompute::selective:
            return use.count * unit.selective_recompute;
        case Recompute::full:
            return use.recomputed * unit.full_recompute;
    }
    return {};
}

namespace {

/// Handing a boundary tensor to the neighbouring stage; parts are put together again there.
/// Source: Narayanan et al. 2021 (arXiv 2104.04473), section 4.1.
double message_seconds(const StepContext& c, const Layout& layout, const LayoutParts& parts) {
    const auto price = [&](Group group, Collective op, double bytes) {
        return parts.collectives.price(parts.paths, group, op, bytes).seconds;
    };
    constexpr double header = 64.0; // bytes: latency is all that counts
    double seconds = price(Group::pp, Collective::send_recv, message_bytes(c, layout)) +
                     static_cast<double>(c.scenario->stack.tensors.message_headers) *
                         price(Group::pp, Collective::send_recv, header);
    if (senders(c, layout) > 1.0) {
        seconds += price(Group::tp, Collective::all_gather, boundary_bytes(c, layout));
    }
    return seconds;
}

void set_chunk_passes(const StageShape& shape, Recompute recompute,
                      const std::vector<UnitTotals>& totals, StagePasses& s) {
    s.chunks.resize(shape.chunks.size());
    double all_forward = 0.0;
    double all_backward = 0.0;
    for (std::size_t i = 0; i < shape.chunks.size(); ++i) {
        double forward = 0.0;
        double backward = 0.0;
        double weight = 0.0;
        for (const UnitUse& use : shape.chunks[i]) {
            const UnitTotals& unit = totals[static_cast<std::size_t>(use.unit)];
            const double again = recompute == Recompute::full ? use.recomputed : use.count;
            forward += use.count * unit.forward;
            backward += use.count * unit.backward + again * unit.again;
            weight += use.count * unit.weight;
        }
        s.chunks[i] = {Seconds(forward), Seconds(backward), Seconds(weight)};
        all_forward += forward;
        all_backward += backward;
    }
    s.all_chunks = {Seconds(all_forward), Seconds(all_backward), Seconds{}};
}

/// `message`: seconds of one hand-over to a neighbour. `s`: overwritten, its memory is used again.
void set_stage_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                      const StageShape& shape, double message, Recompute recompute,
                      const std::vector<UnitTotals>& totals, StagePasses& s) {
    PassTime forward;
    PassTime backward;
    PassTime again;
    GroupTraffic ep;
    double weight = 0.0;
    for (const UnitUse& use : shape.units) {
        const UnitTime& unit = parts.units[static_cast<std::size_t>(use.unit)];
        forward += use.count * unit.forward;
        backward += use.count * unit.backward;
        weight += use.count * unit.backward_weight;
        again += recompute_of(use, unit, recompute);
        ep += use.count * unit.ep;
    }
    s.forward = forward;
    s.backward = backward;
    s.backward_weight = weight;
    s.recompute = again;
    s.ep = ep;
    set_chunk_passes(shape, recompute, totals, s);
    // Inside a layer tp and cp come first; what they leave serves messages, then data parallelism.
    s.under_forward = HidingBudget(s.forward.idle_links());
    s.under_backward = HidingBudget(s.backward.idle_links() + s.recompute.idle_links());
    if (layout.pp > 1) {
        s.message = message * visits_of(layout.schedule, layout.chunks);
        s.message_forward = s.under_forward.hide(s.message, c.overlap.pp, c.overlap.slowdown);
        s.message_backward = s.under_backward.hide(s.message, c.overlap.pp, c.overlap.slowdown);
    } else {
        s.message = 0.0;
        s.message_forward = s.message_backward = {};
    }
}

/// Of every unit, where chunks ask for them.
void set_unit_totals(const LayoutParts& parts, const StageShape& shape, Recompute recompute,
                     std::vector<UnitTotals>& totals) {
    totals.clear();
    if (shape.chunks.empty()) return;
    for (std::size_t i = 0; i < parts.units.size(); ++i) {
        const UnitTime& unit = parts.units[i];
        const double again = recompute == Recompute::full        ? unit.forward.total()
                             : recompute == Recompute::selective ? unit.selective_recompute.total()
                                                                 : 0.0;
        totals.push_back(
            {unit.forward.total(), unit.backward.total(), unit.backward_weight, again});
    }
}

} // namespace

void set_run_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                    const std::vector<ShapeRun>& runs, Recompute recompute,
                    std::vector<UnitTotals>& totals, RunPasses& made) {
    const double message = layout.pp > 1 ? message_seconds(c, layout, parts) : 0.0;
    made.resize(runs.size());
    set_unit_totals(parts, runs.front().shape, recompute, totals);
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].same_as == i) {
            set_stage_passes(c, layout, parts, runs[i].shape, message, recompute, totals, made[i]);
        }
    }
}

void add_chunk_passes(const StagePasses& own, const StagePass& pass, double visits,
                      std::vector<ChunkPass>& chunks) {
    const double each = 1.0 / visits;
    // a micro-batch comes to all chunks, or to one of two
    const double come = visits / static_cast<double>(own.chunks.size());
    const Seconds backward = pass.backward_input + pass.backward_weight;
    const Seconds more_forward = each * (pass.forward - come * own.all_chunks.forward);
    const Seconds more_backward = each * (backward - come * own.all_chunks.backward);
    for (const ChunkPass& chunk : own.chunks) {
        chunks.push_back(
            {chunk.forward + more_forward, chunk.backward + more_backward, chunk.weight});
    }
}

PassLengths pass_lengths(const std::vector<ShapeRun>& runs, const RunPasses& own) {
    const auto total = [&](const StagePasses& s) {
        return s.forward.total() + s.backward.total() + s.recompute.total();
    };
    std::size_t most = 0;
    for (std::size_t i = 1; i < runs.size(); ++i) {
        if (runs[i].same_as == i && total(own[i]) > total(own[most])) most = i;
    }
    const StagePasses& s = own[most];
    const double backward = s.backward.total() + s.recompute.total() - s.backward_weight;
    return lengths_of(s.forward.total(), backward, s.backward_weight);
}

} // namespace shardplan::sim
