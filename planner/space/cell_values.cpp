#include "planner/space/cell_values.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/space/rank_orders.hpp"

namespace shardplan::plan {

using sim::CpKind;
using sim::Layout;
using sim::Recompute;
using sim::RecomputePolicy;
using sim::ScheduleKind;
using sim::Shard;

namespace {

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

} // namespace

std::vector<Space::Sharding> Space::shardings_of(const Cell& cell) const {
    const sim::Capabilities& can = scenario_.stack.capabilities;
    const std::int64_t copies = cell.dp * cell.cp;
    if (can.shards.empty()) {
        return {{}};
    }
    // States of a single rank cannot be split, so one kind of sharding stands for all.
    if (copies == 1) {
        return {{contains(can.shards, Shard::none) ? Shard::none : can.shards.front()}};
    }
    std::vector<std::uint32_t> groups = {0};
    if (can.hybrid_shard && !scenario_.cluster.node_groups.empty()) {
        // Where node groups differ, the smallest nodes decide what stays inside one.
        std::int64_t near = std::numeric_limits<std::int64_t>::max();
        for (const sim::NodeGroup& group : scenario_.cluster.node_groups) {
            near = std::min(near, std::max(group.node.devices, group.node.scaleup.domain_devices));
        }
        for (const std::int64_t group : divisors_of(std::max<std::int64_t>(1, near))) {
            if (group > 1 && group < copies && copies % group == 0 &&
                near % (group * cell.tp) == 0) {
                groups.push_back(static_cast<std::uint32_t>(group));
            }
        }
    }
    // FSDP with parameters that stay gathered is what such stacks call zero2.
    const bool stays = can.fully_sharded && !contains(can.shards, Shard::optimizer_gradients);
    std::vector<Sharding> out;
    for (const Shard shard : can.shards) {
        for (const std::uint32_t group : groups) {
            if (shard == Shard::none && group != 0) {
                continue;
            }
            out.push_back({shard, group, true});
            if (shard == Shard::all && stays) {
                out.push_back({shard, group, false});
            }
        }
    }
    return out;
}

std::vector<std::pair<std::uint16_t, ScheduleKind>> Space::schedules_of(const Cell& cell) const {
    const std::int64_t layers = legality_.facts().layers;
    std::vector<std::pair<std::uint16_t, ScheduleKind>> out;
    if (cell.pp == 1) {
        return {{std::uint16_t{1}, ScheduleKind::one_f_one_b}};
    }
    for (const ScheduleKind kind : scenario_.stack.capabilities.schedules) {
        switch (kind) {
            case ScheduleKind::gpipe:
            case ScheduleKind::one_f_one_b:
            case ScheduleKind::zb_h1:
            case ScheduleKind::zb_h2:
                out.emplace_back(std::uint16_t{1}, kind);
                break;
            case ScheduleKind::zb_v:
            case ScheduleKind::dual_pipe:
                out.emplace_back(std::uint16_t{2}, kind);
                break;
            case ScheduleKind::interleaved:
                if (layers > 0 && layers % cell.pp == 0) {
                    for (const std::int64_t chunks : divisors_of(layers / cell.pp)) {
                        if (chunks > 1) {
                            out.emplace_back(static_cast<std::uint16_t>(chunks), kind);
                        }
                    }
                }
                break;
        }
    }
    if (out.empty()) {
        out.emplace_back(std::uint16_t{1}, ScheduleKind::one_f_one_b);
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<Again> Space::again_of(std::int64_t longest_stage) const {
    const sim::Capabilities& can = scenario_.stack.capabilities;
    const RecomputePolicy policy = scenario_.job.constraints.recompute;
    std::vector<Again> out;
    const auto offer = [&](Again again, Recompute kind, bool allowed) {
        if (allowed && contains(can.recompute, kind)) {
            out.push_back(again);
        }
    };
    const bool any = policy == RecomputePolicy::any;
    offer(Again::none, Recompute::none, policy != RecomputePolicy::full);
    offer(Again::selective, Recompute::selective, any);
    offer(Again::part, Recompute::full, any && can.partial_recompute && longest_stage > 1);
    offer(Again::full, Recompute::full, policy != RecomputePolicy::forbid);
    // Where nothing is left, one value stands in for the rule that refuses it to be counted.
    return out.empty() ? std::vector<Again>{Again::none} : out;
}

Space::Axes Space::axes_of(const Cell& cell) const {
    const sim::Capabilities& can = scenario_.stack.capabilities;
    const sim::LegalityFacts& facts = legality_.facts();
    Axes axes;
    axes.base.tp = static_cast<std::uint16_t>(cell.tp);
    axes.base.pp = static_cast<std::uint16_t>(cell.pp);
    axes.base.cp = static_cast<std::uint16_t>(cell.cp);
    axes.base.dp = static_cast<std::uint32_t>(cell.dp);
    axes.base.sp =
        cell.tp > 1 && can.sequence_parallel && resolved_.sequence % (cell.cp * cell.tp) == 0;
    axes.cp_kinds = {CpKind::ring};
    if (cell.cp > 1 && !can.cp_kinds.empty()) {
        axes.cp_kinds = can.cp_kinds;
    }
    axes.ep = {1};
    axes.etp = {0};
    if (facts.experts > 0 && can.expert_parallel) {
        axes.ep = divisors_of(facts.experts);
    }
    if (facts.experts > 0 && can.expert_tensor_parallel && cell.tp > 1) {
        axes.etp = {0, 1};
    }
    axes.longest_stage = (facts.layers + cell.pp - 1) / cell.pp;
    axes.shardings = shardings_of(cell);
    axes.schedules = schedules_of(cell);
    axes.again = again_of(axes.longest_stage);
    axes.micro_batches = {1};
    if (resolved_.global_batch % cell.dp == 0) {
        axes.micro_batches = divisors_of(resolved_.global_batch / cell.dp);
    }
    axes.tiers = {sim::OffloadTier::none};
    for (const sim::OffloadTier tier : {sim::OffloadTier::host, sim::OffloadTier::nvme}) {
        if (contains(can.offload_tiers, tier)) {
            axes.tiers.push_back(tier);
        }
    }
    return axes;
}

namespace {

/// The first rule of a group that a layout breaks.
class FirstBroken {
public:
    FirstBroken(sim::LegalityCase c, const std::vector<std::vector<std::size_t>>& rules)
        : case_(std::move(c)), rules_(rules) {}

    std::size_t operator()(Reads group, std::size_t none) const {
        for (const std::size_t rule : rules_[static_cast<std::size_t>(group)]) {
            if (sim::legality_rules()[rule].broken(case_)) {
                return rule;
            }
        }
        return none;
    }
    Layout& layout() { return case_.layout; }

private:
    sim::LegalityCase case_;
    const std::vector<std::vector<std::size_t>>& rules_;
};

} // namespace

Space::Legal Space::legal_of(const Axes& axes) const {
    Legal out;
    FirstBroken broken({scenario_, resolved_, legality_.facts(), tables_, axes.base}, rules_);
    Layout& layout = broken.layout();
    // The values of a group one after the other; `set` writes one into the layout.
    const auto keep = [&](Reads group, const auto& values, auto& legal, auto set) {
        for (const auto& value : values) {
            set(value);
            const std::size_t first = broken(group, Legal::none);
            out.first_broken[static_cast<std::size_t>(group)].push_back(first);
            if (first == Legal::none) {
                legal.push_back(value);
            }
        }
    };
    out.cell_rule = broken(Reads::cell, Legal::none);
    if (out.cell_rule != Legal::none) {
        return out;
    }
    keep(Reads::context, axes.cp_kinds, out.cp_kinds, [&](CpKind kind) { layout.cp_kind = kind; });
    std::vector<std::pair<std::uint16_t, std::uint16_t>> experts;
    for (const std::int64_t ep : axes.ep) {
        for (const std::int64_t etp : axes.etp) {
            experts.emplace_back(static_cast<std::uint16_t>(ep), static_cast<std::uint16_t>(etp));
        }
    }
    keep(Reads::experts, experts, out.experts,
         [&](const auto& value) { std::tie(layout.ep, layout.etp) = value; });
    keep(Reads::sharding, axes.shardings, out.shardings, [&](const Sharding& value) {
        layout.shard = value.shard;
        layout.shard_group = value.group;
        layout.reshard = value.reshard;
    });
    for (const auto& [chunks, schedule] : axes.schedules) {
        layout.chunks = chunks;
        layout.schedule = schedule;
        Legal::Passes passes{chunks, schedule, {}};
        keep(Reads::passes, axes.micro_batches, passes.micro_batches,
             [&](std::int64_t value) { layout.micro_batch = static_cast<std::uint32_t>(value); });
        if (!passes.micro_batches.empty()) {
            out.passes.push_back(std::move(passes));
        }
    }
    keep(Reads::recompute, axes.again, out.again,
         [&](Again value) { layout = with_recompute(layout, value, 1); });
    keep(Reads::offload, axes.tiers, out.tiers, [&](sim::OffloadTier tier) {
        layout =
            with_offload(layout, tier, tier == sim::OffloadTier::none ? 0 : sim::offload_scale);
    });
    add_orders(axes, out);
    return out;
}

void Space::add_orders(const Axes& axes, Legal& legal) const {
    Layout layout = axes.base;
    for (const auto& [ep, etp] : legal.experts) {
        layout.ep = ep;
        layout.etp = etp;
        std::vector<std::pair<std::uint32_t, std::size_t>> known; // by shard group
        for (const Sharding& sharding : legal.shardings) {
            const auto at = std::find_if(known.begin(), known.end(), [&](const auto& entry) {
                return entry.first == sharding.group;
            });
            if (at != known.end()) {
                legal.orders.push_back(legal.orders[at->second]);
                continue;
            }
            known.emplace_back(sharding.group, legal.orders.size());
            layout.shard_group = sharding.group;
            legal.orders.push_back(distinct_orders(scenario_, legality_.facts(), tables_, layout));
        }
    }
}

} // namespace shardplan::plan
