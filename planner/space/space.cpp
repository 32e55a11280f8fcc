#include "planner/space/space.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

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

/// Which values a rule reads, by the field that has to change where it is broken.
enum class Reads : std::size_t { cell, experts, sharding, passes, recompute };
constexpr std::size_t groups_of_rules = 5;

Reads reads_of(std::string_view field) {
    constexpr std::array<std::pair<std::string_view, Reads>, 7> fields = {
        {{"ep", Reads::experts},
         {"etp", Reads::experts},
         {"zero", Reads::sharding},
         {"v", Reads::passes},
         {"sched", Reads::passes},
         {"mb", Reads::passes},
         {"rc", Reads::recompute}}};
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
      cells_(cells_of(scenario)),
      rules_(groups_of_rules) {
    const auto rules = sim::legality_rules();
    for (std::size_t i = 0; i < rules.size(); ++i) {
        rules_[static_cast<std::size_t>(reads_of(rules[i].field))].push_back(i);
    }
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

/// What is legal of each group of values, and how many each rule is the first to refuse.
struct Space::Legal {
    static constexpr std::size_t none = ~std::size_t{0};
    std::size_t cell_rule = none;                                 ///< refuses everything
    std::vector<std::pair<std::uint16_t, std::uint16_t>> experts; ///< ep, etp
    std::vector<Shard> shards;
    struct Passes {
        std::uint16_t chunks = 1;
        ScheduleKind schedule = ScheduleKind::one_f_one_b;
        std::vector<std::int64_t> micro_batches;
    };
    std::vector<Passes> passes;
    std::int64_t passes_count = 0; ///< chunks with micro-batch
    std::vector<std::uint32_t> recompute;
    /// By group: rules that are the first to refuse a value, none for those that are legal.
    std::array<std::vector<std::size_t>, groups_of_rules> first_broken;
};

Space::Legal Space::legal_of(const Axes& axes) const {
    Legal out;
    Layout layout = axes.base;
    layout.shard = axes.shards.front();
    layout.recompute = axes.recompute.front();
    layout.schedule = axes.plain;
    const auto try_out = [&](Reads group) {
        const auto& rules = rules_[static_cast<std::size_t>(group)];
        const sim::LegalityCase c{scenario_, resolved_, legality_.facts(), tables_, layout};
        const auto broken = std::find_if(rules.begin(), rules.end(), [&](std::size_t rule) {
            return sim::legality_rules()[rule].broken(c);
        });
        const std::size_t first = broken == rules.end() ? Legal::none : *broken;
        out.first_broken[static_cast<std::size_t>(group)].push_back(first);
        return first == Legal::none;
    };
    if (!try_out(Reads::cell)) {
        out.cell_rule = out.first_broken.front().front();
        return out;
    }
    for (const std::int64_t ep : axes.ep) {
        for (const std::int64_t etp : axes.etp) {
            layout.ep = static_cast<std::uint16_t>(ep);
            layout.etp = static_cast<std::uint16_t>(etp);
            if (try_out(Reads::experts)) {
                out.experts.emplace_back(layout.ep, layout.etp);
            }
        }
    }
    for (const Shard shard : axes.shards) {
        layout.shard = shard;
        if (try_out(Reads::sharding)) {
            out.shards.push_back(shard);
        }
    }
    for (const std::int64_t chunks : axes.chunks) {
        layout.chunks = static_cast<std::uint16_t>(chunks);
        layout.schedule = chunks > 1 ? ScheduleKind::interleaved : axes.plain;
        Legal::Passes passes{layout.chunks, layout.schedule, {}};
        for (const std::int64_t micro_batch : axes.micro_batches) {
            layout.micro_batch = static_cast<std::uint32_t>(micro_batch);
            if (try_out(Reads::passes)) {
                passes.micro_batches.push_back(micro_batch);
                ++out.passes_count;
            }
        }
        if (!passes.micro_batches.empty()) {
            out.passes.push_back(std::move(passes));
        }
    }
    for (const std::uint32_t recompute : axes.recompute) {
        layout.recompute = recompute;
        if (try_out(Reads::recompute)) {
            out.recompute.push_back(recompute);
        }
    }
    return out;
}

SpaceCounts Space::count(const Cell& cell) const {
    SpaceCounts out;
    const std::size_t rules = sim::legality_rules().size();
    out.refused.resize(rules);
    const Axes axes = axes_of(cell);
    const Legal legal = legal_of(axes);
    out.candidates = axes.candidates();
    if (legal.cell_rule != Legal::none) {
        out.refused[legal.cell_rule] = out.candidates;
        return out;
    }
    // Candidates that no rule before `rule` refuses: a product over the groups.
    const auto left_before = [&](std::size_t rule) {
        std::int64_t product = 1;
        for (std::size_t g = 1; g < groups_of_rules; ++g) {
            const auto& first = legal.first_broken[g];
            product *= std::count_if(first.begin(), first.end(),
                                     [&](std::size_t broken) { return broken >= rule; });
        }
        return product;
    };
    std::int64_t left = out.candidates;
    for (std::size_t rule = 0; rule < rules; ++rule) {
        const std::int64_t next = left_before(rule + 1);
        out.refused[rule] = left - next;
        left = next;
    }
    out.legal = left;
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

bool Space::visit_rows(const Cell& cell, const RowVisitor& visitor) const {
    const Axes axes = axes_of(cell);
    const Legal legal = legal_of(axes);
    if (legal.cell_rule != Legal::none) {
        return true;
    }
    Layout layout = axes.base;
    for (const auto& [ep, etp] : legal.experts) {
        layout.ep = ep;
        layout.etp = etp;
        for (const Shard shard : legal.shards) {
            layout.shard = shard;
            for (const Legal::Passes& passes : legal.passes) {
                layout.chunks = passes.chunks;
                layout.schedule = passes.schedule;
                layout.micro_batch = static_cast<std::uint32_t>(passes.micro_batches.front());
                for (const std::uint32_t recompute : legal.recompute) {
                    layout.recompute = recompute;
                    if (!visitor({layout, passes.micro_batches})) {
                        return false;
                    }
                }
            }
        }
    }
    return true;
}

bool Space::visit(const Cell& cell, const LayoutVisitor& visitor, SpaceCounts& counts) const {
    counts += count(cell);
    return visit_rows(cell, [&](const Row& row) {
        Layout layout = row.layout;
        for (std::size_t i = 0; i < row.micro_batches.size(); ++i) {
            layout.micro_batch = static_cast<std::uint32_t>(row.micro_batches[i]);
            ++counts.visited;
            const Visit wish = visitor(layout);
            if (wish == Visit::stop) {
                return false;
            }
            if (wish == Visit::skip_larger_micro_batches) {
                counts.skipped += static_cast<std::int64_t>(row.micro_batches.size() - i - 1);
                return true;
            }
        }
        return true;
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
