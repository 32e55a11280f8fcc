#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/estimate/step_time.hpp"
#include "simulator/memory/memory.hpp"
#include "simulator/network/communicators.hpp"
#include "simulator/units/recent_table.hpp"
#include "simulator/units/shelf_cache.hpp"

/// Private to estimate: what an Evaluator prepares, and what a Workspace caches.
namespace shardplan::sim {

/// Fields of a Layout that a cached part reads, one type per part.
template <std::size_t N>
struct Projection {
    std::array<std::uint32_t, N> fields{};
    friend bool operator==(const Projection&, const Projection&) = default;
};
struct ProjectionHash {
    template <std::size_t N>
    std::size_t operator()(const Projection<N>& key) const {
        std::uint64_t h = 0x9e3779b97f4a7c15ULL;
        for (const std::uint32_t field : key.fields) {
            h = (h ^ field) * 0xff51afd7ed558ccdULL;
            h ^= h >> 32U;
        }
        return static_cast<std::size_t>(h);
    }
};

/// What the times of units read beside the micro-batch: the sharding, and which paths its groups
/// take (by number).
using UnitsKey = Projection<7>;
/// The same for units without experts: how experts are split does not concern them.
using PlainUnitsKey = Projection<4>;
/// What the work of units reads beside the micro-batch: the sharding.
using WorkKey = Projection<3>;
/// The same for what how experts are split does not concern: units without any, others up to them.
using PlainWorkKey = Projection<2>;

/// Times of all units.
struct PricedUnits {
    std::vector<UnitTime> own;        ///< of those with experts
    std::vector<const UnitTime*> all; ///< others are lent by the cache of plain units
    std::uint64_t number = 0;         ///< of its own
};
/// What stages read.
using StagesKey = Projection<4>;
StagesKey stages_key(const Layout& layout);
/// What rank classes read.
using ClassesKey = Projection<4>;
ClassesKey classes_key(const Layout& layout);

/// What each stage runs.
struct PlacedModel {
    std::vector<Stage> stages;
    std::vector<ShapeRun> runs; ///< of all stages
    std::uint64_t number = 0;   ///< of its own
};
/// Where the ranks of a layout sit.
struct PlacedRanks {
    std::vector<RankClass> classes;
    double price_per_hour = 0.0; ///< of all ranks; 0 = some price is not known
    double watts = 0.0;          ///< of all ranks at board power; 0 = some are not known
};
struct PlacedLayout {
    const PlacedModel* model = nullptr;
    const PlacedRanks* ranks = nullptr;
    CommunicatorMemory communicators;
    std::uint64_t row = 0; ///< number of the row of layouts it is of

    [[nodiscard]] PlacedStages stages() const {
        return {model->stages, ranks->classes, row, &communicators};
    }
};

struct GroupRanksHash {
    std::size_t operator()(const GroupRanks& ranks) const;
};

/// The paths that layouts take. Every path has a number of its own, which it never shares with one
/// that was forgotten.
class PathTable {
public:
    struct Entry {
        GroupPath path;
        std::uint32_t number = 0;
    };
    /// Valid until `clear`.
    const Entry& find(const Scenario& scenario, const GroupRanks& ranks);
    [[nodiscard]] std::size_t size() const { return by_ranks_.size(); }
    void clear();

private:
    const Entry& number(GroupPath path);

    std::unordered_map<GroupRanks, const Entry*, GroupRanksHash> by_ranks_;
    std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<Entry>>> known_;
    std::uint32_t next_ = 0;
};

/// What paths, and whatever follows from them alone, read.
using RowPathsKey = Projection<8>;
RowPathsKey row_paths_key(const Layout& layout);
/// Paths of all groups of a layout, and what follows from them.
struct RowPaths {
    GroupPaths paths{};
    CollectiveMemo::PathNumbers numbers{};
    LinkSpread spread{};
    CommunicatorMemory communicators;
};
/// What parameters of units read.
using UnitParametersKey = Projection<2>;

/// A cache, and what it gave last: layouts that follow one another mostly read the same.
template <class Key, class Value>
struct LastAndAll {
    std::unordered_map<Key, Value, ProjectionHash> all;
    Key last_key;
    const Value* last = nullptr;
};

struct Workspace::Impl {
    const void* owner = nullptr; ///< the Scenario the caches belong to
    LayoutParts parts;           ///< of the last layout
    UnitParametersKey parameters_key;
    UnitsKey units_key;
    std::vector<StageTraffic> traffic; ///< of the layout evaluated last
    PathTable path_table;
    RecentTable<RowPathsKey, RowPaths> known_paths{256};
    RowPaths paths; ///< of the layouts of `paths_row`
    std::uint64_t paths_row = 0;
    /// By what beside the micro-batch they read, and the micro-batch.
    ShelfCache<UnitsKey, PricedUnits, ProjectionHash> units;
    ShelfCache<PlainUnitsKey, std::vector<UnitTime>, ProjectionHash> plain_units;
    ShelfCache<WorkKey, std::vector<UnitWork>, ProjectionHash> works; ///< of units with experts
    ShelfCache<PlainWorkKey, std::vector<UnitWork>, ProjectionHash> plain_works;
    std::vector<UnitOps> ops;      ///< of the sharding that is being built
    std::uint64_t last_number = 0; ///< that was given to something cached
    LastAndAll<StagesKey, PlacedModel> models;
    LastAndAll<ClassesKey, PlacedRanks> ranks;
    PlacedLayout placed; ///< of the last layout
    MemoryCache memory;
    StepScratch step;
    PipelinePasses least; ///< of the last lower bound
    PipelineRoom least_room;

    /// Layouts that differ in the micro-batch only form a row: most of what one of them reads has
    /// been looked up for the one before.
    Layout row;                   ///< of the last layout, with micro-batch 0
    std::uint64_t row_number = 0; ///< counts rows

    /// Empties the caches if they belong to another Scenario, and begins a row where the layout is
    /// not of the last one.
    void bind(const void* scenario, const Layout& layout);
};

/// What is derived from a Scenario once.
struct PreparedScenario {
    Scenario scenario;
    Resolved resolved;
    StepContext step;
    std::vector<bool> routes;      ///< by unit: a block with experts
    Flops model_flops;             ///< of a step
    Flops block_forward_flops;     ///< what full recomputation adds
    Flops selective_forward_flops; ///< what selective recomputation adds
    double peak = 0.0;             ///< flops/s of one device, compute format
    bool calibrated = false;       ///< constants measured on this machine take part
};

/// Equal to `layout_parts`. Valid until the next call.
const LayoutParts& cached_parts(const PreparedScenario& prepared, const LayoutTables& tables,
                                const Layout& layout, Workspace::Impl& cache);
/// Valid until the next call.
const PlacedLayout& cached_placement(const PreparedScenario& prepared, const LayoutTables& tables,
                                     const Layout& layout, Workspace::Impl& cache);

} // namespace shardplan::sim
