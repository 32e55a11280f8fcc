#include "simulator/spec/stack.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "simulator/spec/stack_features.hpp"

namespace shardplan::sim {

namespace {

constexpr std::array<std::pair<Feature, AttentionImpl>, 6> attention_features = {{
    {Feature::unfused_attn, AttentionImpl::unfused},
    {Feature::fused_softmax, AttentionImpl::fused_softmax},
    {Feature::flash_attn_1, AttentionImpl::flash_1},
    {Feature::flash_attn_2, AttentionImpl::flash_2},
    {Feature::flash_attn_3, AttentionImpl::flash_3},
    {Feature::cudnn_attn, AttentionImpl::cudnn},
}};

const std::pair<Feature, AttentionImpl>* attention_of(Feature feature) {
    const auto* it = std::find_if(attention_features.begin(), attention_features.end(),
                                  [&](const auto& pair) { return pair.first == feature; });
    return it == attention_features.end() ? nullptr : it;
}

} // namespace

bool writes_scores(AttentionImpl impl) {
    return impl == AttentionImpl::unfused || impl == AttentionImpl::fused_softmax;
}

bool skips_before_window(AttentionImpl impl) {
    return impl == AttentionImpl::flash_2 || impl == AttentionImpl::flash_3 ||
           impl == AttentionImpl::cudnn;
}

bool has_feature(const StackProfile& stack, Feature feature) {
    return std::find(stack.features.begin(), stack.features.end(), feature) != stack.features.end();
}

bool splits_offload(const Capabilities& can, Shard shard) {
    return can.part_offload == PartOffload::any ||
           (can.part_offload == PartOffload::zero3 && shard == Shard::all);
}

StackProfile with_features(StackProfile stack, const std::vector<Feature>& added) {
    for (const Feature feature : added) {
        if (const auto* pair = attention_of(feature)) {
            std::erase_if(stack.features, [](Feature f) { return attention_of(f) != nullptr; });
            stack.attention = pair->second;
        }
        if (feature == Feature::no_overlap) {
            std::erase_if(stack.features, [](Feature f) {
                return f == Feature::dp_overlap || f == Feature::tp_comm_overlap ||
                       f == Feature::pp_overlap;
            });
        }
        if (!has_feature(stack, feature)) {
            stack.features.push_back(feature);
        }
        apply_rules_of(feature, stack);
    }
    return stack;
}

void describe(FieldVisitor& v, Capabilities& x) {
    field(v, {"shards", "sharding", "What data-parallel ranks can split: zero0 to zero3."},
          x.shards);
    field(v, {"schedules", "pipeline schedules", "Schedules it can run."}, x.schedules);
    field(v, {"cp_kinds", "context parallel kinds", "ring, a2a, allgather; empty: none."},
          x.cp_kinds);
    field(v, {"recompute", "recomputation", "Kinds of recomputation it can run."}, x.recompute);
    field(v, {"offload_tiers", "offload tiers", "Where states can be kept off the device."},
          x.offload_tiers);
    field(v,
          {"part_offload", "partial offload",
           "Where a part of the optimizer states can be kept off the device: never (all or none), "
           "zero3, any."},
          x.part_offload);
    field(v,
          {"rank_orders", "rank orders",
           "Orders in which ranks can be laid out, neighbours first; any: every order."},
          x.rank_orders);
    field(v, {"tensor_parallel", "tensor parallelism", "tp > 1 can run."}, x.tensor_parallel);
    field(v,
          {"sequence_parallel", "sequence parallelism",
           "Norms and dropouts can be split along the sequence."},
          x.sequence_parallel);
    field(v, {"pipeline_parallel", "pipeline parallelism", "pp > 1 can run."}, x.pipeline_parallel);
    field(v, {"expert_parallel", "expert parallelism", "ep > 1 can run."}, x.expert_parallel);
    field(v,
          {"expert_tensor_parallel", "expert tensor parallelism",
           "Experts can have a tensor degree of their own."},
          x.expert_tensor_parallel);
    field(v,
          {"fully_sharded", "fully sharded",
           "zero2 and zero3 are FSDP: units are gathered, reduced and released."},
          x.fully_sharded);
    field(v, {"hybrid_shard", "hybrid sharding", "A shard group can be smaller than dp."},
          x.hybrid_shard);
    field(v,
          {"shard_with_pipeline", "sharding with a pipeline",
           "zero2 and zero3 can run together with pp > 1."},
          x.shard_with_pipeline);
    field(v,
          {"context_with_pipeline", "context parallelism with a pipeline",
           "cp > 1 can run together with pp > 1."},
          x.context_with_pipeline);
    field(v, {"kv_replication", "KV replication", "tp may exceed the number of KV heads."},
          x.kv_replication);
    field(v, {"uneven_stages", "uneven stages", "Layers need not divide by pp."}, x.uneven_stages);
    field(v, {"partition", "stage partition", "How blocks are cut into stages: even, items, cost."},
          x.partition);
    field(v,
          {"partial_recompute", "partial recomputation",
           "Only the first k blocks of a stage can be recomputed."},
          x.partial_recompute);
    field(v, {"adapters", "adapters", "LoRA and QLoRA can run."}, x.adapters);
    field(v,
          {"interleaving_needs_multiple", "interleaving needs a multiple",
           "Interleaving is refused where micro-batches are no multiple of pp; false: a warning."},
          x.interleaving_needs_multiple);
    field(v,
          {"vocab_multiple", "vocabulary multiple",
           "The vocabulary is padded to a multiple of this x tp; 0: it is not padded.", false, 0.0,
           65536},
          x.vocab_multiple);
}

void describe(FieldVisitor& v, StackTime& x) {
    field(v,
          {"gemm_efficiency", "GEMM efficiency",
           "Products of the stack, of what the libraries of the device reach."},
          x.gemm_efficiency);
    field(v,
          {"rowwise_efficiency", "row-wise efficiency",
           "8-bit products with a scale per row, of those with one scale per tensor."},
          x.rowwise_efficiency);
    field(v,
          {"attention_efficiency", "attention efficiency",
           "Attention of the stack, of what its kernel reaches on the device."},
          x.attention_efficiency);
    field(v,
          {"memory_efficiency", "memory efficiency",
           "Element-wise kernels of the stack, of the bandwidth that large ones reach."},
          x.memory_efficiency);
    field(v,
          {"elementwise_passes", "element-wise passes",
           "Traffic per stored element relative to perfect fusion."},
          x.elementwise_passes);
    field(v, {"launch", "launch", "Host time per kernel."}, x.launch);
    field(v, {"kernels_per_block", "kernels per block", "Kernels of one block's forward pass."},
          x.kernels_per_block);
    field(v, {"step_overhead", "step overhead", "Time per step outside the model."},
          x.step_overhead);
    field(v,
          {"host_update_efficiency", "host update efficiency",
           "Updates of offloaded states on the host, of the bandwidth of its memory."},
          x.host_update_efficiency);
    field(v,
          {"slice_host", "host time per slice",
           "Per tensor and data-parallel rank, where updated parameters are gathered tensor by "
           "tensor."},
          x.slice_host);
    field(v,
          {"dp_overlap", "data parallel overlap",
           "Fraction of the gradient reduction that can hide."},
          x.dp_overlap);
    field(
        v,
        {"gather_overlap", "gather overlap", "Fraction of the parameter gathering that can hide."},
        x.gather_overlap);
    field(v,
          {"tp_overlap", "tensor parallel overlap",
           "Fraction of tensor-parallel traffic that can hide."},
          x.tp_overlap);
    field(v,
          {"pp_overlap", "pipeline overlap", "Fraction of stage-to-stage traffic that can hide."},
          x.pp_overlap);
    field(v,
          {"cp_overlap", "context parallel overlap",
           "Fraction of context-parallel traffic that can hide."},
          x.cp_overlap);
    field(
        v,
        {"overlap_slowdown", "overlap slowdown", "Factor on compute beside a collective, less 1."},
        x.overlap_slowdown);
    field(v,
          {"sigma", "spread",
           "Relative standard deviation of compute time beside that of the other constants: "
           "operators, builds and versions that nobody described."},
          x.sigma);
}

void describe(FieldVisitor& v, StackProfile& x) {
    field(v, {"name", "name", "Name of the stack.", true}, x.name);
    field(v, {"title", "title", "Name as its makers write it."}, x.title);
    field(v,
          {"derived_from", "derived from", "Another profile; this file states only what differs."},
          x.derived_from);
    field(v, {"version", "version", "Versions it describes."}, x.version);
    field(v, {"note", "note", "What else one should know."}, x.note);
    field(v, {"aliases", "aliases", "Other names."}, x.aliases);
    field(v, {"features", "features", "Switches that are on by default."}, x.features);
    field(v, {"attention", "attention kernel", "Attention kernel that runs by default."},
          x.attention);
    field(v,
          {"newest_attention", "newest attention kernel",
           "Newest attention kernel its images hold; it runs where a newer one is asked for."},
          x.newest_attention);
    field(v, {"default_shard", "default sharding", "Sharding it uses unless told otherwise."},
          x.default_shard);
    field(v,
          {"default_dropout", "default dropout",
           "Probability with which models that do not state theirs are trained.", false, 0.0, 1.0},
          x.default_dropout);
    field(v, {"capabilities", "capabilities", "Which layouts it can express."}, x.capabilities);
    field(v, {"tensors", "tensors", "What the operators of a block keep and copy."}, x.tensors);
    field(v, {"states", "states", "How the states of the optimizer are held."}, x.states);
    field(v, {"memory", "memory", "Memory behaviour."}, x.memory);
    field(v, {"time", "time", "Time behaviour."}, x.time);
    field(v, {"collectives", "collectives", "Library and algorithms of the collectives."},
          x.collectives);
}

} // namespace shardplan::sim
