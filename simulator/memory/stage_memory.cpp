#include "simulator/memory/stage_memory.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "simulator/compute/op_builder.hpp"
#include "simulator/schedule/pass_order.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

namespace {

/// What long searches go through is thrown away together from time to time.
constexpr std::size_t most_instants = 1U << 18U; // of all outlines
constexpr std::size_t most_parameters = 16384;

const Part& trunk(const MemoryInputs& in) { return *trunk_of(in.scenario.model); }

/// Without the number of micro-batches.
OutlineKey outline_key(const MemoryInputs& in, const Layout& layout) {
    const RecomputePlan plan = in.tables.recompute(layout.recompute);
    OutlineKey key;
    key.micro_batches = 0;
    key.recomputed_layers = plan.kind == Recompute::full ? plan.layers_per_stage : 0;
    key.stage_map = layout.stage_map;
    key.pp = layout.pp;
    key.chunks = layout.chunks;
    key.schedule = layout.schedule;
    return key;
}

/// One gradient per distinct weight shape of the operators on the stage.
double placeholder_elements(const MemoryInputs& in, const Layout& layout, const StageOutline& stage,
                            MemoryCache::Impl& cache) {
    const TensorRules& rules = in.scenario.stack.tensors;
    if (!rules.weight_gradient_placeholder || !rules.fused_weight_gradient) {
        return 0.0;
    }
    const ShardingKey sharding = sharding_of(layout);
    ParametersKey key;
    key.tp = sharding.tp;
    key.ep = sharding.ep;
    key.etp = sharding.etp;
    std::vector<ProductShapes>& known = cache.shapes[key];
    if (known.empty()) {
        for (const std::int64_t unit : units_of(in.scenario.model)) {
            ProductShapes shapes;
            for (const Op& op : ops_of(in, unit, sharding)) {
                const bool product = op.kind == OpKind::linear || op.kind == OpKind::head ||
                                     op.kind == OpKind::grouped_linear;
                if (product && !op.frozen) {
                    shapes.emplace_back(op.gemm.n, op.gemm.k);
                }
            }
            known.push_back(std::move(shapes));
        }
    }
    std::set<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const ChunkOutline& chunk : stage.chunks) {
        for (const UnitCount& run : chunk) {
            const auto kinds = static_cast<std::int64_t>(in.scenario.model.block_kinds.size());
            const std::int64_t at = run.unit >= 0 ? run.unit : kinds - 1 - run.unit;
            const ProductShapes& of_unit = known[static_cast<std::size_t>(at)];
            shapes.insert(of_unit.begin(), of_unit.end());
        }
    }
    double elements = 0.0;
    for (const auto& [n, k] : shapes) {
        elements += static_cast<double>(n) * static_cast<double>(k);
    }
    return elements;
}

StageParameters stage_parameters(const MemoryInputs& in, const Layout& layout, const Stage& stage,
                                 std::size_t number) {
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
    if (in.scenario.stack.states.whole_pieces) {
        out.units = stage_units(model, in.resolved, layout, stage, number);
    }
    return out;
}

const std::vector<StageParameters>& cached_parameters(const MemoryInputs& in, const Layout& layout,
                                                      const PlacedStages& placement,
                                                      const ParametersKey& key,
                                                      const PipelineOutline& outline,
                                                      MemoryCache::Impl& cache) {
    if (cache.parameters.size() >= most_parameters) {
        cache.parameters.clear();
        cache.shapes.clear();
    }
    std::vector<StageParameters>& slot = cache.parameters[key];
    if (slot.empty()) {
        for (const std::size_t first : outline.structures) {
            slot.push_back(stage_parameters(in, layout, placement.stages[first], first));
            slot.back().placeholders =
                placeholder_elements(in, layout, outline.stages[first], cache);
        }
    }
    return slot;
}

StateFigures::Sum sum_of(const PartSum& parts) {
    return {parts.by_kind(), parts.by_kind().total().value()};
}

StateFigures state_figures(const MemoryInputs& in, const Layout& layout, const StageParameters& p) {
    const auto gathered = [&](UnitPhase phase) {
        PartSum sum;
        add_gathered_units(in.resolved, in.scenario.stack, layout, p, phase, sum);
        return sum_of(sum);
    };
    StateFigures out;
    out.parameters = p;
    PartSum persistent;
    add_persistent(in.scenario, in.resolved, layout, p, true, persistent);
    out.persistent = sum_of(persistent);
    // kinds of which nothing but what comes with gradients stays through the step
    BytesByKind early = out.persistent.kinds;
    early[TensorKind::gradients] = Bytes();
    early[TensorKind::buckets] = Bytes();
    out.early = {early, early.total().value()};
    out.gathered_forward = gathered(UnitPhase::forward);
    out.gathered_loss = gathered(UnitPhase::loss);
    out.gathered_backward = gathered(UnitPhase::backward);
    PartSum step;
    add_step_temporaries(in.resolved, in.scenario.stack, layout, p, step);
    out.step = sum_of(step);
    if (in.scenario.stack.states.whole_pieces) {
        out.windows = windows_of(layout, p.units);
        out.value_bytes = bytes_per_element(in.resolved.parameter);
        out.gradient_bytes = bytes_per_element(in.resolved.gradient);
    }
    return out;
}

StatesKey states_key(const Layout& layout, const ParametersKey& parameters) {
    StatesKey key;
    key.parameters = parameters;
    key.dp = layout.dp;
    key.shard_group = layout.shard_group;
    key.cp = layout.cp;
    key.offload_optimizer = layout.offload_optimizer;
    key.offload_parameters = layout.offload_parameters;
    key.shard = layout.shard;
    key.reshard = layout.reshard;
    key.prefetch = layout.prefetch;
    key.wrap = layout.wrap;
    return key;
}

} // namespace

std::size_t OutlineHash::operator()(const OutlineKey& k) const {
    const std::size_t seed = hash_mix(static_cast<std::uint64_t>(k.micro_batches),
                                      static_cast<std::uint64_t>(k.recomputed_layers));
    return hash_mix(seed, static_cast<std::uint64_t>(k.stage_map) << 36U ^
                              static_cast<std::uint64_t>(k.pp) << 20U ^
                              static_cast<std::uint64_t>(k.chunks) << 4U ^
                              static_cast<std::uint64_t>(k.schedule));
}

std::size_t ParametersHash::operator()(const ParametersKey& k) const {
    const std::size_t seed = hash_mix(OutlineHash()(k.outline), static_cast<std::uint64_t>(k.tp));
    return hash_mix(seed,
                    static_cast<std::uint64_t>(k.ep) << 32U | static_cast<std::uint64_t>(k.etp));
}

namespace {

std::size_t hash_of(const StatesKey& k) {
    const std::size_t seed = hash_mix(ParametersHash()(k.parameters),
                                      std::uint64_t{k.dp} << 32U | std::uint64_t{k.shard_group});
    const std::uint64_t offloaded =
        std::uint64_t{k.offload_optimizer} << 16U | k.offload_parameters;
    return hash_mix(seed, offloaded << 32U ^ std::uint64_t{k.cp} << 16U ^
                              static_cast<std::uint64_t>(k.shard) << 12U ^
                              static_cast<std::uint64_t>(k.wrap) << 9U ^
                              std::uint64_t{k.prefetch} << 1U ^ (k.reshard ? 1U : 0U));
}

/// Everything that layouts of a row have in common.
void begin_row(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
               const PipelineOutline& outline, MemoryCache::Impl& c) {
    const ShardingKey& sharding = c.row_sharding;
    const ParametersKey parameters{c.row_outline, sharding.tp, sharding.ep, sharding.etp};
    const StatesKey key = states_key(layout, parameters);
    const std::size_t hash = hash_of(key);
    c.states = c.known_states.find(key, hash);
    if (c.states == nullptr) {
        std::vector<StateFigures>& made = c.known_states.take(key, hash);
        made.clear();
        for (const StageParameters& p :
             cached_parameters(in, layout, placement, parameters, outline, c)) {
            made.push_back(state_figures(in, layout, p));
        }
        c.states = &made;
    }
    c.row = placement.row;
}

void make_room(const PipelineOutline& outline, MemoryCache::Impl& c) {
    std::size_t instants = 0;
    for (const StageOutline& stage : outline.stages)
        instants += stage.instants.size();
    if (c.instants + instants > most_instants) {
        c.outlines.clear();
        c.instants = 0;
    }
    c.instants += instants;
}

} // namespace

namespace {

/// Messages to come that instants tell apart.
std::int64_t counted_messages(const TensorRules& rules) {
    return rules.posts_receives ? rules.message_buffers : 0;
}

} // namespace

LayoutMemory layout_memory(const MemoryInputs& in, const Layout& layout,
                           const PlacedStages& placement, MemoryCache& cache) {
    MemoryCache::Impl& c = cache.impl();
    const bool begins = placement.row == 0 || placement.row != c.row;
    if (begins) {
        c.row_sharding = units_sharding(in, layout);
        c.row_sharding.micro_batch = 0;
        c.row_outline = outline_key(in, layout);
    }
    LayoutMemory out;
    out.micro_batches = representative_micro_batches(layout.schedule, layout.pp,
                                                     micro_batches(in.resolved, layout));
    out.outline = c.outlines.find(c.row_outline, out.micro_batches);
    if (out.outline == nullptr) {
        PipelineOutline made = outline_of(in.scenario.model, layout, placement.stages,
                                          out.micro_batches, c.row_outline.recomputed_layers,
                                          counted_messages(in.scenario.stack.tensors));
        made.number = ++c.last_number;
        make_room(made, c);
        out.outline = &c.outlines.insert(c.row_outline, out.micro_batches, std::move(made));
    }
    if (begins) begin_row(in, layout, placement, *out.outline, c);
    out.units = &sharded_units(in, c.row_sharding, layout.micro_batch, cache);
    out.states = c.states;
    out.scratch = &c.scratch;
    out.recompute = in.tables.recompute(layout.recompute).kind;
    out.sp = c.row_sharding.sp;
    out.gathered_residual = out.units->residual * c.row_sharding.tp;
    out.grouped_experts = out.units->routes;
    return out;
}

MemoryCache::MemoryCache() : impl_(std::make_unique<Impl>()) {}
MemoryCache::~MemoryCache() = default;
MemoryCache::MemoryCache(MemoryCache&&) noexcept = default;
MemoryCache& MemoryCache::operator=(MemoryCache&&) noexcept = default;

} // namespace shardplan::sim
