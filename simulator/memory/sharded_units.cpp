#include <algorithm>

#include "simulator/compute/op_builder.hpp"
#include "simulator/memory/stage_memory.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

namespace {

constexpr std::size_t recompute_kinds = EnumNames<Recompute>::names.size();
/// Profiles of more shardings are thrown away together: a search does not come back to old ones.
constexpr std::size_t most_shardings = 4096;

const Part& trunk(const MemoryInputs& in) { return *trunk_of(in.scenario.model); }

double residual_bytes(const MemoryInputs& in, const ShardingKey& sharding) {
    const OpContext c =
        op_context(in.scenario.model, in.resolved, in.scenario.stack, sharding, trunk(in).hidden);
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

bool has_experts(const BlockKind& kind) { return kind.ffn.kind == FfnKind::moe; }

/// One unit under every kind of recomputation (only blocks are recomputed).
std::vector<UnitProfile> build_profiles(const MemoryInputs& in, std::int64_t unit,
                                        const ShardingKey& sharding, const OpList& ops,
                                        bool keep_ops) {
    const TensorRules& rules = in.scenario.stack.tensors;
    const double residual = residual_bytes(in, sharding);
    // DeepSpeed can cut the kept inputs of recomputed blocks over the tensor-parallel group; runs
    // that split parameters too are known to do so.
    const bool cut = rules.partitioned_checkpoints && sharding.sharded_parameters && !sharding.sp;
    const double kept = cut ? residual / sharding.tp : residual;
    const double held = unit == head_unit ? 0.0 : residual;
    std::vector<UnitProfile> out;
    for (std::size_t k = 0; k < (unit < 0 ? 1 : recompute_kinds); ++k) {
        out.push_back(profile_unit(ops, static_cast<Recompute>(k), rules, kept, held));
        if (keep_ops) {
            out.back().ops = ops;
        }
    }
    return out;
}

/// `lists`: operators by unit, or empty; an empty list is built if it is needed.
ShardedUnits build_units(const MemoryInputs& in, const ShardingKey& sharding,
                         const std::vector<OpList>& lists, MemoryCache::Impl& cache) {
    const ModelSpec& model = in.scenario.model;
    const std::vector<std::int64_t> units = units_of(model);
    const bool any_experts =
        std::any_of(model.block_kinds.begin(), model.block_kinds.end(), has_experts);
    ShardedUnits out;
    out.residual = residual_bytes(in, sharding);
    out.scores = score_bytes(in, sharding);
    const auto append = [&](const std::vector<UnitProfile>& profiles) {
        for (const UnitProfile& profile : profiles) {
            out.profiles.push_back(profile);
            out.logits += profile.logits;
            out.bytes.push_back(
                {profile.stored_bytes, profile.forward.bytes, profile.backward.bytes});
        }
    };
    for (std::size_t i = 0; i < units.size(); ++i) {
        const std::int64_t unit = units[i];
        const bool plain =
            unit < 0 || !has_experts(model.block_kinds[static_cast<std::size_t>(unit)]);
        const auto build = [&] {
            const bool given = i < lists.size() && !lists[i].empty();
            return given ? build_profiles(in, unit, sharding, lists[i], cache.keep_ops)
                         : build_profiles(in, unit, sharding, ops_of(in, unit, sharding),
                                          cache.keep_ops);
        };
        if (!plain || !any_experts) {
            append(build());
            continue;
        }
        UnitKey key{unit, sharding};
        key.sharding.ep = 1;
        key.sharding.etp = sharding.tp;
        std::vector<UnitProfile>& known = cache.plain[key];
        if (known.empty()) {
            known = build();
        }
        append(known);
    }
    return out;
}

ShardingKey without_micro_batch(ShardingKey sharding) {
    sharding.micro_batch = 0;
    return sharding;
}

const ShardedUnits& insert_units(const MemoryInputs& in, const ShardingKey& sharding,
                                 const std::vector<OpList>& lists, MemoryCache::Impl& cache) {
    if (cache.units.size() >= most_shardings) {
        cache.units.clear();
        cache.plain.clear();
    }
    return cache.units.insert(without_micro_batch(sharding), sharding.micro_batch,
                              build_units(in, sharding, lists, cache));
}

} // namespace

std::size_t ShardingHash::operator()(const ShardingKey& k) const {
    std::size_t seed =
        hash_mix(static_cast<std::uint64_t>(k.micro_batch),
                 static_cast<std::uint64_t>(k.tp) << 32U | static_cast<std::uint64_t>(k.cp));
    return hash_mix(seed, static_cast<std::uint64_t>(k.ep) << 32U |
                              static_cast<std::uint64_t>(k.etp) << 8U |
                              static_cast<std::uint64_t>(k.cp_kind) << 2U |
                              static_cast<std::uint64_t>(k.sp ? 2 : 0) |
                              static_cast<std::uint64_t>(k.sharded_parameters ? 1 : 0));
}

std::size_t UnitHash::operator()(const UnitKey& k) const {
    return hash_mix(ShardingHash()(k.sharding), static_cast<std::uint64_t>(k.unit + 2));
}

std::size_t ShardedUnits::index_of(std::int64_t unit, Recompute recompute) const {
    return unit >= 0 ? recompute_kinds * static_cast<std::size_t>(unit) +
                           static_cast<std::size_t>(recompute)
                     : bytes.size() - (unit == head_unit ? 1 : 2);
}

OpList ops_of(const MemoryInputs& in, std::int64_t unit, const ShardingKey& sharding) {
    const ModelSpec& model = in.scenario.model;
    const StackProfile& stack = in.scenario.stack;
    if (unit == embedding_unit) {
        return embedding_ops(model, in.resolved, stack, sharding);
    }
    if (unit == head_unit) {
        return head_ops(model, in.resolved, stack, sharding);
    }
    return block_ops(model.block_kinds[static_cast<std::size_t>(unit)], trunk(in).hidden, model,
                     in.resolved, stack, sharding);
}

std::vector<std::int64_t> units_of(const ModelSpec& model) {
    std::vector<std::int64_t> out;
    for (std::size_t kind = 0; kind < model.block_kinds.size(); ++kind) {
        out.push_back(static_cast<std::int64_t>(kind));
    }
    out.push_back(embedding_unit);
    out.push_back(head_unit);
    return out;
}

ShardingKey units_sharding(const MemoryInputs& in, const Layout& layout) {
    ShardingKey key = sharding_of(layout);
    key.sharded_parameters =
        key.sharded_parameters && in.scenario.stack.tensors.partitioned_checkpoints;
    return key;
}

const ShardedUnits& sharded_units(const MemoryInputs& in, const ShardingKey& sharding,
                                  MemoryCache& cache) {
    const ShardedUnits* known =
        cache.impl().units.find(without_micro_batch(sharding), sharding.micro_batch);
    return known != nullptr ? *known : insert_units(in, sharding, {}, cache.impl());
}

void take_operators(const MemoryInputs& in, const Layout& layout, const std::vector<OpList>& ops,
                    MemoryCache& cache) {
    const ShardingKey sharding = units_sharding(in, layout);
    if (cache.impl().units.find(without_micro_batch(sharding), sharding.micro_batch) == nullptr) {
        insert_units(in, sharding, ops, cache.impl());
    }
}

} // namespace shardplan::sim
