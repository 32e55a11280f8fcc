#include <algorithm>

#include "simulator/compute/op_builder.hpp"
#include "simulator/memory/stage_memory.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

namespace {

constexpr std::size_t recompute_kinds = ShardedUnits::recompute_kinds;
/// Profiles of more shardings are thrown away together: a search does not come back to old ones.
constexpr std::size_t most_shardings = 8192;

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

/// Builds the profiles of units under one sharding.
class UnitBuilder {
public:
    /// `ops`: operators by unit, or empty.
    UnitBuilder(const MemoryInputs& in, const ShardingKey& sharding,
                const std::vector<UnitOps>& ops, MemoryCache::Impl& cache)
        : in_(in),
          sharding_(sharding),
          ops_(ops),
          cache_(cache),
          residual_(residual_bytes(in, sharding)) {}

    ShardedUnits build() {
        const std::vector<PlainUnit>& plain = plain_units();
        ShardedUnits out;
        out.residual = residual_;
        out.scores = score_bytes(in_, sharding_);
        std::size_t routed = 0;
        for (const PlainUnit& unit : plain) {
            routed += unit.walk ? 1 : 0;
        }
        out.routes = routed > 0;
        out.own.reserve(routed * recompute_kinds); // it never grows beyond: others point into it
        out.units.reserve(plain.size() * recompute_kinds);
        for (std::size_t i = 0; i < plain.size(); ++i) {
            for (const UnitProfile& profile : plain[i].profiles) {
                append(profile, out);
            }
            if (plain[i].walk) {
                UnitWalk walk = *plain[i].walk;
                walk_part(i, BlockPart::from_experts, walk);
                for (std::size_t k = 0; k < recompute_kinds; ++k) {
                    out.own.push_back(profile(i, k, walk));
                    append(out.own.back(), out);
                }
            }
        }
        return out;
    }

private:
    /// By unit: block kinds, then embedding and head.
    const std::vector<PlainUnit>& plain_units() {
        ShardingKey key = sharding_;
        key.micro_batch = 0;
        key.ep = 1;
        key.etp = sharding_.tp;
        const std::vector<PlainUnit>* known = cache_.plain.find(key, sharding_.micro_batch);
        if (known != nullptr) {
            return *known;
        }
        const std::vector<BlockKind>& kinds = in_.scenario.model.block_kinds;
        std::vector<PlainUnit> out(kinds.size() + 2);
        for (std::size_t i = 0; i < out.size(); ++i) {
            const double held = unit_at(i) == head_unit ? 0.0 : gradient_of_residual();
            UnitWalk walk(in_.scenario.stack.tensors, held, splits_passes(in_.scenario.stack));
            walk_part(i, BlockPart::before_experts, walk);
            if (i < kinds.size() && has_experts(kinds[i])) {
                out[i].walk = walk;
                continue;
            }
            // only blocks are recomputed
            for (std::size_t k = 0; k < (i < kinds.size() ? recompute_kinds : 1); ++k) {
                out[i].profiles.push_back(profile(i, k, walk));
            }
        }
        return cache_.plain.insert(key, sharding_.micro_batch, std::move(out));
    }

    [[nodiscard]] double gradient_of_residual() const {
        constexpr double wide = 4.0; // bytes of an element that is never rounded
        const double element = bytes_per_element(activation_dtype(in_.resolved));
        const bool written = in_.scenario.stack.tensors.buffers == PassBuffers::written;
        return written ? wide / element * residual_ : residual_;
    }

    [[nodiscard]] std::int64_t unit_at(std::size_t index) const {
        const std::size_t kinds = in_.scenario.model.block_kinds.size();
        if (index < kinds) {
            return static_cast<std::int64_t>(index);
        }
        return index == kinds ? embedding_unit : head_unit;
    }

    static void append(const UnitProfile& profile, ShardedUnits& out) {
        out.logits += profile.logits;
        out.units.push_back(
            {{profile.stored_bytes, profile.forward.bytes, profile.backward.bytes}, &profile});
    }

    void walk_part(std::size_t index, BlockPart part, UnitWalk& walk) const {
        const OpList* given = nullptr;
        if (index < ops_.size()) {
            given = part == BlockPart::from_experts ? &ops_[index].from : &ops_[index].before;
        }
        if (given != nullptr && !given->empty()) {
            walk.along(*given);
        } else {
            walk.along(ops_of(in_, unit_at(index), sharding_, part));
        }
    }

    [[nodiscard]] UnitProfile profile(std::size_t index, std::size_t recompute,
                                      const UnitWalk& walk) const {
        // DeepSpeed can cut the kept inputs of recomputed blocks over the tensor-parallel group;
        // runs that split parameters too are known to do so.
        const bool cut = in_.scenario.stack.tensors.partitioned_checkpoints &&
                         sharding_.sharded_parameters && !sharding_.sp;
        UnitProfile out = walk.profile(static_cast<Recompute>(recompute),
                                       cut ? residual_ / sharding_.tp : residual_);
        if (cache_.keep_ops) {
            out.ops = ops_of(in_, unit_at(index), sharding_);
        }
        return out;
    }

    const MemoryInputs& in_;
    const ShardingKey& sharding_;
    const std::vector<UnitOps>& ops_;
    MemoryCache::Impl& cache_;
    double residual_ = 0.0;
};

const ShardedUnits& insert_units(const MemoryInputs& in, const ShardingKey& row,
                                 std::int64_t micro_batch, const std::vector<UnitOps>& ops,
                                 MemoryCache::Impl& cache) {
    if (cache.units.size() >= most_shardings) {
        cache.units.clear();
        cache.plain.clear();
    }
    ShardingKey sharding = row;
    sharding.micro_batch = micro_batch;
    ShardedUnits made = UnitBuilder(in, sharding, ops, cache).build();
    made.number = ++cache.last_number;
    return cache.units.insert(row, micro_batch, std::move(made));
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

OpList ops_of(const MemoryInputs& in, std::int64_t unit, const ShardingKey& sharding,
              BlockPart part) {
    const ModelSpec& model = in.scenario.model;
    const StackProfile& stack = in.scenario.stack;
    if (unit == embedding_unit) {
        return embedding_ops(model, in.resolved, stack, sharding);
    }
    if (unit == head_unit) {
        return head_ops(model, in.resolved, stack, sharding);
    }
    return block_ops(model.block_kinds[static_cast<std::size_t>(unit)], trunk(in).hidden, model,
                     in.resolved, stack, sharding, part);
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

const ShardedUnits& sharded_units(const MemoryInputs& in, const ShardingKey& row,
                                  std::int64_t micro_batch, MemoryCache& cache) {
    const ShardedUnits* known = cache.impl().units.find(row, micro_batch);
    return known != nullptr ? *known : insert_units(in, row, micro_batch, {}, cache.impl());
}

void take_operators(const MemoryInputs& in, const Layout& layout, const std::vector<UnitOps>& ops,
                    MemoryCache& cache) {
    ShardingKey row = units_sharding(in, layout);
    row.micro_batch = 0;
    if (cache.impl().units.find(row, layout.micro_batch) == nullptr) {
        insert_units(in, row, layout.micro_batch, ops, cache.impl());
    }
}

} // namespace shardplan::sim
