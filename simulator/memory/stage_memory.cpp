#include "simulator/memory/stage_memory.hpp"

#include <algorithm>
#include <set>

#include "simulator/compute/op_builder.hpp"
#include "simulator/schedule/pass_order.hpp"

namespace shardplan::sim {

namespace {

constexpr std::int64_t embedding_unit = -1;
constexpr std::int64_t head_unit = -2;

std::size_t mix(std::size_t seed, std::uint64_t value) {
    // splitmix64: spreads neighbouring small integers over the whole word
    std::uint64_t x = seed + 0x9E3779B97F4A7C15ULL + value;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return static_cast<std::size_t>(x ^ (x >> 31U));
}

std::size_t hash_of(const ShardingKey& k, std::size_t seed) {
    seed = mix(seed, static_cast<std::uint64_t>(k.micro_batch));
    seed = mix(seed, static_cast<std::uint64_t>(k.tp) << 32U | static_cast<std::uint64_t>(k.cp));
    seed = mix(seed, static_cast<std::uint64_t>(k.ep) << 32U | static_cast<std::uint64_t>(k.etp));
    return mix(seed, static_cast<std::uint64_t>(k.cp_kind) << 2U |
                         static_cast<std::uint64_t>(k.sp ? 2 : 0) |
                         static_cast<std::uint64_t>(k.sharded_parameters ? 1 : 0));
}

const Part& trunk(const MemoryInputs& in) { return *trunk_of(in.scenario.model); }

double residual_bytes(const MemoryInputs& in, const ShardingKey& sharding) {
    const OpContext c = op_context(in.scenario.model, in.resolved, in.scenario.stack, sharding,
                                   trunk(in).hidden);
    return c.element * static_cast<double>(trunk(in).hidden) * c.local_tokens;
}

/// Scores of one block where they are written to memory; 0 under fused attention.
double score_bytes(const MemoryInputs& in, const ShardingKey& sharding) {
    const bool unfused = in.resolved.attention == AttentionImpl::unfused ||
                         in.resolved.attention == AttentionImpl::fused_softmax;
    double heads = 0.0;
    for (const BlockKind& kind : in.scenario.model.block_kinds) {
        heads = std::max(heads, static_cast<double>(kind.attention.heads));
    }
    const auto sequence = static_cast<double>(in.resolved.sequence);
    return unfused ? 2.0 * heads / sharding.tp * static_cast<double>(sharding.micro_batch) *
                         sequence * sequence / sharding.cp
                   : 0.0;
}

const UnitProfile& unit_profile(const MemoryInputs& in, std::int64_t kind,
                                const ShardingKey& sharding, Recompute recompute,
                                MemoryCache& cache) {
    auto& slot = cache.impl().units[{kind, sharding, recompute}];
    if (slot) {
        return *slot;
    }
    const ModelSpec& model = in.scenario.model;
    const StackProfile& stack = in.scenario.stack;
    const double residual = residual_bytes(in, sharding);
    // DeepSpeed can cut the kept inputs of recomputed blocks over the tensor-parallel group; runs
    // that split parameters too are known to do so.
    const bool cut = stack.tensors.partitioned_checkpoints && sharding.sharded_parameters &&
                     !sharding.sp;
    const double kept = cut ? residual / sharding.tp : residual;
    OpList ops;
    if (kind == embedding_unit) {
        ops = embedding_ops(model, in.resolved, stack, sharding);
    } else if (kind == head_unit) {
        ops = head_ops(model, in.resolved, stack, sharding);
    } else {
        ops = block_ops(model.block_kinds[static_cast<std::size_t>(kind)], trunk(in).hidden, model,
                        in.resolved, stack, sharding);
    }
    const bool block = kind >= 0;
    slot = std::make_unique<UnitProfile>(profile_unit(std::move(ops),
                                                      block ? recompute : Recompute::none,
                                                      stack.tensors, kept,
                                                      kind == head_unit ? 0.0 : residual));
    return *slot;
}

/// Multi-token prediction: each module is a block with a head of its own.
void add_prediction_modules(const MemoryInputs& in, const ShardingKey& sharding,
                            Recompute recompute, MemoryCache& cache, std::vector<UnitRun>& out) {
    for (const Part& part : in.scenario.model.parts) {
        if (part.role != PartRole::mtp) {
            continue;
        }
        for (const Run& run : part.runs) {
            out.push_back({&unit_profile(in, run.kind, sharding, recompute, cache), run.count,
                           false, recompute});
            out.push_back({&unit_profile(in, head_unit, sharding, Recompute::none, cache),
                           run.count, true, Recompute::none});
        }
    }
}

/// Units of one chunk in forward order. `recomputed` of the slice's first blocks are recomputed.
std::vector<UnitRun> chunk_units(const MemoryInputs& in, const Stage& stage, std::size_t chunk,
                                 const ShardingKey& sharding, const RecomputePlan& plan,
                                 MemoryCache& cache) {
    std::vector<UnitRun> out;
    if (stage.has_embedding && chunk == 0) {
        out.push_back({&unit_profile(in, embedding_unit, sharding, Recompute::none, cache), 1, false,
                       Recompute::none});
    }
    const auto chunks = static_cast<std::int64_t>(stage.chunks.size());
    std::int64_t recomputed = stage.chunks[chunk].count;
    if (plan.kind == Recompute::full && plan.layers_per_stage > 0) {
        // k blocks of the stage, spread over its chunks from the first on
        const auto c = static_cast<std::int64_t>(chunk);
        recomputed = std::min(recomputed, plan.layers_per_stage / chunks +
                                              (c < plan.layers_per_stage % chunks ? 1 : 0));
    }
    for (const KindCount& run : kinds_in(trunk(in), stage.chunks[chunk])) {
        const std::int64_t first = std::min(run.count, recomputed);
        recomputed -= first;
        if (first > 0) {
            out.push_back(
                {&unit_profile(in, run.kind, sharding, plan.kind, cache), first, false, plan.kind});
        }
        if (run.count > first) {
            const Recompute rest = plan.kind == Recompute::full ? Recompute::none : plan.kind;
            out.push_back(
                {&unit_profile(in, run.kind, sharding, rest, cache), run.count - first, false, rest});
        }
    }
    if (stage.has_head && chunk + 1 == stage.chunks.size()) {
        add_prediction_modules(in, sharding, plan.kind, cache, out);
        out.push_back({&unit_profile(in, head_unit, sharding, Recompute::none, cache), 1, true,
                       Recompute::none});
    }
    return out;
}

/// One gradient per distinct weight shape of the operators on the stage.
double distinct_shapes(const std::vector<std::vector<UnitRun>>& units) {
    std::set<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const auto& chunk : units) {
        for (const UnitRun& run : chunk) {
            for (const Op& op : run.unit->ops) {
                const bool product = op.kind == OpKind::linear || op.kind == OpKind::head ||
                                     op.kind == OpKind::grouped_linear;
                if (product && !op.frozen) {
                    shapes.emplace(op.gemm.n, op.gemm.k);
                }
            }
        }
    }
    double elements = 0.0;
    for (const auto& [n, k] : shapes) {
        elements += static_cast<double>(n) * static_cast<double>(k);
    }
    return elements;
}

StageParameters stage_parameters(const MemoryInputs& in, const Layout& layout, const Stage& stage) {
    StageParameters out;
    const ModelSpec& model = in.scenario.model;
    out.all = stage_on_rank(model, in.resolved, layout, stage);
    for (const Stage::Slice& slice : stage.chunks) {
        for (const KindCount& run : kinds_in(trunk(in), slice)) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
            const RankParameters p = block_on_rank(kind, trunk(in).hidden, in.resolved, layout);
            out.blocks += static_cast<double>(run.count);
            if (p.trained() + p.frozen > out.largest_block.trained() + out.largest_block.frozen) {
                out.largest_block = p;
            }
        }
    }
    if (stage.has_embedding) {
        const RankParameters p = embedding_on_rank(model, in.resolved, layout);
        out.root += p;
        out.root_gradient = p.trained();
    }
    if (stage.has_head) {
        const RankParameters p = head_on_rank(model, in.resolved, layout, stage.has_embedding);
        out.root += p;
        out.root_gradient = std::max(out.root_gradient, p.trained());
    }
    return out;
}

StageMemory build_stage(const MemoryInputs& in, const Layout& layout, const StageKey& key,
                        const Stage& stage, std::int64_t index, MemoryCache& cache) {
    const TensorRules& rules = in.scenario.stack.tensors;
    const RecomputePlan plan = in.tables.recompute(layout.recompute);
    StageMemory out;
    std::vector<ChunkProfile> chunks;
    for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
        out.units.push_back(chunk_units(in, stage, c, key.sharding, plan, cache));
        chunks.push_back(profile_chunk(out.units.back()));
    }
    out.live = replay(chunks, layout.schedule, layout.pp, index, key.micro_batches);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        for (const UnitRun& run : out.units[c]) {
            const double per_micro_batch =
                run.head ? 0.0 : static_cast<double>(run.count) * run.unit->stored_bytes();
            out.stored_bytes += static_cast<double>(out.live.in_flight[c]) * per_micro_batch;
        }
    }
    // The unit that runs and the next one must be on the device.
    double largest = 0.0;
    for (const auto& chunk : out.units) {
        for (const UnitRun& run : chunk) {
            largest = std::max(largest, run.head ? 0.0 : run.unit->stored_bytes());
        }
    }
    out.offloadable_bytes = std::max(0.0, out.stored_bytes - 2.0 * largest);
    out.parameters = stage_parameters(in, layout, stage);
    out.parameters.placeholders = distinct_shapes(out.units);
    const double residual = residual_bytes(in, key.sharding);
    if (layout.pp > 1) {
        out.message_bytes = static_cast<double>(rules.message_buffers) * residual;
    }
    const bool gathers = rules.gather_buffer == GatherBuffer::everywhere ||
                         (rules.gather_buffer == GatherBuffer::head && stage.has_head);
    if (gathers && key.sharding.sp) {
        out.buffer_bytes = residual * key.sharding.tp;
    }
    if (rules.score_buffer && plan.kind != Recompute::full) {
        out.buffer_bytes += score_bytes(in, key.sharding);
    }
    if (stage.has_head && key.micro_batches > 1 && rules.output_buffers > 0) {
        const Op& head = out.units.back().back().unit->ops.back();
        for (const StoredTensor& tensor : head.stored) {
            if (tensor.name == "logits") {
                out.earlier_logits = static_cast<double>(rules.output_buffers) * tensor.bytes;
            }
        }
    }
    for (const BlockKind& kind : in.scenario.model.block_kinds) {
        out.grouped_experts = out.grouped_experts || kind.ffn.kind == FfnKind::moe;
    }
    return out;
}

} // namespace

std::size_t StageKeyHash::operator()(const StageKey& k) const {
    std::size_t seed = hash_of(k.sharding, 1);
    seed = mix(seed, static_cast<std::uint64_t>(k.pp) << 32U | static_cast<std::uint64_t>(k.chunks));
    seed = mix(seed, static_cast<std::uint64_t>(k.micro_batches));
    return mix(seed, static_cast<std::uint64_t>(k.stage_map) << 32U |
                         static_cast<std::uint64_t>(k.recompute) << 4U |
                         static_cast<std::uint64_t>(k.schedule));
}

std::size_t MemoryCache::Impl::UnitKeyHash::operator()(const UnitKey& k) const {
    return mix(hash_of(k.sharding, 2), static_cast<std::uint64_t>(k.kind + 2) << 2U |
                                           static_cast<std::uint64_t>(k.recompute));
}

const std::vector<StageMemory>& stage_memories(const MemoryInputs& in, const Layout& layout,
                                               const Placement& placement, MemoryCache& cache) {
    StageKey key;
    key.sharding = sharding_of(layout);
    key.pp = layout.pp;
    key.chunks = layout.chunks;
    key.micro_batches = representative_micro_batches(layout.schedule, layout.pp,
                                                     micro_batches(in.resolved, layout));
    key.stage_map = layout.stage_map;
    key.recompute = layout.recompute;
    key.schedule = layout.schedule;
    auto& slot = cache.impl().stages[key];
    if (slot.empty()) {
        for (std::size_t i = 0; i < placement.stages.size(); ++i) {
            slot.push_back(build_stage(in, layout, key, placement.stages[i],
                                       static_cast<std::int64_t>(i), cache));
        }
    }
    return slot;
}

MemoryCache::MemoryCache() : impl_(std::make_unique<Impl>()) {}
MemoryCache::~MemoryCache() = default;
MemoryCache::MemoryCache(MemoryCache&&) noexcept = default;
MemoryCache& MemoryCache::operator=(MemoryCache&&) noexcept = default;

} // namespace shardplan::sim
