#include "simulator/estimate/data_parallel.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/memory/states.hpp"
#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::sim {

RankParameters parameters_of(const LayoutParts& parts, const StageShape& shape) {
    RankParameters sum;
    for (const UnitUse& use : shape.units) {
        sum += use.count * parts.parameters[static_cast<std::size_t>(use.unit)];
    }
    return sum;
}

namespace {

/// What a rank of a stage holds, all copies of it.
RankParameters held_parameters(const Layout& layout, const LayoutParts& parts,
                               const StageShape& shape) {
    return (is_mirrored(layout) ? 2.0 : 1.0) * parameters_of(parts, shape);
}

/// Ranks over which a kind of sharding splits the states.
ShardDegrees state_split(const Layout& layout) {
    return layout.shard == Shard::none ? ShardDegrees{} : shard_degrees(layout);
}

double fraction(std::uint16_t thousandths) {
    return static_cast<double>(thousandths) / static_cast<double>(offload_scale);
}

/// `bytes` in `calls` equal collectives.
GroupTraffic in_calls(const LayoutParts& parts, Group group, Collective op, double bytes,
                      double calls) {
    return calls * parts.collectives.price(parts.paths, group, op, bytes / calls);
}

/// Blocks that one gathered unit wraps.
double blocks_per_unit(WrapUnit wrap, double blocks) {
    const auto wrapped = static_cast<double>(wrapped_units(wrap));
    return wrapped > 0.0 ? wrapped : std::max(1.0, blocks);
}

/// Buckets that gradients of `parameters` fill.
double bucket_count(const StepContext& c, double parameters) {
    // where buckets are copies in the parameters' format, that is what their size counts
    const double element =
        c.scenario->stack.states.bucket_copy ? c.parameter_element : c.gradient_element;
    const double bytes = parameters * element;
    const double bucket = c.scenario->stack.memory.bucket_bytes.value;
    return bucket > 0.0 ? std::max(1.0, std::ceil(bytes / bucket)) : 1.0;
}

/// Dense parameters over the ranks that share them, experts over those that hold the same ones.
struct Movement {
    const StepContext& c;
    const LayoutParts& parts;
    const RankParameters& p;

    [[nodiscard]] GroupTraffic dense(Group group, Collective op, double element, double calls,
                                     double split = 1.0) const {
        return in_calls(parts, group, op, p.dense * element / split, calls);
    }
    [[nodiscard]] GroupTraffic expert(Collective op, double element, double calls) const {
        return in_calls(parts, Group::expert_dp, op, p.expert * element, calls);
    }
    /// Frozen base weights are gathered in the format they are stored in.
    [[nodiscard]] GroupTraffic gather(double calls) const {
        const bool quantized = c.resolved->method.kind == MethodKind::qlora;
        const double packed = quantized ? p.frozen_matrix : 0.0;
        const double frozen =
            packed * bytes_per_element(Dtype::nf4) + (p.frozen - packed) * c.parameter_element;
        GroupTraffic t = in_calls(parts, Group::shard, Collective::all_gather,
                                  p.dense * c.parameter_element + frozen, calls);
        t += expert(Collective::all_gather, c.parameter_element, calls);
        return t;
    }
};

/// Seconds in which the parameters of gathered units are copied into tensors of their own, or
/// gradients in the activations' format into the buffer that is reduced. On the stream of compute.
/// Source: PyTorch, torch/distributed/fsdp/_fully_shard (split_with_sizes_copy, chunk_cat).
double copy_seconds(const StepContext& c, const RankParameters& p, double from, double to) {
    const bool copies = c.scenario->stack.states.unit_copies && c.rates.memory_rate > 0.0;
    return copies ? (p.dense + p.expert) * (from + to) / c.rates.memory_rate : 0.0;
}

/// Share of the stage's gradients that are final before the backward pass ends.
double ready_share(const StepContext& c, const LayoutParts& parts, const StageShape& shape,
                   const RankParameters& p) {
    const std::size_t table = c.scenario->model.block_kinds.size();
    return shape.has_embedding && p.trained() > 0.0
               ? 1.0 - parts.parameters[table].trained() / p.trained()
               : 1.0;
}

/// Seconds in which gradients are copied into buckets of their own, and back.
double bucket_seconds(const StepContext& c, const RankParameters& p) {
    const bool copies = c.scenario->stack.states.bucket_copy && c.rates.memory_rate > 0.0;
    return copies ? p.trained() * 4.0 * c.parameter_element / c.rates.memory_rate : 0.0;
}

/// Gradients summed whole and in one piece after the backward pass, though every rank updates only
/// its shard; then each tensor's shards are gathered and copied to their places by the host.
/// Source: nanotron, optim/zero.py (_all_gather_params) and trainer.py (training_step).
void reduce_whole_after(const StepContext& c, const LayoutParts& parts, const StageShape& shape,
                        const Movement& move, DataParallelMoves& out) {
    GroupTraffic all = move.dense(Group::dp_cp, Collective::all_reduce, c.gradient_element, 1.0);
    all += move.expert(Collective::all_reduce, c.gradient_element, 1.0);
    all += move.dense(Group::shard, Collective::all_gather, c.parameter_element, 1.0);
    all += move.expert(Collective::all_gather, c.parameter_element, 1.0);
    double tensors = 0.0;
    for (const UnitUse& use : shape.units) {
        tensors += use.count * parts.units[static_cast<std::size_t>(use.unit)].weight_tensors;
    }
    const auto ranks = static_cast<double>(path_in(parts.paths, Group::shard).ranks);
    const double slices = ranks > 1.0 ? tensors * ranks : 0.0;
    out.after = true;
    out.reduce = all;
    out.slices = slices * value_or(c.scenario->stack.time.slice_host, 0.0);
}

/// The copies of a tied table on the first and last stage are added up once per step, and so are
/// the gradients of stages that hold the same.
GroupTraffic over_stages(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape, const RankParameters& held) {
    if (is_mirrored(layout)) {
        const ShardDegrees split = state_split(layout);
        const double pieces = held.dense / split.dense + held.expert / split.expert;
        return in_calls(parts, Group::pp, Collective::send_recv, pieces * c.gradient_element, 1.0);
    }
    const bool tied = c.scenario->model.embedding.tied && !has_both_ends(layout);
    if (!tied || !(shape.has_embedding || shape.has_head)) return {};
    const std::size_t head = c.scenario->model.block_kinds.size() + 1;
    // where pieces are reduced first, every rank adds up its own
    const bool pieces = c.scenario->stack.states.whole_pieces;
    const double split = pieces ? state_split(layout).dense : 1.0;
    return in_calls(parts, Group::pp, Collective::send_recv,
                    parts.parameters[head].trained() * c.gradient_element / split, 1.0);
}

} // namespace

namespace {

/// How often a forward pass is followed by a backward pass through the same units: on the last
/// stage of a pipeline, or the first, where that is rarest. Chunks turn round in others.
double turns_of(const Layout& layout, bool last, double micro_batches) {
    if (layout.chunks > 1 && layout.pp > 1) return 0.0;
    const double ahead = last ? 0.0 : static_cast<double>(layout.pp) - 1.0; // passes before
    switch (layout.schedule) {
        case ScheduleKind::gpipe:
            return layout.pp > 1 ? 1.0 : micro_batches;
        case ScheduleKind::zb_h2:
            return std::max(1.0, micro_batches - 2.0 * ahead);
        default:
            return std::max(1.0, micro_batches - ahead);
    }
}

/// What lies at either end of a stage's units, as far as it is gathered ahead: at distance 1, 3,
/// ... of the turn a unit is asked for again before it is let go.
void set_kept(const StepContext& c, const Layout& layout, const LayoutParts& parts,
              const StageShape& shape, DataParallelMoves& out) {
    out.last = shape.has_head;
    if (!c.scenario->stack.states.reuses_gathered || layout.prefetch == 0) return;
    const auto kinds = static_cast<std::int64_t>(c.scenario->model.block_kinds.size());
    double table = 0.0;
    double blocks = 0.0;
    double head = 0.0;
    const double experts = path_in(parts.paths, Group::expert_dp).ranks > 1 ? 1.0 : 0.0;
    for (const UnitUse& use : shape.units) {
        const RankParameters& p = parts.parameters[static_cast<std::size_t>(use.unit)];
        const double held = use.count * (p.dense + experts * p.expert);
        (use.unit < kinds ? blocks : use.unit == kinds ? table : head) += held;
    }
    const double all = table + blocks + head;
    const double ends = (shape.has_embedding ? 1.0 : 0.0) + (shape.has_head ? 1.0 : 0.0);
    const double units = shape.blocks + ends;
    if (all <= 0.0) return;
    const auto wrapped = static_cast<double>(wrapped_units(layout.wrap));
    const double group = wrapped > 0.0 ? wrapped : units;
    const double groups = std::ceil(units / group);
    const double kept = std::min(groups, std::floor((layout.prefetch + 2.0) / 2.0));
    const double block = shape.blocks > 0.0 ? blocks / shape.blocks : 0.0;
    const auto share = [&](double from_end, bool has_end, double end, double other) {
        const double inside = std::min(shape.blocks, from_end - (has_end ? 1.0 : 0.0));
        return (inside * block + end + (from_end >= units ? other : 0.0)) / all;
    };
    out.kept_backward = share(units - (groups - kept) * group, shape.has_head, head, table);
    const double first = std::min(units, kept * group);
    // the head reads a tied table too: if that is gone by then it is gathered once more, else the
    // unit it belongs to stays
    const bool reads = c.scenario->model.embedding.tied && shape.has_head && shape.has_embedding;
    const bool gone = reads && layout.reshard && groups > layout.prefetch + 1.0;
    out.kept_forward = share(first, shape.has_embedding, gone ? 0.0 : table, head);
    if (reads && !gone) {
        out.kept_backward += share(std::min(units, group), shape.has_embedding, table, head);
        out.kept_backward = std::min(1.0, out.kept_backward);
    }
}

/// Links of the widest tier that reduction crosses, as the engine's `add_links` gives them to it.
SharedLinks shared_links(const LayoutParts& parts, const DataParallelMoves& moves) {
    SharedLinks out;
    const GroupPath& own = path_in(parts.paths, Group::dp_cp);
    if (own.ranks <= 1 || own.levels.empty()) return out;
    const PathLevel& tier = own.levels.back();
    out.capacity = tier.per_rank.value();
    const GroupPath& experts = path_in(parts.paths, Group::ep);
    out.ep =
        experts.ranks > 1 && !experts.levels.empty() && experts.levels.back().name == tier.name;
    if (out.ep) out.capacity = std::max(out.capacity, experts.levels.back().per_rank.value());
    const auto share = [&](const GroupTraffic& traffic) {
        const double asked = traffic.seconds * out.capacity;
        return asked > 0.0 && traffic.bytes > 0.0 ? std::min(1.0, traffic.bytes / asked) : 1.0;
    };
    out.reduce = share(moves.reduce);
    out.gather = share(moves.gather);
    return out;
}

} // namespace

DataParallelMoves data_parallel_moves(const StepContext& c, const Layout& layout,
                                      const LayoutParts& parts, const StageShape& shape) {
    // a micro-batch passes through one of the copies that mirrored stages hold
    const RankParameters p = parameters_of(parts, shape);
    const RankParameters held = held_parameters(layout, parts, shape);
    const Movement move{c, parts, p};
    const Movement once{c, parts, held};
    const double g = c.gradient_element;
    const double buckets = bucket_count(c, p.trained());
    DataParallelMoves out;
    out.ready = ready_share(c, parts, shape, p);
    // Hybrid sharding: pieces are added up over the groups that hold copies.
    const double split = static_cast<double>(path_in(parts.paths, Group::shard).ranks);
    if (layout.shard != Shard::none) {
        out.replicate = once.dense(Group::replica, Collective::all_reduce, g, buckets, split);
    }
    const bool fsdp =
        c.scenario->stack.capabilities.fully_sharded && layout.shard == Shard::optimizer_gradients;
    out.by_unit = layout.shard == Shard::all || fsdp;
    if (out.by_unit) {
        const double units =
            std::max(1.0, std::ceil(shape.blocks / blocks_per_unit(layout.wrap, shape.blocks)) +
                              (shape.has_embedding || shape.has_head ? 1.0 : 0.0));
        out.gather = move.gather(units);
        out.reduce = move.dense(Group::shard, Collective::reduce_scatter, g, units);
        out.reduce += move.expert(Collective::reduce_scatter, g, units);
        if (path_in(parts.paths, Group::shard).ranks > 1) {
            out.unpack = copy_seconds(c, p, c.parameter_element, c.parameter_element);
            out.pack_gradient = copy_seconds(c, p, c.parameter_element, g);
        }
    } else if (layout.shard == Shard::optimizer && c.scenario->stack.states.reduces_whole_after) {
        reduce_whole_after(c, parts, shape, once, out);
    } else {
        const bool sharded = layout.shard != Shard::none;
        const Collective op = sharded ? Collective::reduce_scatter : Collective::all_reduce;
        const Movement& reduced = layout.shard == Shard::optimizer_gradients ? move : once;
        out.reduce = reduced.dense(sharded ? Group::shard : Group::dp_cp, op, g, buckets);
        out.reduce += reduced.expert(op, g, buckets);
        if (sharded) {
            out.gather =
                once.dense(Group::shard, Collective::all_gather, c.parameter_element, buckets);
            out.gather += once.expert(Collective::all_gather, c.parameter_element, buckets);
        }
        if (out.reduce.seconds > 0.0) out.buckets = bucket_seconds(c, p);
    }
    if (out.by_unit) set_kept(c, layout, parts, shape, out);
    out.tied = over_stages(c, layout, parts, shape, held);
    out.links = shared_links(parts, out);
    return out;
}

DataParallelTime data_parallel_time(const StepContext& c, const Layout& layout,
                                    const DataParallelMoves& move, std::int64_t micro_batches,
                                    HidingBudget& forward, HidingBudget& backward) {
    const Overlap& o = c.overlap;
    const auto m = static_cast<double>(micro_batches);
    DataParallelTime out;
    if (move.by_unit) {
        const bool again = layout.shard == Shard::all && layout.reshard;
        const double turns = turns_of(layout, move.last, m);
        const double gathers_forward = 1.0 - move.kept_forward * std::max(0.0, turns - 1.0) / m;
        const double gathers_backward = again ? 1.0 - move.kept_backward * turns / m : 0.0;
        out.forward = forward.hide(gathers_forward * move.gather.seconds, o.gather, o.slowdown);
        const double in_backward = gathers_backward * move.gather.seconds;
        const double ready = std::min(o.dp, move.ready);
        const double hidden = in_backward * o.gather + move.reduce.seconds * ready;
        const double all = in_backward + move.reduce.seconds;
        out.backward = backward.hide(all, all > 0.0 ? hidden / all : 0.0, o.slowdown);
        out.forward.exposed += move.unpack;
        out.backward.exposed += (again ? move.unpack : 0.0) + move.pack_gradient;
        out.step = {move.replicate.seconds, 0.0};
        out.traffic = m * ((gathers_forward + gathers_backward) * move.gather);
        out.traffic += m * move.reduce;
        out.traffic += move.replicate;
    } else if (move.after) {
        out.step.exposed = move.reduce.seconds + move.slices;
        out.traffic = move.reduce;
    } else {
        // zero2 keeps no whole gradients, so every micro-batch is reduced
        const double times = layout.shard == Shard::optimizer_gradients ? m : 1.0;
        out.reductions = times;
        out.reduce = move.reduce.seconds;
        out.hideable = move.ready;
        out.gather = move.gather.seconds;
        out.step.exposed = move.replicate.seconds + move.buckets;
        out.traffic = times * move.reduce;
        out.traffic += move.replicate;
        out.traffic += move.gather;
    }
    out.step.exposed += move.tied.seconds;
    return out;
}

Exchanges exchanges_of(const PassTime& pass, const PassTime& recompute, const GroupTraffic& ep,
                       const SharedLinks& links) {
    Exchanges out;
    (links.ep ? out.shared : out.elsewhere) = pass.ep + recompute.ep;
    // short messages leave room on the link
    if (links.ep && ep.seconds > 0.0 && links.capacity > 0.0) {
        out.share = std::min(1.0, ep.bytes / ep.seconds / links.capacity);
    }
    return out;
}

void hide_step(const StepContext& c, const SharedLinks& links, const HidingBudget& forward,
               const HidingBudget& backward, const Exchanges& in_forward,
               const Exchanges& in_backward, DataParallelTime& dp) {
    const Overlap& o = c.overlap;
    // Under accumulation only the last backward pass has final gradients to hide.
    const SharedHiding reduce = hide_beside(dp.reduce, std::min(o.dp, dp.hideable), links.reduce,
                                            in_backward, backward, o.slowdown);
    const SharedHiding gather =
        hide_beside(dp.gather, o.gather, links.gather, in_forward, forward, o.slowdown);
    dp.step.exposed += dp.reductions * reduce.hiding.exposed + gather.hiding.exposed;
    dp.step.hidden += dp.reductions * reduce.hiding.hidden + gather.hiding.hidden;
    dp.slowed_backward = reduce.slowed;
    dp.slowed_forward = gather.slowed;
}

namespace {

/// Bytes of states an update reads and writes per parameter: gradient in, master weight and moments
/// in and out, compute copy out.
double update_bytes(const StepContext& c) {
    const Resolved& r = *c.resolved;
    const double master = bytes_per_element(r.master);
    const bool copies = r.master != r.parameter;
    return c.gradient_element + 2.0 * master + 2.0 * moment_bytes(r) +
           (copies ? c.parameter_element : 0.0);
}

double updated_parameters(const RankParameters& p, const ShardDegrees& split) {
    return p.dense / split.dense + p.expert / split.expert;
}

} // namespace

double optimizer_seconds(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape) {
    if (c.rates.update_rate <= 0.0) return 0.0;
    const RankParameters p = held_parameters(layout, parts, shape);
    const bool keeps_all = layout.shard < Shard::optimizer_gradients;
    const double own = updated_parameters(p, state_split(layout));
    const double accumulated = keeps_all ? p.trained() : own;
    const double g = c.gradient_element;
    // accumulated gradients are zeroed and scaled; the rank's part is read for the norm and clipped
    // (in one pass: zeroed, and read for the norm)
    const double passes = c.scenario->stack.states.one_pass_update ? 1.0 : 3.0;
    const double bytes = accumulated * passes * g + own * passes * g +
                         own * (1.0 - fraction(layout.offload_optimizer)) * update_bytes(c);
    return bytes / c.rates.update_rate;
}

OffloadFixed offload_fixed(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                           const StageShape& shape) {
    OffloadFixed out;
    if (layout.offload_tier == OffloadTier::none || c.host_link <= 0.0) return out;
    const bool on_nvme = layout.offload_tier == OffloadTier::nvme;
    const double own =
        updated_parameters(held_parameters(layout, parts, shape), state_split(layout));
    const double moved = own * fraction(layout.offload_optimizer);
    if (moved > 0.0) {
        out.step = moved * (c.gradient_element + c.parameter_element) / c.host_link;
        if (c.host_memory > 0.0) out.step += moved * update_bytes(c) / c.host_memory;
        if (on_nvme && c.nvme > 0.0) out.step += moved * update_bytes(c) / c.nvme;
    }
    out.parameters = own * c.parameter_element * fraction(layout.offload_parameters);
    out.rate = c.host_link;
    if (on_nvme && c.nvme > 0.0) out.rate = std::min(out.rate, c.nvme);
    if (c.rates.memory_rate > 0.0) out.lost = std::min(1.0, out.rate / c.rates.memory_rate);
    return out;
}

namespace {

/// Bytes of activations of one micro-batch that leave the device.
double offloaded_activations(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                             const StageShape& shape) {
    if (layout.offload_activations == 0) return 0.0;
    double kept = 0.0;
    for (const UnitUse& use : shape.units) {
        const double boundary = use.recomputed * static_cast<double>(layout.micro_batch) *
                                static_cast<double>(c.resolved->sequence) / layout.cp * c.hidden *
                                c.activation_element / (layout.sp ? layout.tp : 1);
        kept += (use.count - use.recomputed) *
                    parts.units[static_cast<std::size_t>(use.unit)].stored_bytes +
                boundary;
    }
    return kept * fraction(layout.offload_activations);
}

} // namespace

OffloadTime offload_time(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape, const OffloadFixed& fixed, double forward,
                         double backward) {
    OffloadTime out;
    out.step = fixed.step;
    const double bytes = fixed.parameters + offloaded_activations(c, layout, parts, shape);
    out.forward = hide(bytes / fixed.rate, 1.0, forward, fixed.lost);
    out.backward = hide(bytes / fixed.rate, 1.0, backward, fixed.lost);
    return out;
}

} // namespace shardplan::sim
