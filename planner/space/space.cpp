#include "planner/space/space.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace shardplan::plan {

using sim::CpKind;
using sim::Layout;
using sim::Recompute;
using sim::RecomputePolicy;
using sim::ScheduleKind;
using sim::Shard;

namespace {

constexpr std::int64_t max_degree = 65535; // of the 16-bit fields of Layout

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

/// Rules that read the degrees of a cell and nothing below them.
bool is_of_cell(std::string_view field) {
    constexpr std::array<std::string_view, 7> fields = {"model", "job", "stack", "tp",
                                                        "pp",    "cp",  "dp"};
    return std::find(fields.begin(), fields.end(), field) != fields.end();
}

/// Numbers of devices a layout may use: all, or (where some may idle) any number of whole nodes.
std::vector<std::int64_t> rank_counts(const sim::Scenario& scenario) {
    const std::int64_t devices = sim::device_count(scenario.cluster);
    std::vector<std::int64_t> counts;
    if (scenario.job.constraints.idle_devices) {
        std::int64_t used = 0;
        for (const sim::NodeGroup& group : scenario.cluster.node_groups) {
            for (std::int64_t node = 0; node < group.count; ++node) {
                used += group.node.devices;
                counts.push_back(used);
            }
        }
    } else if (devices > 0) {
        counts.push_back(devices);
    }
    return counts;
}

std::vector<Cell> cells_of(const sim::Scenario& scenario) {
    std::vector<Cell> cells;
    for (const std::int64_t ranks : rank_counts(scenario)) {
        for (const std::int64_t tp : divisors_of(ranks)) {
            for (const std::int64_t pp : divisors_of(ranks / tp)) {
                for (const std::int64_t cp : divisors_of(ranks / tp / pp)) {
                    if (tp <= max_degree && pp <= max_degree && cp <= max_degree) {
                        cells.push_back({tp, pp, cp, ranks / tp / pp / cp});
                    }
                }
            }
        }
    }
    return cells;
}

} // namespace

SpaceCounts& SpaceCounts::operator+=(const SpaceCounts& other) {
    candidates += other.candidates;
    legal += other.legal;
    visited += other.visited;
    skipped += other.skipped;
    refused.resize(std::max(refused.size(), other.refused.size()));
    for (std::size_t i = 0; i < other.refused.size(); ++i) {
        refused[i] += other.refused[i];
    }
    return *this;
}

/// The values each field takes inside a cell; the candidates are their product.
struct Space::Axes {
    Layout base; ///< degrees, sequence parallelism and kind of context parallelism
    std::vector<std::int64_t> ep;
    std::vector<std::int64_t> etp;
    std::vector<Shard> shards;
    std::vector<std::int64_t> chunks;
    std::vector<std::uint32_t> recompute;
    std::vector<std::int64_t> micro_batches;
    ScheduleKind plain = ScheduleKind::one_f_one_b;

    [[nodiscard]] std::int64_t candidates() const {
        std::size_t product = ep.size() * etp.size() * shards.size();
        product *= chunks.size() * recompute.size() * micro_batches.size();
        return static_cast<std::int64_t>(product);
    }
};

Space::Space(const sim::Scenario& scenario, const sim::Resolved& resolved,
             const sim::LayoutTables& tables)
    : scenario_(scenario),
      resolved_(resolved),
      tables_(tables),
      legality_(scenario, resolved),
      cells_(cells_of(scenario)) {}

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
    if (cell.cp > 1 && !can.cp_kinds.empty()) {
        axes.base.cp_kind = can.cp_kinds.front();
    }
    axes.ep = {1};
    axes.etp = {0};
    if (facts.experts > 0 && can.expert_parallel) {
        axes.ep = divisors_of(facts.experts);
    }
    if (facts.experts > 0 && can.expert_tensor_parallel && cell.tp > 1) {
        axes.etp = {0, 1};
    }
    // States of a single rank cannot be split, so one kind of sharding stands for all.
    axes.shards = can.shards;
    if (cell.dp * cell.cp == 1 && !can.shards.empty()) {
        axes.shards = {contains(can.shards, Shard::none) ? Shard::none : can.shards.front()};
    }
    axes.chunks = {1};
    if (cell.pp > 1 && facts.layers % cell.pp == 0 &&
        contains(can.schedules, ScheduleKind::interleaved)) {
        axes.chunks = divisors_of(facts.layers / cell.pp);
    }
    if (cell.pp > 1 && !contains(can.schedules, ScheduleKind::one_f_one_b)) {
        axes.plain = ScheduleKind::gpipe;
    }
    const RecomputePolicy policy = scenario_.job.constraints.recompute;
    for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full}) {
        const bool wanted = policy == RecomputePolicy::any ||
                            (policy == RecomputePolicy::full) == (kind == Recompute::full);
        const bool forbidden = policy == RecomputePolicy::forbid && kind != Recompute::none;
        if (contains(can.recompute, kind) && wanted && !forbidden) {
            axes.recompute.push_back(static_cast<std::uint32_t>(kind));
        }
    }
    // Where nothing is left, one value stands in for the rule that refuses it to be counted.
    if (axes.recompute.empty()) {
        axes.recompute = {static_cast<std::uint32_t>(Recompute::none)};
    }
    if (axes.shards.empty()) {
        axes.shards = {Shard::none};
    }
    axes.micro_batches = {1};
    if (resolved_.global_batch % cell.dp == 0) {
        axes.micro_batches = divisors_of(resolved_.global_batch / cell.dp);
    }
    return axes;
}

bool Space::visit_micro_batches(Layout layout, const Axes& axes, const LayoutVisitor& visitor,
                                SpaceCounts& counts) const {
    bool skip = false;
    for (const std::int64_t micro_batch : axes.micro_batches) {
        layout.micro_batch = static_cast<std::uint32_t>(micro_batch);
        ++counts.candidates;
        if (const auto broken = legality_.first_broken(layout, tables_)) {
            ++counts.refused[*broken];
            continue;
        }
        ++counts.legal;
        if (skip) {
            ++counts.skipped;
            continue;
        }
        ++counts.visited;
        const Visit wish = visitor(layout);
        if (wish == Visit::stop) {
            return false;
        }
        skip = wish == Visit::skip_larger_micro_batches;
    }
    return true;
}

bool Space::visit(const Cell& cell, const LayoutVisitor& visitor, SpaceCounts& counts) const {
    counts.refused.resize(sim::legality_rules().size());
    const Axes axes = axes_of(cell);
    Layout layout = axes.base;
    layout.shard = axes.shards.front();
    layout.recompute = axes.recompute.front();
    layout.schedule = axes.plain;
    if (const auto broken = legality_.first_broken(layout, tables_)) {
        if (is_of_cell(sim::legality_rules()[*broken].field)) {
            counts.candidates += axes.candidates();
            counts.refused[*broken] += axes.candidates();
            return true;
        }
    }
    for (const std::int64_t ep : axes.ep) {
        layout.ep = static_cast<std::uint16_t>(ep);
        for (const std::int64_t etp : axes.etp) {
            layout.etp = static_cast<std::uint16_t>(etp);
            for (const Shard shard : axes.shards) {
                layout.shard = shard;
                for (const std::int64_t chunks : axes.chunks) {
                    layout.chunks = static_cast<std::uint16_t>(chunks);
                    layout.schedule = chunks > 1 ? ScheduleKind::interleaved : axes.plain;
                    for (const std::uint32_t recompute : axes.recompute) {
                        layout.recompute = recompute;
                        if (!visit_micro_batches(layout, axes, visitor, counts)) {
                            return false;
                        }
                    }
                }
            }
        }
    }
    return true;
}

std::vector<std::int64_t> divisors_of(std::int64_t number) {
    std::vector<std::int64_t> small;
    std::vector<std::int64_t> large;
    for (std::int64_t d = 1; d <= number / d; ++d) {
        if (number % d == 0) {
            small.push_back(d);
            if (d != number / d) {
                large.push_back(number / d);
            }
        }
    }
    small.insert(small.end(), large.rbegin(), large.rend());
    return small;
}

SpaceCounts for_each_layout(const sim::Scenario& scenario, const sim::Resolved& resolved,
                            const sim::LayoutTables& tables, const LayoutVisitor& visitor) {
    const Space space(scenario, resolved, tables);
    SpaceCounts counts;
    counts.refused.resize(sim::legality_rules().size());
    for (const Cell& cell : space.cells()) {
        if (!space.visit(cell, visitor, counts)) {
            break;
        }
    }
    return counts;
}

} // namespace shardplan::plan
