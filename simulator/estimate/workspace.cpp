#include "simulator/estimate/workspace.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::sim {

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

void Workspace::Impl::bind(const void* scenario) {
    if (owner == scenario) return;
    *this = Impl{};
    owner = scenario;
}

PathsKey paths_key(const Layout& l) {
    return {{l.dp, l.shard_group, std::uint32_t{l.tp} << 16U | l.cp,
             std::uint32_t{l.pp} << 16U | l.ep, l.etp, l.order, l.sp ? 1U : 0U}};
}

PlacementKey placement_key(const Layout& l) {
    return {{l.dp, std::uint32_t{l.tp} << 16U | l.cp, std::uint32_t{l.pp} << 16U | l.chunks,
             l.stage_map, l.order, static_cast<std::uint32_t>(l.schedule), l.recompute}};
}

namespace {

/// Entries of a table that grows with the search; more are thrown away together, because a search
/// does not come back to old ones.
constexpr std::size_t most_entries = 8192;

/// Number of a path among those seen. They are few: a path says how a group lies in the nodes.
std::uint32_t number_of(const GroupPath& path, std::vector<GroupPath>& known) {
    const auto it = std::find(known.begin(), known.end(), path);
    const auto number = static_cast<std::uint32_t>(it - known.begin());
    if (it == known.end()) known.push_back(path);
    return number;
}

/// Paths and parameters of the layout.
void set_paths(const PreparedScenario& prepared, const Layout& layout, Workspace::Impl& cache) {
    const Scenario& scenario = prepared.scenario;
    LayoutParts& parts = cache.parts;
    parts.paths = paths_of(scenario, layout);
    parts.spread = link_spread(parts.paths);
    parts.collectives.clear();
    constexpr std::array<Group, 4> of_units = {Group::tp, Group::cp, Group::ep, Group::etp};
    for (std::size_t i = 0; i < of_units.size(); ++i) {
        cache.path_numbers[i] = number_of(path_in(parts.paths, of_units[i]), cache.known_paths);
    }
    parts.parameters = unit_parameters(scenario.model, prepared.resolved, layout);
}

UnitsKey units_key(const Layout& l, const std::array<std::uint32_t, 4>& paths) {
    const ShardingKey s = sharding_of(l);
    // operators are the same whether parameters are sharded or not
    const std::uint32_t flags = (s.sp ? 1U : 0U) | static_cast<std::uint32_t>(s.cp_kind) << 1U;
    return {{l.micro_batch, std::uint32_t{l.tp} << 16U | l.cp,
             std::uint32_t{l.ep} << 16U | static_cast<std::uint32_t>(s.etp), flags, paths[0],
             paths[1], paths[2], paths[3]}};
}

/// Times of block kinds, embedding and head. The operators that are built for them go to the memory
/// estimate too.
std::vector<UnitTime> unit_times(const PreparedScenario& prepared, const LayoutTables& tables,
                                 const Layout& layout, const UnitsKey& key,
                                 Workspace::Impl& cache) {
    const std::vector<BlockKind>& kinds = prepared.scenario.model.block_kinds;
    const StepContext& step = prepared.step;
    const auto has_experts = [](const BlockKind& kind) { return kind.ffn.kind == FfnKind::moe; };
    const bool any_experts = std::any_of(kinds.begin(), kinds.end(), has_experts);
    std::vector<OpList> ops(static_cast<std::size_t>(unit_count(prepared.scenario.model)));
    std::vector<UnitTime> out;
    out.reserve(ops.size());
    for (std::size_t unit = 0; unit < ops.size(); ++unit) {
        const auto price = [&] {
            ops[unit] = unit_ops(step, layout, static_cast<std::int64_t>(unit));
            return unit_time(ops[unit], step.rates, step.overlap, cache.parts.paths, layout.cp_kind,
                             unit < kinds.size());
        };
        if (!any_experts || (unit < kinds.size() && has_experts(kinds[unit]))) {
            out.push_back(price());
            continue;
        }
        const PlainUnitKey plain{{key.fields[0], key.fields[1], key.fields[3],
                                  cache.path_numbers[0], cache.path_numbers[1],
                                  static_cast<std::uint32_t>(unit)}};
        auto it = cache.plain_units.find(plain);
        if (it == cache.plain_units.end()) {
            it = cache.plain_units.emplace(plain, price()).first;
        }
        out.push_back(it->second);
    }
    ops.resize(kinds.size() + 2); // memory knows prediction modules as blocks and heads
    take_operators({prepared.scenario, prepared.resolved, tables}, layout, ops, cache.memory);
    return out;
}

} // namespace

const LayoutParts& cached_parts(const PreparedScenario& prepared, const LayoutTables& tables,
                                const Layout& layout, Workspace::Impl& cache) {
    LayoutParts& parts = cache.parts;
    if (cache.lender != nullptr) std::swap(parts.units, *cache.lender);
    cache.lender = nullptr;
    const PathsKey key = paths_key(layout);
    if (parts.parameters.empty() || !(key == cache.parts_key)) {
        set_paths(prepared, layout, cache);
        cache.parts_key = key;
    }
    const UnitsKey units = units_key(layout, cache.path_numbers);
    auto it = cache.units.find(units);
    if (it == cache.units.end()) {
        if (cache.units.size() >= most_entries) {
            cache.units.clear();
            cache.plain_units.clear();
        }
        it = cache.units.emplace(units, unit_times(prepared, tables, layout, units, cache)).first;
    }
    cache.lender = &it->second;
    std::swap(parts.units, *cache.lender);
    return parts;
}

namespace {

/// Price and power of the ranks of all classes; 0 where one is not known.
void add_running_costs(const Scenario& scenario, PlacedLayout& out) {
    bool priced = true;
    bool powered = true;
    for (const RankClass& rank_class : out.placement.classes) {
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

} // namespace

const PlacedLayout& cached_placement(const PreparedScenario& prepared, const LayoutTables& tables,
                                     const Layout& layout, Workspace::Impl& cache) {
    const PlacementKey key = placement_key(layout);
    if (cache.last_placed != nullptr && key == cache.last_placed_key) return *cache.last_placed;
    cache.last_placed_key = key;
    const auto it = cache.placed.find(key);
    if (it != cache.placed.end()) {
        cache.last_placed = &it->second;
        return it->second;
    }
    if (cache.placed.size() >= most_entries) cache.placed.clear();
    PlacedLayout placed;
    placed.placement = place(prepared.scenario, layout, tables);
    placed.shapes = stage_shapes(prepared.scenario.model, layout,
                                 tables.recompute(layout.recompute), placed.placement.stages);
    for (std::size_t i = 0; i < placed.shapes.size(); ++i) {
        if (i == 0 || !(placed.shapes[i] == placed.shapes[i - 1])) {
            placed.distinct.emplace_back(i, 0);
        }
        ++placed.distinct.back().second;
    }
    add_running_costs(prepared.scenario, placed);
    cache.last_placed = &cache.placed.emplace(key, std::move(placed)).first->second;
    return *cache.last_placed;
}

} // namespace shardplan::sim
