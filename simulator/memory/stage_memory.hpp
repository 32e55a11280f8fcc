#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulator/memory/memory.hpp"
#include "simulator/memory/profile.hpp"
#include "simulator/memory/stage_outline.hpp"
#include "simulator/memory/states.hpp"
#include "simulator/units/recent_table.hpp"
#include "simulator/units/shelf_cache.hpp"

/// Private to simulator/memory: the cached parts of an estimate, each keyed by the projection of
/// the Layout that it reads.
namespace shardplan::sim {

struct ShardingHash {
    std::size_t operator()(const ShardingKey& key) const;
};

/// The figures of a UnitProfile that every layout reads, close together.
struct UnitBytes {
    double stored = 0.0;
    double forward = 0.0;  ///< peak
    double backward = 0.0; ///< peak
};

/// Every unit of the model under one sharding and each kind of recomputation.
struct ShardedUnits {
    struct Unit {
        UnitBytes bytes;
        const UnitProfile* profile = nullptr; ///< lent by a PlainUnit, or by `own`
    };
    std::vector<Unit> units;
    std::vector<UnitProfile> own; ///< of blocks with experts
    std::uint64_t number = 0;     ///< of its own
    bool routes = false;          ///< some have experts
    double residual = 0.0;        ///< bytes of the residual stream
    double scores = 0.0;          ///< of one block, where they are written to memory
    double logits = 0.0;          ///< that the loss keeps

    static constexpr std::size_t recompute_kinds = EnumNames<Recompute>::names.size();
    [[nodiscard]] std::size_t index_of(std::int64_t unit, Recompute recompute) const {
        return unit >= 0 ? recompute_kinds * static_cast<std::size_t>(unit) +
                               static_cast<std::size_t>(recompute)
                         : units.size() - (unit == head_unit ? 1 : 2);
    }
};

/// The projection that an outline reads.
struct OutlineKey {
    std::int64_t micro_batches = 1; ///< representative
    std::int64_t recomputed_layers = 0;
    std::uint32_t stage_map = 0;
    std::uint16_t pp = 1;
    std::uint16_t chunks = 1;
    ScheduleKind schedule = ScheduleKind::one_f_one_b;

    friend bool operator==(const OutlineKey&, const OutlineKey&) = default;
};
struct OutlineHash {
    std::size_t operator()(const OutlineKey& key) const;
};

/// The projection that parameters on a stage read: an outline for any number of micro-batches, and
/// what splits parameters before data parallelism.
struct ParametersKey {
    OutlineKey outline;
    std::int32_t tp = 1;
    std::int32_t ep = 1;
    std::int32_t etp = 1;

    friend bool operator==(const ParametersKey&, const ParametersKey&) = default;
};
struct ParametersHash {
    std::size_t operator()(const ParametersKey& key) const;
};

/// The projection that states on a stage read.
struct StatesKey {
    ParametersKey parameters;
    std::uint32_t dp = 0;
    std::uint32_t shard_group = 0;
    std::uint16_t cp = 0;
    std::uint16_t offload_optimizer = 0;
    std::uint16_t offload_parameters = 0;
    Shard shard = Shard::none;
    bool reshard = true;
    std::uint8_t prefetch = 1;
    WrapUnit wrap = WrapUnit::block;

    friend bool operator==(const StatesKey&, const StatesKey&) = default;
};

/// What stays through the step on a rank of a stage, and what sharding adds in each phase.
struct StateFigures {
    struct Sum {
        BytesByKind kinds;
        double bytes = 0.0;
    };
    StageParameters parameters;
    Sum persistent;
    Sum early; ///< persistent before there are gradients
    Sum gathered_forward, gathered_loss, gathered_backward;
    Sum step; ///< temporaries of the optimizer
    /// Of stacks whose units are whole one by one, in place of the gathered ones.
    StageWindows windows;
    double value_bytes = 0.0; ///< of one of their elements
    double gradient_bytes = 0.0;
};

/// Distinct shapes (n, k) of the products of one unit that have weight gradients.
using ProductShapes = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Block kinds, then embedding and head.
std::vector<std::int64_t> units_of(const ModelSpec& model);
OpList ops_of(const MemoryInputs& in, std::int64_t unit, const ShardingKey& sharding,
              BlockPart part = BlockPart::whole);
/// What the units read of a sharding. Only checkpoints cut over tp ask whether parameters are
/// sharded.
ShardingKey units_sharding(const MemoryInputs& in, const Layout& layout);
/// The units of a sharding, from the cache. `row`: without the micro-batch.
const ShardedUnits& sharded_units(const MemoryInputs& in, const ShardingKey& row,
                                  std::int64_t micro_batch, MemoryCache& cache);

/// Where the live set of a stage peaks in one phase.
struct LivePeak {
    double bytes = 0.0;
    const Instant* at = nullptr; ///< none where the stage has no such phase
    std::uint32_t run = 0;       ///< units of the chunk that are running
    std::uint32_t unit = 0;      ///< which of them
    PassKind pass = PassKind::forward;
    double gathered = 0.0; ///< of `bytes`: whole values and gradients of units
    double gradients = 0.0;
    double messages = 0.0; ///< of `bytes`: buffers of messages to come
    bool normed = false;   ///< the unit's peak is that of `normed`

    [[nodiscard]] const UnitPeak& of(const UnitProfile& running, bool splits) const {
        return normed && running.normed.op >= 0 ? running.normed : running.peak(pass, splits);
    }
};

/// What one chunk holds per micro-batch, and its peaks beyond what was alive before.
struct ChunkFigures {
    double stored = 0.0;
    double kept = 0.0;    ///< of `stored`: all units but the head
    double largest = 0.0; ///< of one unit but the head
    double waiting = 0.0; ///< for gradients of weights
    LivePeak forward, loss, backward;
    LivePeak weight; ///< beside what waits of others
};

/// What of a unit does not depend on how experts are split.
struct PlainUnit {
    std::vector<UnitProfile> profiles; ///< of a unit without experts
    std::optional<UnitWalk> walk;      ///< up to the experts of one that has some
};

/// Bytes on a rank of one stage besides its states.
struct StageFigures {
    LivePeak forward, loss, backward;
    double alone = 0.0;       ///< worst backward pass of one chunk with nothing else alive
    double stored = 0.0;      ///< of all units but the head, at the fullest instant
    double offloadable = 0.0; ///< stored activations that no running unit needs
    double offloadable_at_loss = 0.0;
    double messages = 0.0;
    double buffer = 0.0; ///< global gather and score buffers
    double earlier_logits = 0.0;
};

/// What StageFigures read beside the Scenario.
struct FiguresKey {
    std::uint64_t units = 0; ///< number; 0: empty
    std::uint64_t outline = 0;
    std::size_t stage = 0;
    Recompute recompute = Recompute::none;

    friend bool operator==(const FiguresKey&, const FiguresKey&) = default;
};
/// Headlines of layouts that differ in the micro-batch, and in rank orders that open the same
/// communicators.
struct KnownHeadlines {
    CommunicatorMemory communicators;
    std::vector<std::pair<std::uint32_t, MemoryHeadline>> by_micro_batch;
    std::size_t next = 0; ///< tried first: micro-batches come in the same order again
};
/// The same of all rank orders.
struct OrderedRows {
    Layout common; ///< without micro-batch and order
    std::vector<KnownHeadlines> known;
    std::size_t used = 0;  ///< of `known`
    std::size_t at = 0;    ///< of the last layout
    std::uint64_t row = 0; ///< of the last layout; 0: none
};

struct MemoryCache::Impl {
    /// By sharding without the micro-batch, and the micro-batch.
    ShelfCache<ShardingKey, ShardedUnits, ShardingHash> units;
    /// By sharding without the micro-batch and without the split of experts, and the micro-batch.
    ShelfCache<ShardingKey, std::vector<PlainUnit>, ShardingHash> plain;
    /// By outline without the number of micro-batches, and that number.
    ShelfCache<OutlineKey, PipelineOutline, OutlineHash> outlines;
    std::size_t instants = 0; ///< of all outlines
    std::unordered_map<ParametersKey, std::vector<StageParameters>, ParametersHash> parameters;
    /// By unit: block kinds, embedding, head. Keyed without the outline.
    std::unordered_map<ParametersKey, std::vector<ProductShapes>, ParametersHash> shapes;
    /// By structure. Of late: layouts of the same sharding come back after others.
    RecentTable<StatesKey, std::vector<StateFigures>> known_states{16};
    const std::vector<StateFigures>* states = nullptr; ///< of the last layout
    OrderedRows ordered_rows;
    /// Layouts that differ in the micro-batch only have all but units and outline in common.
    std::uint64_t row = 0;              ///< of the last layout
    ShardingKey row_sharding;           ///< without the micro-batch
    OutlineKey row_outline;             ///< without the number of micro-batches
    std::vector<bool> large_workspaces; ///< by node group
    std::vector<ChunkFigures> scratch;  ///< by group of chunks
    StageFigures of_windows;            ///< last looked up; they are of one layout's states
    /// Of late: layouts that differ in sharding only follow one another closely.
    RecentTable<FiguresKey, StageFigures> figures{4096};
    std::uint64_t last_number = 0; ///< that was given to something cached
    bool keep_ops = false;         ///< explain reads the operators of units
};

/// Everything that the memory of one layout is put together from.
struct LayoutMemory {
    const PipelineOutline* outline = nullptr;
    const ShardedUnits* units = nullptr;
    const std::vector<StateFigures>* states = nullptr;
    std::vector<ChunkFigures>* scratch = nullptr;
    Recompute recompute = Recompute::none;
    std::int64_t micro_batches = 1; ///< representative
    double gathered_residual = 0.0; ///< bytes of the residual stream before sp splits it
    bool sp = false;
    bool grouped_experts = false;

    [[nodiscard]] const StageOutline& stage(std::size_t index) const {
        return outline->stages[index];
    }
    [[nodiscard]] const StateFigures& state(std::size_t index) const {
        return (*states)[outline->stages[index].structure];
    }
    [[nodiscard]] const UnitProfile& profile(const UnitCount& run) const {
        return *units->units[index_of(run)].profile;
    }
    [[nodiscard]] const UnitBytes& bytes(const UnitCount& run) const {
        return units->units[index_of(run)].bytes;
    }
    [[nodiscard]] std::size_t index_of(const UnitCount& run) const {
        return units->index_of(run.unit, run.planned ? recompute : Recompute::none);
    }
};

/// As memory_headline, worked out anew.
MemoryHeadline nearest_headline(const MemoryInputs& in, const Layout& layout,
                                const PlacedStages& placement, MemoryCache& cache);

/// Looks up or builds the parts of a layout. Valid until the cache is used again.
LayoutMemory layout_memory(const MemoryInputs& in, const Layout& layout,
                           const PlacedStages& placement, MemoryCache& cache);

StageFigures stage_figures(const MemoryInputs& in, const LayoutMemory& memory, std::size_t stage);
/// The same, from the cache if they are there. Valid until the next call.
const StageFigures& cached_figures(const MemoryInputs& in, const LayoutMemory& memory,
                                   std::size_t stage, MemoryCache& cache);

/// The live set at a peak, by kind.
void add_live_set(const LayoutMemory& memory, std::size_t stage, const LivePeak& peak,
                  BytesByKind& sum);

/// The tensors alive at a peak of the live set, by kind and name. Needs operators.
std::vector<MemoryPart> live_set_parts(const MemoryInputs& in, const LayoutMemory& memory,
                                       std::size_t stage, const LivePeak& peak);

/// Everything allocated on the device in one phase of one stage, part by part. Needs operators.
std::vector<MemoryPart> allocated_parts(const MemoryInputs& in, const Layout& layout,
                                        const LayoutMemory& memory, std::size_t stage, Phase phase,
                                        bool large_workspaces);

} // namespace shardplan::sim
