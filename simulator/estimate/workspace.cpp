#include "simulator/estimate/workspace.hpp"

#include <algorithm>
#include <utility>

#include "simulator/network/algorithms.hpp"
#include "simulator/schedule/layout_schedule.hpp"
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

RowPathsKey row_paths_key(const Layout& l) {
    return {{l.dp, l.shard_group, std::uint32_t{l.tp} << 16U | l.cp, l.pp, l.order, l.ep, l.etp,
             static_cast<std::uint32_t>(l.cp_kind)}};
}

StagesKey stages_key(const Layout& l) {
    return {{std::uint32_t{l.pp} << 16U | l.chunks, l.stage_map,
             static_cast<std::uint32_t>(l.schedule), l.recompute}};
}

ClassesKey classes_key(const Layout& l) {
    return {{l.dp, std::uint32_t{l.tp} << 16U | l.cp, l.pp, l.order}};
}

std::size_t GroupRanksHash::operator()(const GroupRanks& ranks) const {
    std::size_t hash = hash_mix(static_cast<std::uint64_t>(ranks.all),
                                static_cast<std::uint64_t>(ranks.first_stride));
    for (const StridedRanks& run : ranks.runs) {
        hash = hash_mix(hash, static_cast<std::uint64_t>(run.stride) << 32U ^
                                  static_cast<std::uint64_t>(run.size));
    }
    return hash;
}

const PathTable::Entry& PathTable::find(const Scenario& scenario, const GroupRanks& ranks) {
    const auto known = by_ranks_.find(ranks);
    if (known != by_ranks_.end()) return *known->second;
    const Entry& entry = number(tiers_of(scenario, ranks));
    by_ranks_.emplace(ranks, &entry);
    return entry;
}

const PathTable::Entry& PathTable::number(GroupPath path) {
    std::uint64_t hash = static_cast<std::uint64_t>(path.ranks);
    for (const PathLevel& level : path.levels) {
        hash = hash_mix(hash, static_cast<std::uint64_t>(level.members) << 32U ^
                                  static_cast<std::uint64_t>(level.sharing_groups));
    }
    std::vector<std::unique_ptr<Entry>>& alike = known_[hash];
    for (const std::unique_ptr<Entry>& entry : alike) {
        if (entry->path == path) return *entry;
    }
    path.costs = cost_lines(path);
    alike.push_back(std::make_unique<Entry>(Entry{std::move(path), next_++}));
    return *alike.back();
}

void PathTable::clear() {
    by_ranks_.clear();
    known_.clear();
}

namespace {

/// Entries of a table that grows with the search; more are thrown away together, because a search
/// does not come back to old ones.
constexpr std::size_t most_entries = 16384;

/// Paths of the layout, and what follows from them.
const RowPaths& cached_paths(const PreparedScenario& prepared, const Layout& layout,
                             Workspace::Impl& cache) {
    if (cache.paths_row == cache.row_number) return cache.paths;
    const RowPathsKey key = row_paths_key(layout);
    const std::size_t hash = ProjectionHash()(key);
    const RowPaths* known = cache.known_paths.find(key, hash);
    if (known == nullptr) {
        if (cache.path_table.size() >= most_entries) {
            cache.path_table.clear();
            cache.known_paths.clear();
        }
        RowPaths& made = cache.known_paths.take(key, hash);
        const auto ranks = all_group_ranks(layout);
        for (std::size_t i = 0; i < group_count; ++i) {
            const PathTable::Entry& entry = cache.path_table.find(prepared.scenario, ranks[i]);
            made.paths[i] = &entry.path;
            made.numbers[i] = entry.number;
        }
        made.spread = link_spread(made.paths);
        made.communicators = communicators_of(made.paths, layout);
        known = &made;
    }
    cache.paths = *known;
    cache.paths_row = cache.row_number;
    return cache.paths;
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

/// Work of what how experts are split does not concern, by unit. Operators that are built for it
/// are left in `ops`.
const std::vector<UnitWork>& plain_works(const PreparedScenario& prepared, const Layout& layout,
                                         Workspace::Impl& cache) {
    const PlainWorkKey key{{cache.units_key.fields[0], cache.units_key.fields[2]}};
    const std::vector<UnitWork>* known = cache.plain_works.find(key, layout.micro_batch);
    if (known != nullptr) return *known;
    std::vector<UnitWork> works(prepared.routes.size());
    for (std::size_t unit = 0; unit < works.size(); ++unit) {
        OpList& ops = cache.ops[unit].before;
        ops = unit_ops(prepared.step, layout, static_cast<std::int64_t>(unit),
                       BlockPart::before_experts, std::move(ops));
        works[unit].add(ops, prepared.step.rates);
    }
    return cache.plain_works.insert(key, layout.micro_batch, std::move(works));
}

/// Work of the units with experts, in their order.
const std::vector<UnitWork>& routed_works(const PreparedScenario& prepared, const Layout& layout,
                                          Workspace::Impl& cache) {
    const UnitsKey& units = cache.units_key;
    const WorkKey key{{units.fields[0], units.fields[1], units.fields[2]}};
    const std::vector<UnitWork>* known = cache.works.find(key, layout.micro_batch);
    if (known != nullptr) return *known;
    const std::vector<UnitWork>& plain = plain_works(prepared, layout, cache);
    std::vector<UnitWork> works;
    works.reserve(plain.size());
    for (std::size_t unit = 0; unit < plain.size(); ++unit) {
        if (!prepared.routes[unit]) continue;
        OpList& ops = cache.ops[unit].from;
        ops = unit_ops(prepared.step, layout, static_cast<std::int64_t>(unit),
                       BlockPart::from_experts, std::move(ops));
        works.push_back(plain[unit]);
        works.back().add(ops, prepared.step.rates);
    }
    return cache.works.insert(key, layout.micro_batch, std::move(works));
}

UnitTime price(const PreparedScenario& prepared, const Layout& layout, const UnitWork& work,
               std::size_t unit, Workspace::Impl& cache) {
    const bool is_block = unit < prepared.scenario.model.block_kinds.size();
    return unit_time(work, prepared.step.rates, prepared.step.overlap, cache.parts.paths,
                     cache.parts.collectives, layout.cp_kind, is_block);
}

/// Times of units without experts, by unit.
const std::vector<UnitTime>& plain_units(const PreparedScenario& prepared, const Layout& layout,
                                         Workspace::Impl& cache) {
    const UnitsKey& units = cache.units_key;
    const PlainUnitsKey key{{units.fields[0], units.fields[2], units.fields[3], units.fields[4]}};
    const std::vector<UnitTime>* known = cache.plain_units.find(key, layout.micro_batch);
    if (known != nullptr) return *known;
    const std::vector<UnitWork>& works = plain_works(prepared, layout, cache);
    std::vector<UnitTime> times(works.size());
    for (std::size_t unit = 0; unit < times.size(); ++unit) {
        if (!prepared.routes[unit]) {
            times[unit] = price(prepared, layout, works[unit], unit, cache);
        }
    }
    return cache.plain_units.insert(key, layout.micro_batch, std::move(times));
}

/// Times of block kinds, embedding and head. The operators that are built for them go to the memory
/// estimate too.
const PricedUnits& build_units(const PreparedScenario& prepared, const LayoutTables& tables,
                               const Layout& layout, Workspace::Impl& cache) {
    if (cache.units.size() >= most_entries) {
        cache.units.clear();
        cache.plain_units.clear();
        cache.works.clear();
        cache.plain_works.clear();
    }
    cache.ops.resize(prepared.routes.size());
    for (UnitOps& ops : cache.ops) {
        ops.before.clear();
        ops.from.clear();
    }
    const std::vector<UnitTime>& plain = plain_units(prepared, layout, cache);
    const std::vector<UnitWork>& works = routed_works(prepared, layout, cache);
    PricedUnits out;
    out.number = ++cache.last_number;
    out.own.reserve(works.size());
    out.all.reserve(plain.size());
    for (std::size_t unit = 0; unit < plain.size(); ++unit) {
        if (prepared.routes[unit]) {
            out.own.push_back(price(prepared, layout, works[out.own.size()], unit, cache));
            out.all.push_back(&out.own.back());
        } else {
            out.all.push_back(&plain[unit]);
        }
    }
    take_operators({prepared.scenario, prepared.resolved, tables}, layout, cache.ops, cache.memory);
    return cache.units.insert(cache.units_key, layout.micro_batch, std::move(out));
}

/// Everything but the times of units.
void begin_row(const PreparedScenario& prepared, const Layout& layout, Workspace::Impl& cache) {
    LayoutParts& parts = cache.parts;
    const RowPaths& paths = cached_paths(prepared, layout, cache);
    parts.paths = paths.paths;
    parts.spread = paths.spread;
    parts.collectives.set_paths(paths.numbers);
    const UnitParametersKey key{
        {std::uint32_t{layout.tp} << 16U | layout.ep,
         std::uint32_t{layout.etp} << 1U | (has_both_ends(layout) ? 1U : 0U)}};
    if (parts.parameters.empty() || !(key == cache.parameters_key)) {
        set_unit_parameters(prepared.scenario.model, prepared.resolved, layout, parts.parameters);
        cache.parameters_key = key;
    }
    cache.units_key = units_key(layout, paths.numbers);
    parts.row = cache.row_number;
}

} // namespace

const LayoutParts& cached_parts(const PreparedScenario& prepared, const LayoutTables& tables,
                                const Layout& layout, Workspace::Impl& cache) {
    LayoutParts& parts = cache.parts;
    if (parts.row != cache.row_number) begin_row(prepared, layout, cache);
    const PricedUnits* units = cache.units.find(cache.units_key, layout.micro_batch);
    if (units == nullptr) units = &build_units(prepared, tables, layout, cache);
    parts.units = UnitTimes(units->all);
    parts.units_number = units->number;
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

const PlacedLayout& cached_placement(const PreparedScenario& prepared, const LayoutTables& tables,
                                     const Layout& layout, Workspace::Impl& cache) {
    PlacedLayout& out = cache.placed;
    if (out.row == cache.row_number) return out;
    const Scenario& scenario = prepared.scenario;
    out.model = look_up(cache.models, stages_key(layout), [&] {
        PlacedModel placed;
        placed.number = ++cache.last_number;
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
    cache.parts.runs_number = out.model->number;
    out.communicators = cached_paths(prepared, layout, cache).communicators;
    out.row = cache.row_number;
    return out;
}

} // namespace shardplan::sim
