#include "planner/space/space.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "planner/space/cell_values.hpp"

namespace shardplan::plan {

using sim::Layout;
using sim::Recompute;

namespace {

constexpr std::int64_t max_degree = 65535; // of the 16-bit fields of Layout

Reads reads_of(std::string_view field) {
    constexpr std::array<std::pair<std::string_view, Reads>, 9> fields = {
        {{"cp", Reads::context},
         {"ep", Reads::experts},
         {"etp", Reads::experts},
         {"zero", Reads::sharding},
         {"v", Reads::passes},
         {"sched", Reads::passes},
         {"mb", Reads::passes},
         {"rc", Reads::recompute},
         {"off", Reads::offload}}};
    const auto* at = std::find_if(fields.begin(), fields.end(),
                                  [&](const auto& known) { return known.first == field; });
    return at == fields.end() ? Reads::cell : at->second;
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

sim::Layout with_recompute(sim::Layout layout, Again again, std::int64_t blocks) {
    switch (again) {
        case Again::none:
            layout.recompute = sim::LayoutTables::intern({Recompute::none, 0});
            break;
        case Again::selective:
            layout.recompute = sim::LayoutTables::intern({Recompute::selective, 0});
            break;
        case Again::part:
            layout.recompute = sim::LayoutTables::intern({Recompute::full, blocks});
            break;
        case Again::full:
            layout.recompute = sim::LayoutTables::intern({Recompute::full, 0});
            break;
    }
    return layout;
}

sim::Layout with_offload(sim::Layout layout, sim::OffloadTier tier, std::uint16_t thousandths) {
    layout.offload_tier = tier;
    layout.offload_optimizer = thousandths;
    return layout;
}

Space::Space(const sim::Scenario& scenario, const sim::Resolved& resolved,
             const sim::LayoutTables& tables)
    : scenario_(scenario),
      resolved_(resolved),
      tables_(tables),
      legality_(scenario, resolved),
      cells_(cells_of(scenario)),
      rules_(groups_of_rules) {
    const auto rules = sim::legality_rules();
    for (std::size_t i = 0; i < rules.size(); ++i) {
        rules_[static_cast<std::size_t>(reads_of(rules[i].field))].push_back(i);
    }
}

SpaceCounts Space::count(const Cell& cell) const {
    SpaceCounts out;
    const std::size_t rules = sim::legality_rules().size();
    out.refused.resize(rules);
    const Axes axes = axes_of(cell);
    const Legal legal = legal_of(axes);
    if (legal.cell_rule != Legal::none) {
        const std::size_t product = axes.cp_kinds.size() * axes.ep.size() * axes.etp.size() *
                                    axes.shardings.size() * axes.schedules.size() *
                                    axes.micro_batches.size() * axes.again.size() *
                                    axes.tiers.size();
        out.candidates = static_cast<std::int64_t>(product);
        out.refused[legal.cell_rule] = out.candidates;
        return out;
    }
    // Candidates that no rule before `rule` refuses, in one rank order: a product over the groups.
    const auto left_before = [&](std::size_t rule) {
        std::int64_t product = 1;
        for (std::size_t g = 1; g < groups_of_rules; ++g) {
            const auto& first = legal.first_broken[g];
            product *= std::count_if(first.begin(), first.end(),
                                     [&](std::size_t broken) { return broken >= rule; });
        }
        return product;
    };
    std::int64_t left = left_before(0);
    for (std::size_t rule = 0; rule < rules; ++rule) {
        const std::int64_t next = left_before(rule + 1);
        out.refused[rule] = left - next;
        out.candidates += left - next;
        left = next;
    }
    out.legal = legal.count();
    out.candidates += out.legal;
    return out;
}

SpaceCounts Space::count() const {
    SpaceCounts out;
    out.refused.resize(sim::legality_rules().size());
    for (const Cell& cell : cells_) {
        out += count(cell);
    }
    return out;
}

bool Space::visit_blocks(const Cell& cell, const BlockVisitor& visitor) const {
    const Axes axes = axes_of(cell);
    const Legal legal = legal_of(axes);
    if (legal.cell_rule != Legal::none || legal.again.empty() || legal.tiers.empty()) {
        return true;
    }
    // Where node groups differ, the order decides which stage lies on which.
    const bool apart = scenario_.cluster.node_groups.size() > 1;
    Block block;
    block.layout = axes.base;
    block.again = legal.again;
    block.tiers = legal.tiers;
    block.longest_stage = axes.longest_stage;
    const auto show = [&](std::span<const std::uint8_t> orders) {
        block.orders = orders;
        block.layout.order = orders.front();
        return visitor(block);
    };
    for (const sim::CpKind kind : legal.cp_kinds) {
        block.layout.cp_kind = kind;
        for (std::size_t e = 0; e < legal.experts.size(); ++e) {
            std::tie(block.layout.ep, block.layout.etp) = legal.experts[e];
            for (std::size_t s = 0; s < legal.shardings.size(); ++s) {
                const Sharding& sharding = legal.shardings[s];
                block.layout.shard = sharding.shard;
                block.layout.shard_group = sharding.group;
                block.layout.reshard = sharding.reshard;
                const sim::Capabilities& can = scenario_.stack.capabilities;
                block.offload_step = sim::splits_offload(can, sharding.shard)
                                         ? offload_step
                                         : static_cast<std::uint16_t>(sim::offload_scale);
                const std::vector<std::uint8_t>& orders =
                    legal.orders[e * legal.shardings.size() + s];
                for (const Legal::Passes& passes : legal.passes) {
                    block.layout.chunks = passes.chunks;
                    block.layout.schedule = passes.schedule;
                    block.micro_batches = passes.micro_batches;
                    block.layout.micro_batch =
                        static_cast<std::uint32_t>(passes.micro_batches.front());
                    for (std::size_t o = 0; o < orders.size(); o += apart ? 1 : orders.size()) {
                        if (!show(std::span(orders).subspan(o, apart ? 1 : orders.size()))) {
                            return false;
                        }
                    }
                }
            }
        }
    }
    return true;
}

namespace {

/// The layouts of a block but for the micro-batch, in order. False: stop.
template <class Show>
bool for_each_row(const Block& block, Show show) {
    for (const Again again : block.again) {
        for (const sim::OffloadTier tier : block.tiers) {
            for (const std::uint8_t order : block.orders) {
                Layout layout = with_recompute(block.layout, again, 1);
                layout = with_offload(layout, tier,
                                      tier == sim::OffloadTier::none ? 0 : sim::offload_scale);
                layout.order = order;
                if (!show(layout)) {
                    return false;
                }
            }
        }
    }
    return true;
}

} // namespace

bool Space::visit(const Cell& cell, const LayoutVisitor& visitor, SpaceCounts& counts) const {
    counts += count(cell);
    return visit_blocks(cell, [&](const Block& block) {
        return for_each_row(block, [&](Layout layout) {
            for (std::size_t i = 0; i < block.micro_batches.size(); ++i) {
                layout.micro_batch = static_cast<std::uint32_t>(block.micro_batches[i]);
                ++counts.visited;
                const Visit wish = visitor(layout);
                if (wish == Visit::stop) {
                    return false;
                }
                if (wish == Visit::skip_larger_micro_batches) {
                    counts.skipped += static_cast<std::int64_t>(block.micro_batches.size() - i - 1);
                    return true;
                }
            }
            return true;
        });
    });
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
