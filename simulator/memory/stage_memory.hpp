#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simulator/memory/memory.hpp"
#include "simulator/memory/profile.hpp"
#include "simulator/memory/states.hpp"

/// Private to simulator/memory: the cached parts of an estimate.
namespace shardplan::sim {

/// The projection of a Layout that the live set of its stages reads.
struct StageKey {
    ShardingKey sharding;
    std::int32_t pp = 1;
    std::int32_t chunks = 1;
    std::int64_t micro_batches = 1; ///< representative
    std::uint32_t stage_map = 0;
    std::uint32_t recompute = 0;
    ScheduleKind schedule = ScheduleKind::one_f_one_b;

    friend bool operator==(const StageKey&, const StageKey&) = default;
};
struct StageKeyHash {
    std::size_t operator()(const StageKey& key) const;
};

/// Everything about one stage that does not depend on how data-parallel ranks share states.
struct StageMemory {
    StageParameters parameters;
    LiveSet live;
    std::vector<std::vector<UnitRun>> units; ///< per chunk, for explain
    double stored_bytes = 0.0; ///< of all units but the head, at the fullest instant
    double offloadable_bytes = 0.0; ///< stored activations that no running unit needs
    double message_bytes = 0.0;
    double buffer_bytes = 0.0; ///< global gather buffer
    double earlier_logits = 0.0;
    bool grouped_experts = false;
};

struct MemoryCache::Impl {
    struct UnitKey {
        std::int64_t kind = 0; ///< block kind; -1 embedding, -2 head
        ShardingKey sharding;
        Recompute recompute = Recompute::none;
        friend bool operator==(const UnitKey&, const UnitKey&) = default;
    };
    struct UnitKeyHash {
        std::size_t operator()(const UnitKey& key) const;
    };
    std::unordered_map<UnitKey, std::unique_ptr<UnitProfile>, UnitKeyHash> units;
    std::unordered_map<StageKey, std::vector<StageMemory>, StageKeyHash> stages;
};

/// The stages of a layout, from the cache.
const std::vector<StageMemory>& stage_memories(const MemoryInputs& in, const Layout& layout,
                                               const Placement& placement, MemoryCache& cache);

/// The tensors alive at a peak of the live set, by kind and name.
std::vector<MemoryPart> live_set_parts(const MemoryInputs& in, const StageMemory& stage,
                                       const UnitPeak& peak);

/// Everything allocated on the device in one phase of one stage, part by part.
std::vector<MemoryPart> allocated_parts(const MemoryInputs& in, const Layout& layout,
                                        const StageMemory& stage, Phase phase, const Device& device);

} // namespace shardplan::sim
