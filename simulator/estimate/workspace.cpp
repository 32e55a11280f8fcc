#include "simulator/estimate/workspace.hpp"

#include <algorithm>
#include <utility>

#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

void Workspace::Impl::bind(const void* scenario, const Layout& layout) {
    if (owner != scenario) {
        *this = Impl{};
        owner = scenario;
    }
    Layout common = layout;
    common.micro_batch = 0;
    if (row_number > 0 && common == row) return;
    row = common;
    ++row_number;
}

DensePathsKey dense_paths_key(const Layout& l) {
    return {{l.dp, l.shard_group, std::uint32_t{l.tp} << 16U | l.cp, l.pp, l.order}};
}

ExpertPathsKey expert_paths_key(const Layout& l) { return {{l.ep, l.etp}}; }

StagesKey stages_key(const Layout& l) {
    return {{std::uint32_t{l.pp} << 16U | l.chunks, l.stage_map,
             static_cast<std::uint32_t>(l.schedule), l.recompute}};
}

ClassesKey classes_key(const Layout& l) {
    return {{l.dp, std::uint32_t{l.tp} << 16U | l.cp, l.pp, l.order}};
}

std::uint32_t PathNumbers::number_of(const GroupPath& path) {
    std::uint64_t hash = static_cast<std::uint64_t>(path.ranks);
    for (const PathLevel& level : path.levels) {
        hash = hash_mix(hash, static_cast<std::uint64_t>(level.members) << 32U ^
                                  static_cast<std::uint64_t>(level.sharing_groups));
    }
    auto& alike = known_[hash];
    for (const auto& [known, number] : alike) {
        if (known == path) return number;
    }
    alike.emplace_back(path, next_);
    return next_++;
}

namespace {

/// Entries of a table that grows with the search; more are thrown away together, because a search
/// does not come back to old ones.
constexpr std::size_t most_entries = 8192;

/// Whose ranks are cut out of those of a stage anew.
bool is_of_experts(Group group) {
    return group == Group::ep || group == Group::etp || group == Group::expert_dp;
}

/// Paths and parameters of the layout.
void set_paths(const PreparedScenario& prepared, const Layout& layout, bool only_experts,
               Workspace::Impl& cache) {
    const Scenario& scenario = prepared.scenario;
    LayoutParts& parts = cache.parts;
    for (std::size_t i = 0; i < group_count; ++i) {
        const auto group = static_cast<Group>(i);
        if (only_experts && !is_of_experts(group)) continue;
        parts.paths[i] = path_of(scenario, layout, group);
        cache.path_numbers[i] = cache.known_paths.number_of(parts.paths[i]);
    }
    parts.collectives.set_paths(cache.path_numbers);
    parts.parameters.clear();
    const ModelSpec& model = scenario.model;
    const Part* trunk = trunk_of(model);
    for (const BlockKind& kind : model.block_kinds) {
        parts.parameters.push_back(
            block_on_rank(kind, trunk == nullptr ? 0 : trunk->hidden, prepared.resolved, layout));
    }
    parts.parameters.push_back(embedding_on_rank(model, prepared.resolved, layout));
    // where one stage holds both ends, a tied table is counted there once
    parts.parameters.push_back(head_on_rank(model, prepared.resolved, layout, layout.pp == 1));
}

UnitsKey units_key(const Layout& l, const CollectiveMemo::PathNumbers& paths) {
    const ShardingKey s = sharding_of(l);
    const auto path = [&](Group group) { return paths[static_cast<std::size_t>(group)]; };
    // operators are the same whether parameters are sharded or not
    const std::uint32_t flags = (s.sp ? 1U : 0U) | static_cast<std::uint32_t>(s.cp_kind) << 1U;
    return {{std::uint32_t{l.tp} << 16U | l.cp,
             std::uint32_t{l.ep} << 16U | static_cast<std::uint32_t>(s.etp), flags, path(Group::tp),
             path(Group::cp), path(Group::ep), path(Group::etp)}};
}

PlainUnitKey plain_unit_key(const Layout& l, const UnitsKey& units, std::size_t unit) {
    return {{l.micro_batch, units.fields[0], units.fields[2], units.fields[3], units.fields[4],
             static_cast<std::uint32_t>(unit)}};
}

bool has_experts(const BlockKind& kind) { return kind.ffn.kind == FfnKind::moe; }

/// The work of one unit. Operators that are built for it are left in `ops`.
UnitWork unit_work(const StepContext& step, const Layout& layout, const UnitsKey& key,
                   std::size_t unit, bool routes, UnitOps& ops, Workspace::Impl& cache) {
    const auto index = static_cast<std::int64_t>(unit);
    UnitWork work;
    if (!routes) {
        ops.before = unit_ops(step, layout, index);
        work.add(ops.before, step.rates);
        return work;
    }
    const PlainWorkKey plain{{layout.micro_batch, key.fields[0], key.fields[2],
                              static_cast<std::uint32_t>(unit)}};
    const auto known = cache.plain_works.find(plain);
    if (known != cache.plain_works.end()) {
        work = known->second;
    } else {
        ops.before = unit_ops(step, layout, index, BlockPart::before_experts);
        work.add(ops.before, step.rates);
        cache.plain_works.emplace(plain, work);
    }
    ops.from = unit_ops(step, layout, index, BlockPart::from_experts);
    work.add(ops.from, step.rates);
    return work;
}

/// The work of the units that read how experts are split: those that have some, or (for want of
/// any) all.
const std::vector<UnitWork>& unit_works(const StepContext& step, const Layout& layout,
                                        const UnitsKey& key, const std::vector<bool>& routes,
                                        bool any_experts, Workspace::Impl& cache) {
    const WorkKey sharding{{key.fields[0], key.fields[1], key.fields[2]}};
    const std::vector<UnitWork>* known = cache.works.find(sharding, layout.micro_batch);
    if (known != nullptr) return *known;
    if (cache.works.size() >= most_entries) {
        cache.works.clear();
        cache.plain_works.clear();
    }
    std::vector<UnitWork> works(routes.size());
    for (std::size_t unit = 0; unit < works.size(); ++unit) {
        if (routes[unit] || !any_experts) {
            works[unit] =
                unit_work(step, layout, key, unit, routes[unit], cache.ops[unit], cache);
        }
    }
    return cache.works.insert(sharding, layout.micro_batch, std::move(works));
}

/// Times of block kinds, embedding and head. The operators that are built for them go to the memory
/// estimate too.
std::vector<UnitTime> unit_times(const PreparedScenario& prepared, const LayoutTables& tables,
                                 const Layout& layout, const UnitsKey& key,
                                 Workspace::Impl& cache) {
    const std::vector<BlockKind>& kinds = prepared.scenario.model.block_kinds;
    const StepContext& step = prepared.step;
    const bool any_experts = std::any_of(kinds.begin(), kinds.end(), has_experts);
    std::vector<bool> routes;
    for (const BlockKind& kind : kinds)
        routes.push_back(has_experts(kind));
    routes.resize(kinds.size() + 2);
    cache.ops.assign(routes.size(), {});
    const std::vector<UnitWork>& works =
        unit_works(step, layout, key, routes, any_experts, cache);
    const auto price = [&](const UnitWork& work, std::size_t unit) {
        return unit_time(work, step.rates, step.overlap, cache.parts.paths, cache.parts.collectives,
                         layout.cp_kind, unit < kinds.size());
    };
    std::vector<UnitTime> out;
    out.reserve(routes.size());
    for (std::size_t unit = 0; unit < routes.size(); ++unit) {
        if (routes[unit] || !any_experts) {
            out.push_back(price(works[unit], unit));
            continue;
        }
        const PlainUnitKey plain = plain_unit_key(layout, key, unit);
        auto it = cache.plain_units.find(plain);
        if (it == cache.plain_units.end()) {
            const UnitWork work =
                unit_work(step, layout, key, unit, false, cache.ops[unit], cache);
            it = cache.plain_units.emplace(plain, price(work, unit)).first;
        }
        out.push_back(it->second);
    }
    take_operators({prepared.scenario, prepared.resolved, tables}, layout, cache.ops, cache.memory);
    return out;
}

/// Everything but the times of units.
void begin_row(const PreparedScenario& prepared, const Layout& layout, Workspace::Impl& cache) {
    const DensePathsKey dense = dense_paths_key(layout);
    const ExpertPathsKey expert = expert_paths_key(layout);
    const bool first = cache.parts.parameters.empty();
    const bool same = !first && dense == cache.dense_key;
    if (!same || !(expert == cache.expert_key)) {
        set_paths(prepared, layout, same, cache);
        cache.dense_key = dense;
        cache.expert_key = expert;
    }
    cache.units_key = units_key(layout, cache.path_numbers);
    cache.parts.row = cache.row_number;
}

} // namespace

const LayoutParts& cached_parts(const PreparedScenario& prepared, const LayoutTables& tables,
                                const Layout& layout, Workspace::Impl& cache) {
    LayoutParts& parts = cache.parts;
    if (cache.lender != nullptr) std::swap(parts.units, *cache.lender);
    cache.lender = nullptr;
    if (parts.row != cache.row_number) begin_row(prepared, layout, cache);
    const UnitsKey& units = cache.units_key;
    cache.lender = cache.units.find(units, layout.micro_batch);
    if (cache.lender == nullptr) {
        if (cache.units.size() >= most_entries) {
            cache.units.clear();
            cache.plain_units.clear();
        }
        cache.lender = &cache.units.insert(units, layout.micro_batch,
                                           unit_times(prepared, tables, layout, units, cache));
    }
    std::swap(parts.units, *cache.lender);
    return parts;
}

namespace {

/// Price and power of the ranks of all classes; 0 where one is not known.
void add_running_costs(const Scenario& scenario, PlacedRanks& out) {
    bool priced = true;
    bool powered = true;
    for (const RankClass& rank_class : out.classes) {
        const auto group = static_cast<std::size_t>(rank_class.node_group);
        const double price = scenario.cluster.node_groups[group].price_per_device_hour;
        const double watts = scenario.devices[group].tdp_watts;
        priced = priced && price > 0.0;
        powered = powered && watts > 0.0;
        out.price_per_hour += static_cast<double>(rank_class.count) * price;
        out.watts += static_cast<double>(rank_class.count) * watts;
    }
    if (!priced) out.price_per_hour = 0.0;
    if (!powered) out.watts = 0.0;
}

template <class Key, class Value, class Build>
const Value* look_up(LastAndAll<Key, Value>& cache, const Key& key, const Build& build) {
    if (cache.last != nullptr && key == cache.last_key) return cache.last;
    auto it = cache.all.find(key);
    if (it == cache.all.end()) {
        if (cache.all.size() >= most_entries) cache.all.clear();
        it = cache.all.emplace(key, build()).first;
    }
    cache.last_key = key;
    cache.last = &it->second;
    return cache.last;
}

} // namespace

PlacedLayout cached_placement(const PreparedScenario& prepared, const LayoutTables& tables,
                              const Layout& layout, Workspace::Impl& cache) {
    PlacedLayout& out = cache.placed;
    if (cache.placed_row == cache.row_number) return out;
    const Scenario& scenario = prepared.scenario;
    out.model = look_up(cache.models, stages_key(layout), [&] {
        PlacedModel placed;
        placed.stages =
            stages_of(scenario.model, layout, tables, scenario.stack.capabilities.partition);
        placed.runs = runs_of(stage_shapes(scenario.model, layout,
                                           tables.recompute(layout.recompute), placed.stages));
        return placed;
    });
    out.ranks = look_up(cache.ranks, classes_key(layout), [&] {
        PlacedRanks placed;
        placed.classes = rank_classes_of(scenario, layout);
        add_running_costs(scenario, placed);
        return placed;
    });
    cache.placed_row = cache.row_number;
    return out;
}

} // namespace shardplan::sim
