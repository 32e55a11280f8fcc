#include "simulator/engine/scenario_costs.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "simulator/estimate/data_parallel.hpp"
#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::sim {

namespace {

using CommOps = decltype(Op::comm_forward);

/// One exchange of a pass on its way from the operators to the schedule.
struct Step {
    double compute = 0.0;
    StreamKind stream = StreamKind::tp;
    double comm = 0.0;    ///< seconds; 0: none follows
    bool gathers = false; ///< its results are what the next part works on
    double bytes = 0.0;
};

StreamKind stream_of(Group group) {
    switch (group) {
        case Group::cp:
            return StreamKind::cp;
        case Group::ep:
        case Group::etp:
            return StreamKind::ep;
        default:
            return StreamKind::tp;
    }
}

/// Does an operator need what this collective brings, or hand its own results to it?
bool brings_input(Collective op) {
    switch (op) {
        case Collective::all_gather:
        case Collective::broadcast:
        case Collective::send_recv:
            return true;
        case Collective::all_reduce:
        case Collective::reduce_scatter:
        case Collective::reduce:
        case Collective::all_to_all:
            return false;
    }
    return false;
}

/// Share of the communication of a dimension that runs under compute; what the unit's own times
/// say, which never hide more than there is compute for.
double hidden_share(double hidden, double seconds) {
    return seconds > 0.0 ? std::min(1.0, hidden / seconds) : 0.0;
}

class UnitBuilder {
public:
    UnitBuilder(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                Detail detail)
        : c_(context), layout_(layout), parts_(parts), detail_(detail) {}

    void add(const PlannedUnit& planned, Recompute recompute, ScheduleInput& in,
             StageCosts& costs) {
        const UnitTime& time = parts_.units[static_cast<std::size_t>(planned.unit)];
        const OpList ops = unit_ops(c_, layout_, planned.unit);
        UnitSteps steps;
        UnitCosts out;
        double waits_for_memory = 0.0;
        double device = 0.0;
        for (const Op& op : ops) {
            const OpCost cost = op_cost(op, c_.rates);
            for (const PassCost* pass :
                 {&cost.forward, &cost.backward_input, &cost.backward_weight}) {
                waits_for_memory += pass->elementwise;
                device += pass->device();
            }
            out.forward_flops += op.flops_forward;
            // gradients of weights are as many products as those of inputs, but for attention
            const bool weighs = op.weights > 0.0 && !op.frozen;
            out.weight_flops += weighs ? 0.5 * op.flops_backward : 0.0;
            out.backward_flops += (weighs ? 0.5 : 1.0) * op.flops_backward;
        }
        if (device > 0.0) out.bandwidth_bound = static_cast<float>(waits_for_memory / device);
        out.weight = time.backward_weight;
        double again = 0.0;
        if (planned.recomputed) {
            again = recompute == Recompute::full ? time.full_recompute.total()
                                                 : time.selective_recompute.total();
        }
        if (detail_ == Detail::units) {
            out.forward = {time.forward.total()};
            out.backward = {again + time.backward.total() - time.backward_weight};
        } else {
            std::vector<Step> forward;
            std::vector<Step> backward;
            walk(ops, forward, backward);
            const double forward_launch = time.forward.launch;
            write(forward, time.forward, time.tp_forward, time.cp_forward, forward_launch, 0.0,
                  steps.forward, out.forward, out.forward_exchanges);
            write(backward, time.backward, minus(time.tp, time.tp_forward),
                  minus(time.cp, time.cp_forward), time.backward.launch, again, steps.backward,
                  out.backward, out.backward_exchanges);
        }
        in.unit_kinds.push_back(std::move(steps));
        costs.units.push_back(std::move(out));
    }

private:
    static GroupTraffic minus(GroupTraffic a, const GroupTraffic& b) {
        return {a.bytes - b.bytes, a.seconds - b.seconds};
    }

    /// Compute and exchanges in the order a pass meets them.
    void walk(const OpList& ops, std::vector<Step>& forward, std::vector<Step>& backward) const {
        const auto communicate = [&](const CommOps& comms, bool gathers, std::vector<Step>& out) {
            for (const CommOp& comm : comms) {
                const GroupPath& path = path_in(parts_.paths, comm.group);
                if (path.ranks <= 1 || brings_input(comm.op) != gathers) continue;
                const auto count = static_cast<double>(comm.count);
                const double seconds =
                    count * collective_time(path, comm.op, Bytes(comm.bytes)).value();
                if (seconds <= 0.0) continue;
                if (out.empty() || out.back().comm > 0.0) out.emplace_back();
                out.back().stream = stream_of(comm.group);
                out.back().comm = seconds;
                out.back().gathers = gathers;
                out.back().bytes = count * sent_per_rank(path, comm.op, Bytes(comm.bytes)).value();
            }
        };
        const auto follow = [&](double compute, const CommOps& comms, std::vector<Step>& out) {
            communicate(comms, true, out);
            if (out.empty() || out.back().comm > 0.0) out.emplace_back();
            out.back().compute += compute;
            communicate(comms, false, out);
        };
        for (const Op& op : ops) {
            follow(op_cost(op, c_.rates).forward.device(), op.comm_forward, forward);
        }
        for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
            follow(op_cost(*op, c_.rates).backward_input.device(), op->comm_backward, backward);
        }
    }

    /// `first`: seconds before the first part; `launch`: spread over the end of the pass.
    static void write(const std::vector<Step>& pass, const PassTime& time, const GroupTraffic& tp,
                      const GroupTraffic& cp, double launch, double first,
                      std::vector<UnitSteps::Exchange>& steps, std::vector<double>& parts,
                      std::vector<SplitSeconds>& exchanges) {
        const double tp_share = hidden_share(time.tp_hidden, tp.seconds);
        const double cp_share = hidden_share(time.cp_hidden, cp.seconds);
        parts.push_back(first);
        for (const Step& step : pass) {
            parts.back() += step.compute;
            if (step.comm <= 0.0) continue;
            const double share = step.stream == StreamKind::tp   ? tp_share
                                 : step.stream == StreamKind::cp ? cp_share
                                                                 : 0.0;
            exchanges.push_back({step.comm * (1.0 - share), step.comm * share, step.bytes});
            const bool waits = share < 1.0;
            const auto side = step.gathers ? UnitSteps::Under::next : UnitSteps::Under::previous;
            const auto under = share > 0.0 ? side : UnitSteps::Under::none;
            steps.push_back({step.stream, waits, under});
            parts.push_back(0.0);
        }
        parts.back() += launch;
    }

    const StepContext& c_;
    const Layout& layout_;
    const LayoutParts& parts_;
    Detail detail_;
};

SplitSeconds split(double seconds, double fraction, double bytes) {
    return {seconds * (1.0 - fraction), seconds * fraction, bytes};
}

/// What of the plan of data parallelism follows from layout and stack.
DataParallelPlan plan_of(const StepContext& c, const Layout& layout) {
    DataParallelPlan plan;
    const bool fsdp =
        c.scenario->stack.capabilities.fully_sharded && layout.shard == Shard::optimizer_gradients;
    plan.units = layout.shard == Shard::all || fsdp;
    plan.gather_again = layout.shard == Shard::all && layout.reshard;
    plan.prefetch = layout.prefetch;
    plan.wrapped = wrapped_units(layout.wrap);
    plan.every_micro_batch = !plan.units && layout.shard == Shard::optimizer_gradients;
    plan.gather_under = c.overlap.gather > 0.0;
    plan.gather_waits = c.overlap.gather < 1.0;
    return plan;
}

StageSeconds stage_seconds(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                           const StageShape& shape, DataParallelPlan& plan) {
    StageSeconds out;
    const DataParallelMoves moves = data_parallel_moves(c, layout, parts, shape);
    out.replicas = moves.replicate.seconds + moves.tied.seconds;
    if (moves.after) {
        out.replicas += moves.reduce.seconds + moves.slices;
    } else {
        const double ready = std::min(c.overlap.dp, moves.ready);
        out.gather = split(moves.gather.seconds, c.overlap.gather, moves.gather.bytes);
        out.reduce = split(moves.reduce.seconds, ready, moves.reduce.bytes);
        plan.reduce_under = plan.reduce_under || out.reduce.under > 0.0;
        plan.reduce_waits = plan.reduce_waits || out.reduce.waits > 0.0;
    }
    if (plan.units) {
        out.forward_copies = moves.unpack;
        out.backward_copies = (plan.gather_again ? moves.unpack : 0.0) + moves.pack_gradient;
    } else {
        out.replicas += moves.buckets;
    }
    plan.replicas = plan.replicas || out.replicas > 0.0;
    out.optimizer = optimizer_seconds(c, layout, parts, shape);
    const OffloadFixed fixed = offload_fixed(c, layout, parts, shape);
    const OffloadTime offload = offload_time(c, layout, parts, shape, fixed, 0.0, 0.0);
    out.offload_forward = offload.forward.exposed;
    out.offload_backward = offload.backward.exposed;
    out.offload_states = fixed.step;
    return out;
}

/// Nothing is scheduled where no rank has anybody to share with.
void drop_idle_traffic(const StageCosts& costs, DataParallelPlan& plan) {
    const auto any = [&](SplitSeconds StageSeconds::*what) {
        return std::any_of(costs.stages.begin(), costs.stages.end(),
                           [&](const StageSeconds& s) { return (s.*what).total() > 0.0; });
    };
    if (!any(&StageSeconds::gather)) plan.gather_under = plan.gather_waits = false;
    if (!any(&StageSeconds::reduce)) plan.reduce_under = plan.reduce_waits = false;
    plan.units = plan.units && (plan.gather_under || plan.gather_waits);
}

/// Gives every stage one link per tier and direction that more than one kind of traffic uses.
void add_links(const LayoutParts& parts, const PipelineShape& shape, StageCosts& costs) {
    struct Use {
        StreamKind stream;
        Group group;
    };
    constexpr Use uses[] = {{StreamKind::tp, Group::tp},        {StreamKind::cp, Group::cp},
                            {StreamKind::ep, Group::ep},        {StreamKind::send, Group::pp},
                            {StreamKind::gather, Group::shard}, {StreamKind::reduce, Group::dp_cp}};
    std::vector<std::string_view> tiers;
    std::vector<double> rates;
    std::vector<std::size_t> tier_of;
    for (const Use& use : uses) {
        const GroupPath& path = path_in(parts.paths, use.group);
        tier_of.push_back(std::numeric_limits<std::size_t>::max());
        if (path.ranks <= 1 || path.levels.empty()) continue;
        const PathLevel& level = path.levels.back();
        const auto it = std::find(tiers.begin(), tiers.end(), level.name);
        tier_of.back() = static_cast<std::size_t>(it - tiers.begin());
        if (it == tiers.end()) {
            tiers.push_back(level.name);
            rates.push_back(0.0);
        }
        // the widest view of the tier is the one with the fewest groups beside it
        rates[tier_of.back()] = std::max(rates[tier_of.back()], level.per_rank.value());
    }
    const auto stages = static_cast<std::size_t>(shape.stages);
    // by stage and tier: out of the rank, then into it
    const auto link = [&](std::size_t stage, std::size_t tier, std::size_t in) {
        return static_cast<std::uint32_t>((stage * tiers.size() + tier) * 2 + in);
    };
    for (std::size_t stage = 0; stage < stages; ++stage) {
        for (const double rate : rates)
            costs.links.capacity.insert(costs.links.capacity.end(), 2, rate);
    }
    for (std::size_t stage = 0; stage < stages; ++stage) {
        StageRoutes& routes = costs.routes.emplace_back();
        routes.of_stream.fill(no_route);
        for (std::size_t u = 0; u < std::size(uses); ++u) {
            if (tier_of[u] >= tiers.size()) continue;
            const std::size_t tier = tier_of[u];
            if (uses[u].stream == StreamKind::send) {
                const std::size_t up = (stage + 1) % stages;
                const std::size_t down = (stage + stages - 1) % stages;
                routes.send_up = costs.links.add_route({link(stage, tier, 0), link(up, tier, 1)});
                routes.send_down =
                    costs.links.add_route({link(stage, tier, 0), link(down, tier, 1)});
                continue;
            }
            routes.of_stream[static_cast<std::size_t>(uses[u].stream)] =
                costs.links.add_route({link(stage, tier, 0), link(stage, tier, 1)});
        }
    }
}

/// Lengths of passes of the stage with the most to do.
PassLengths pass_lengths(const ScheduleInput& in, const StageCosts& costs) {
    double f = 0.0;
    double b = 0.0;
    double w = 0.0;
    for (const auto& stage : in.units) {
        double own_f = 0.0;
        double own_b = 0.0;
        double own_w = 0.0;
        for (const auto& chunk : stage) {
            for (const std::uint16_t unit : chunk) {
                const UnitCosts& u = costs.units[unit];
                for (const double part : u.forward)
                    own_f += part;
                for (const SplitSeconds& e : u.forward_exchanges)
                    own_f += e.waits;
                for (const double part : u.backward)
                    own_b += part;
                for (const SplitSeconds& e : u.backward_exchanges)
                    own_b += e.waits;
                own_w += u.weight;
            }
        }
        if (own_f + own_b + own_w <= f + b + w) continue;
        f = own_f;
        b = own_b;
        w = own_w;
    }
    return lengths_of(f, b, w);
}

} // namespace

ScenarioCosts scenario_costs(const Evaluator& evaluator, const Layout& layout, Detail detail) {
    const Scenario& scenario = evaluator.scenario();
    const Resolved& resolved = evaluator.resolved();
    const StepContext c = step_context(scenario, resolved);
    const OwnLayoutParts own = layout_parts(c, layout);
    const LayoutParts& parts = own.parts;
    const RecomputePlan plan = evaluator.tables().recompute(layout.recompute);
    const std::int64_t m = micro_batches(resolved, layout);
    ScenarioCosts out;
    out.placement = place(scenario, layout, evaluator.tables());
    const auto shapes = stage_shapes(scenario.model, layout, plan, out.placement.stages);
    ScheduleInput& in = out.input;
    in.shape = pipeline_shape(layout, m);
    LayoutUnits units = layout_units(scenario.model, plan, in.shape, out.placement.stages);
    out.units = std::move(units.kinds);
    in.units = std::move(units.of);
    UnitBuilder builder(c, layout, parts, detail);
    for (const PlannedUnit& unit : out.units)
        builder.add(unit, plan.kind, in, out.costs);
    in.data_parallel = plan_of(c, layout);
    const double bucket = scenario.stack.memory.bucket_bytes.value;
    double most = 0.0;
    // one message, as the step counts them
    StepContext plain = c;
    plain.overlap = {};
    StepScratch scratch;
    const StepResult step = step_time(plain, layout, parts, runs_of(shapes), plan, m, scratch);
    const double messages = static_cast<double>(m * messages_of_pass(layout));
    for (const StageShape& shape : shapes) {
        StageSeconds& stage =
            out.costs.stages.emplace_back(stage_seconds(c, layout, parts, shape, in.data_parallel));
        if (layout.pp > 1) {
            stage.message =
                split(step.pp.seconds / messages, c.overlap.pp, step.pp.bytes / messages);
        }
        most = std::max(most, parameters_of(parts, shape).trained() * c.gradient_element);
        in.offload_passes = in.offload_passes || stage.offload_forward > 0.0;
        in.offload_states = in.offload_states || stage.offload_states > 0.0;
    }
    drop_idle_traffic(out.costs, in.data_parallel);
    if (bucket > 0.0) {
        in.data_parallel.buckets =
            static_cast<std::int32_t>(std::clamp(std::ceil(most / bucket), 1.0, 65535.0));
    }
    in.messages_block = c.overlap.pp < 1.0;
    in.messages_under = c.overlap.pp > 0.0;
    in.lengths = pass_lengths(in, out.costs);
    in.update_waits_for_all =
        layout.schedule != ScheduleKind::zb_h2 && layout.schedule != ScheduleKind::zb_v;
    out.overlaps = c.overlap.tp > 0.0 || c.overlap.cp > 0.0 || c.overlap.pp > 0.0 ||
                   c.overlap.dp > 0.0 || c.overlap.gather > 0.0;
    if (out.overlaps) {
        out.costs.taken_units = static_cast<float>(c.overlap.slowdown);
        add_links(parts, in.shape, out.costs);
    }
    out.overhead = scenario.stack.time.step_overhead.value;
    return out;
}

} // namespace shardplan::sim
