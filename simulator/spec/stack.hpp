#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/spec/comm_policy.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/stack_memory.hpp"
#include "simulator/spec/stack_rules.hpp"

namespace shardplan::sim {

/// Switches of a software stack that change cost or memory; the vocabulary of run records.
enum class Feature {
    compile,
    async_tp,
    te,
    te_fp8,
    float8_tensorwise,
    float8_rowwise,
    mxfp8,
    nvfp4,
    flash_attn_1,
    flash_attn_2,
    flash_attn_3,
    cudnn_attn,
    unfused_attn,
    fused_softmax,
    fused_rmsnorm,
    fused_ce,
    chunked_ce,
    low_precision_layernorm,
    grouped_gemm,
    deepep,
    cuda_graphs,
    dp_overlap,
    tp_comm_overlap,
    pp_overlap,
    no_overlap,
    fsdp_pure_bf16,
    megatron_fsdp,
    megatron_like,
    local_impl,
    jax_xla,
    no_gradient_accumulation_fusion,
    optimizer_in_backward,
    adamw_8bit,
};
template <>
struct EnumNames<Feature> {
    static constexpr std::array<std::string_view, 33> names = {
        "compile",
        "async-tp",
        "te",
        "te-fp8",
        "float8-tensorwise",
        "float8-rowwise",
        "mxfp8",
        "nvfp4",
        "flash-attn-1",
        "flash-attn-2",
        "flash-attn-3",
        "cudnn-attn",
        "unfused-attn",
        "fused-softmax",
        "fused-rmsnorm",
        "fused-ce",
        "chunked-ce",
        "low-precision-layernorm",
        "grouped-gemm",
        "deepep",
        "cuda-graphs",
        "dp-overlap",
        "tp-comm-overlap",
        "pp-overlap",
        "no-overlap",
        "fsdp-pure-bf16",
        "megatron-fsdp",
        "megatron-like",
        "local-impl",
        "jax-xla",
        "no-gradient-accumulation-fusion",
        "optimizer-in-backward",
        "adamw-8bit",
    };
};

/// Which attention kernel runs; decides stored tensors and time.
enum class AttentionImpl { unfused, fused_softmax, flash_1, flash_2, flash_3, cudnn };
template <>
struct EnumNames<AttentionImpl> {
    static constexpr std::array<std::string_view, 6> names = {"unfused", "fused_softmax", "flash_1",
                                                              "flash_2", "flash_3",       "cudnn"};
};

/// True for kernels that write the scores of all pairs to memory.
bool writes_scores(AttentionImpl impl);
/// True for kernels that leave out the keys before a window; the others mask them. Source:
/// flash-attention from 2.3 (sliding windows), cuDNN frontend (sliding window masks).
bool skips_before_window(AttentionImpl impl);

/// Among `Capabilities::rank_orders`: every order.
inline constexpr std::string_view any_rank_order = "any";

/// Which layouts a stack can express; both legality and exporters read it.
struct Capabilities {
    std::vector<Shard> shards = {Shard::none};
    std::vector<ScheduleKind> schedules = {ScheduleKind::one_f_one_b};
    std::vector<CpKind> cp_kinds;
    std::vector<Recompute> recompute = {Recompute::none, Recompute::selective, Recompute::full};
    std::vector<OffloadTier> offload_tiers = {OffloadTier::none};
    PartOffload part_offload = PartOffload::any; ///< of optimizer states
    /// Orders in which ranks can be laid out, as `order_text`; "any": every order.
    std::vector<std::string> rank_orders = {"tp-cp-ep-dp-pp"};
    bool tensor_parallel = true;
    bool sequence_parallel = true;
    bool pipeline_parallel = true;
    bool expert_parallel = false;
    bool expert_tensor_parallel = false;
    bool fully_sharded = false; ///< zero2 and zero3 are FSDP: units gathered, reduced and released
    bool hybrid_shard = false;  ///< a shard group smaller than dp
    bool shard_with_pipeline = true;   ///< zero2 and zero3 together with pp > 1
    bool context_with_pipeline = true; ///< cp > 1 together with pp > 1
    bool kv_replication = false;       ///< tp may exceed the KV heads
    bool uneven_stages = false;        ///< layers need not divide by pp
    StagePartition partition = StagePartition::even;
    bool partial_recompute = false; ///< only k blocks per stage
    bool adapters = true;           ///< LoRA and QLoRA
    /// Interleaving needs the micro-batches to be a multiple of pp; false: only a warning.
    bool interleaving_needs_multiple = true;
    /// The vocabulary is padded to a multiple of this x tp; 0: it must divide by tp.
    std::int64_t vocab_multiple = 0;

    friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

/// Time behaviour of a stack, as Constants.
struct StackTime {
    Constant gemm_efficiency;      ///< of what the device's libraries reach (ComputeProfile)
    Constant rowwise_efficiency;   ///< 8-bit products with a scale per row, of those with one
    Constant attention_efficiency; ///< of what the attention kernel reaches
    Constant memory_efficiency;    ///< of what large element-wise kernels reach
    Constant elementwise_passes;   ///< traffic per stored element relative to perfect fusion
    Constant launch;               ///< seconds of host time per kernel
    Constant kernels_per_block;    ///< kernels of one block's forward pass
    Constant step_overhead;        ///< seconds per step outside the model
    Constant dp_overlap;           ///< fraction of the gradient reduction that can hide
    Constant gather_overlap;       ///< fraction of the parameter gathering that can hide
    Constant tp_overlap;           ///< fraction of tensor-parallel traffic that can hide
    Constant pp_overlap;
    Constant cp_overlap;
    Constant host_update_efficiency; ///< of host memory's bandwidth, in an update on the host
    Constant slice_host; ///< seconds of host time per tensor and rank where updates are gathered
    Constant overlap_slowdown; ///< factor on compute while a collective runs beside it - 1
    Constant sigma; ///< value: relative sigma of compute, beside that of the constants above

    friend bool operator==(const StackTime&, const StackTime&) = default;
};

/// A software stack: what it can express, what it does by default, what it costs. A file states
/// only what differs from `derived_from`.
struct StackProfile {
    std::string name;
    std::string title;
    std::string derived_from; ///< name of another profile; empty for a root
    std::string version;      ///< versions it describes
    std::string note;
    std::vector<std::string> aliases;
    std::vector<Feature> features; ///< on by default
    AttentionImpl attention = AttentionImpl::flash_2;
    /// The newest kernels its images hold; where newer ones are asked for, these run.
    AttentionImpl newest_attention = AttentionImpl::cudnn;
    Shard default_shard = Shard::none;
    double default_dropout = 0.0; ///< probability, for models that do not state theirs
    Capabilities capabilities;
    TensorRules tensors;
    StateRules states;
    StackMemory memory;
    StackTime time;
    CommPolicy collectives;

    friend bool operator==(const StackProfile&, const StackProfile&) = default;
};

bool has_feature(const StackProfile& stack, Feature feature);
/// True where a layout so sharded can hold a part of its optimizer states off the device.
bool splits_offload(const Capabilities& can, Shard shard);
/// A copy with features added; attention features replace one another.
StackProfile with_features(StackProfile stack, const std::vector<Feature>& added);

void describe(FieldVisitor& v, Capabilities& x);
void describe(FieldVisitor& v, StackTime& x);
void describe(FieldVisitor& v, StackProfile& x);

} // namespace shardplan::sim
