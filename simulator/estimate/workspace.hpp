#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/estimate/step_time.hpp"
#include "simulator/memory/memory.hpp"

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

/// What paths and parameters of LayoutParts read.
using PathsKey = Projection<7>;
PathsKey paths_key(const Layout& layout);
/// What stages and rank classes read.
using PlacementKey = Projection<7>;
PlacementKey placement_key(const Layout& layout);
/// What the times of units read: the sharding, and which paths its groups take (by number).
using UnitsKey = Projection<8>;
/// The same for one unit without experts: how experts are split does not concern it.
using PlainUnitKey = Projection<6>;

/// Where the ranks of a layout sit and what each stage runs.
struct PlacedLayout {
    Placement placement;
    std::vector<StageShape> shapes;
    /// Index of the first of each run of equal shapes, and how many there are.
    std::vector<std::pair<std::size_t, std::int64_t>> distinct;
    double price_per_hour = 0.0; ///< of all ranks; 0 = some price is not known
    double watts = 0.0;          ///< of all ranks at board power; 0 = some are not known
};

struct Workspace::Impl {
    const void* owner = nullptr; ///< the Scenario the caches belong to
    /// Parts of the last layout. Its paths and parameters belong to `parts_key`; its times of units
    /// are lent by an entry of `units` and go back there.
    LayoutParts parts;
    PathsKey parts_key;
    std::vector<UnitTime>* lender = nullptr;
    std::array<std::uint32_t, 4> path_numbers{}; ///< of tp, cp, ep, etp
    std::vector<GroupPath> known_paths;          ///< by number
    std::unordered_map<UnitsKey, std::vector<UnitTime>, ProjectionHash> units;
    std::unordered_map<PlainUnitKey, UnitTime, ProjectionHash> plain_units;
    std::unordered_map<PlacementKey, PlacedLayout, ProjectionHash> placed;
    PlacementKey last_placed_key;
    const PlacedLayout* last_placed = nullptr;
    MemoryCache memory;
    StepScratch step;

    /// Empties the caches if they belong to another Scenario.
    void bind(const void* scenario);
};

/// What is derived from a Scenario once.
struct PreparedScenario {
    Scenario scenario;
    Resolved resolved;
    StepContext step;
    Flops model_flops;             ///< of a step
    Flops block_forward_flops;     ///< what full recomputation adds
    Flops selective_forward_flops; ///< what selective recomputation adds
    double peak = 0.0;             ///< flops/s of one device, compute format
    bool calibrated = false;       ///< constants measured on this machine take part
};

/// Equal to `layout_parts`. Valid until the next call.
const LayoutParts& cached_parts(const PreparedScenario& prepared, const LayoutTables& tables,
                                const Layout& layout, Workspace::Impl& cache);
const PlacedLayout& cached_placement(const PreparedScenario& prepared, const LayoutTables& tables,
                                     const Layout& layout, Workspace::Impl& cache);

} // namespace shardplan::sim
