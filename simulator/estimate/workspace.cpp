#include "simulator/estimate/workspace.hpp"

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

PartsKey parts_key(const Layout& l) {
    return {{l.dp, l.shard_group, l.micro_batch, std::uint32_t{l.tp} << 16U | l.cp,
             std::uint32_t{l.pp} << 16U | l.ep, l.etp, l.order, l.sp ? 1U : 0U,
             static_cast<std::uint32_t>(l.cp_kind), static_cast<std::uint32_t>(l.shard), l.stack,
             l.comm_policy}};
}

PlacementKey placement_key(const Layout& l) {
    return {{l.dp, std::uint32_t{l.tp} << 16U | l.cp, std::uint32_t{l.pp} << 16U | l.ep, l.etp,
             l.chunks, l.stage_map, l.order, static_cast<std::uint32_t>(l.schedule), l.recompute}};
}

const LayoutParts& cached_parts(const PreparedScenario& prepared, const Layout& layout,
                                Workspace::Impl& cache) {
    const PartsKey key = parts_key(layout);
    const auto it = cache.parts.find(key);
    if (it != cache.parts.end()) return it->second;
    return cache.parts.emplace(key, layout_parts(prepared.step, layout)).first->second;
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
    const auto it = cache.placed.find(key);
    if (it != cache.placed.end()) return it->second;
    PlacedLayout placed;
    placed.placement = place(prepared.scenario, layout, tables);
    placed.shapes = stage_shapes(prepared.scenario.model, layout,
                                 tables.recompute(layout.recompute), placed.placement.stages);
    add_running_costs(prepared.scenario, placed);
    return cache.placed.emplace(key, std::move(placed)).first->second;
}

} // namespace shardplan::sim
