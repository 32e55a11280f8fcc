#pragma once

#include <cstdint>

#include "simulator/spec/scenario.hpp"

/// Inputs written in code, so that a test needs no file and shows what it stands on. Shapes are the
/// published ones; constants of stacks and fabrics are round figures, good for relations between
/// estimates, not for absolute times.
namespace shardplan::test {

// --- Models -------------------------------------------------------------------------------------

/// 32 blocks of 4096, 32 heads, 8 KV heads, ffn 14336, vocabulary 128256, untied: 8 030 261 248.
sim::ModelSpec llama_3_8b();
/// 80 blocks of 8192, 64 heads, 8 KV heads, ffn 28672, vocabulary 128256: 70 553 706 496.
sim::ModelSpec llama_3_70b();
/// 96 blocks of 12288, 96 heads, plain GELU, biases, learned positions, dropout 0.1, tied tables.
sim::ModelSpec gpt3_175b();
/// 32 blocks of 4096, 8 experts of 14336, top 2, 8 KV heads: 46 702 792 704.
sim::ModelSpec mixtral_8x7b();
/// A trunk of `layers` equal gated blocks, for cases where only divisibility matters.
sim::ModelSpec small_model(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                           std::int64_t vocab = 1024);

// --- Hardware -----------------------------------------------------------------------------------

sim::Device h100_sxm();
sim::Device a100_sxm_80gb(); ///< no fp8
/// `nodes` nodes of 8 H100 on NVSwitch, 8 rails of 400 Gbit/s InfiniBand.
sim::Cluster dgx_h100(std::int64_t nodes);
/// `nodes` nodes of 8 A100-80GB, 8 x 200 Gbit/s InfiniBand.
sim::Cluster dgx_a100(std::int64_t nodes);

// --- Stacks -------------------------------------------------------------------------------------

/// Can express everything; the fields of every Constant are filled.
sim::StackProfile generic_stack();
/// The rules of Megatron Core: zero0 and zero1, vocabulary padded to 128 x tp, no KV replication.
sim::StackProfile megatron_core_stack();
/// The rules of PyTorch FSDP2 in torchtitan: zero3 only, no padding.
sim::StackProfile fsdp2_stack();

// --- Jobs and the whole -------------------------------------------------------------------------

/// Full training in bf16 with AdamW: `sequence` tokens per sample, `batch` sequences per step.
sim::Job job(std::int64_t sequence, std::int64_t batch);

/// Puts the parts together with the devices and fabric profiles that the cluster names.
sim::Scenario scenario(sim::ModelSpec model, sim::Cluster cluster, sim::Job job,
                       sim::StackProfile stack = generic_stack());

} // namespace shardplan::test
