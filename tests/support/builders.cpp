#include "tests/support/builders.hpp"

#include <utility>

namespace shardplan::test {

using namespace sim::literals;

namespace {

sim::Constant constant(double value, const char* unit, double sigma = 0.1) {
    return {.value = value,
            .unit = unit,
            .origin = sim::Origin::assumed,
            .source = "tests/support/builders.cpp",
            .version = "",
            .lo = value * (1.0 - sigma),
            .hi = value * (1.0 + sigma),
            .sigma = sigma};
}

sim::BlockKind llama_block(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                           std::int64_t width) {
    sim::BlockKind block;
    block.name = "dense";
    block.attention.kind = kv_heads == heads ? sim::AttentionKind::mha : sim::AttentionKind::gqa;
    block.attention.heads = heads;
    block.attention.kv_heads = kv_heads;
    block.attention.qk_head_dim = head_dim;
    block.attention.v_head_dim = head_dim;
    block.attention.rope_dim = head_dim;
    block.ffn.kind = sim::FfnKind::dense;
    block.ffn.width = width;
    block.ffn.gated = true;
    block.ffn.activation = sim::Activation::silu;
    return block;
}

sim::ModelSpec model_of(const char* name, sim::BlockKind block, std::int64_t hidden,
                        std::int64_t layers, std::int64_t vocab) {
    sim::ModelSpec model;
    model.name = name;
    model.family = "llama";
    model.source = "published config";
    sim::Part trunk;
    trunk.name = "text";
    trunk.hidden = hidden;
    trunk.runs = {{0, layers}};
    model.parts = {trunk};
    model.block_kinds = {std::move(block)};
    model.embedding.vocab = vocab;
    model.max_positions = 8192;
    return model;
}

sim::FabricProfile fabric_profile(const char* name, double step_seconds) {
    sim::FabricProfile profile;
    profile.name = name;
    profile.bandwidth_efficiency = constant(0.8, "");
    profile.step_latency = constant(step_seconds, "s");
    profile.launch_latency = constant(1e-5, "s");
    profile.half_size = constant(1e6, "B");
    return profile;
}

sim::Cluster dgx(const char* name, const char* device, std::int64_t nodes,
                 sim::Bandwidth scaleup_per_device, sim::Bandwidth nic) {
    sim::Cluster cluster;
    cluster.name = name;
    sim::NodeGroup group;
    group.name = "nodes";
    group.count = nodes;
    group.node.device = device;
    group.node.devices = 8;
    group.node.scaleup.kind = sim::ScaleupKind::nvswitch;
    group.node.scaleup.per_device.physical = scaleup_per_device;
    group.node.nics.count = 8;
    group.node.nics.per_nic.physical = nic;
    group.node.host.cores = 112;
    group.node.host.memory = sim::Bytes(2e12);
    group.node.host.memory_bandwidth = sim::Bandwidth(400e9);
    group.node.host.nvme = sim::Bytes(30e12);
    group.node.host.nvme_bandwidth = sim::Bandwidth(40e9);
    group.node.host.pcie_per_device.physical = sim::Bandwidth(63e9);
    group.price_per_device_hour = 2.0;
    cluster.node_groups = {group};
    if (nodes > 1) {
        cluster.fabric.kind = sim::FabricKind::infiniband;
        cluster.fabric.rails = true;
        cluster.fabric.levels = {{.name = "leaf",
                                  .nodes_per_group = 32,
                                  .oversubscription = 1.0,
                                  .latency = sim::Seconds(1e-6)},
                                 {.name = "spine",
                                  .nodes_per_group = 0,
                                  .oversubscription = 1.0,
                                  .latency = sim::Seconds(1e-6)}};
    }
    return cluster;
}

} // namespace

sim::ModelSpec llama_3_8b() {
    return model_of("Llama-3-8B", llama_block(32, 8, 128, 14336), 4096, 32, 128256);
}

sim::ModelSpec llama_3_70b() {
    return model_of("Llama-3-70B", llama_block(64, 8, 128, 28672), 8192, 80, 128256);
}

sim::ModelSpec gpt3_175b() {
    sim::BlockKind block = llama_block(96, 96, 128, 49152);
    block.attention.rope_dim = 0;
    block.attention.qkv_bias = true;
    block.attention.out_bias = true;
    block.ffn.gated = false;
    block.ffn.activation = sim::Activation::gelu;
    block.ffn.bias = true;
    block.norms.kind = sim::NormKind::layernorm;
    block.norms.bias = true;
    sim::ModelSpec model = model_of("GPT-3-175B", std::move(block), 12288, 96, 51200);
    model.family = "gpt2";
    model.parts[0].norm_kind = sim::NormKind::layernorm;
    model.parts[0].norm_bias = true;
    model.embedding.positions = sim::Positions::learned;
    model.embedding.position_rows = 2048;
    model.embedding.tied = true;
    model.max_positions = 2048;
    model.attention_dropout = 0.1;
    model.hidden_dropout = 0.1;
    return model;
}

sim::ModelSpec mixtral_8x7b() {
    sim::BlockKind block = llama_block(32, 8, 128, 0);
    block.name = "moe";
    block.ffn.kind = sim::FfnKind::moe;
    block.ffn.experts = 8;
    block.ffn.top_k = 2;
    block.ffn.expert_width = 14336;
    sim::ModelSpec model = model_of("Mixtral-8x7B", std::move(block), 4096, 32, 32000);
    model.family = "mixtral";
    model.max_positions = 32768;
    return model;
}

sim::ModelSpec small_model(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                           std::int64_t vocab) {
    const std::int64_t head_dim = 64;
    const std::int64_t hidden = heads * head_dim;
    return model_of("small", llama_block(heads, kv_heads, head_dim, 4 * hidden), hidden, layers,
                    vocab);
}

sim::Device h100_sxm() {
    sim::Device device;
    device.name = "H100-SXM-80GB";
    device.vendor = "NVIDIA";
    device.arch = "Hopper";
    device.compute_capability = "9.0";
    device.aliases = {"H100-SXM5-80GB"};
    device.peak_dense = {{"fp32", sim::FlopRate(67e12)},  {"tf32", sim::FlopRate(494.5e12)},
                         {"fp16", sim::FlopRate(989e12)}, {"bf16", sim::FlopRate(989e12)},
                         {"fp8", sim::FlopRate(1979e12)}, {"int8", sim::FlopRate(1979e12)}};
    device.memory_label = sim::Bytes(80e9);
    device.memory_visible = sim::Bytes(79.1 * 0x1p30);
    device.memory_type = "HBM3";
    device.memory_bandwidth.physical = sim::Bandwidth(3350e9);
    device.memory_bandwidth.achievable = sim::Bandwidth(3180e9);
    device.scaleup_kind = sim::ScaleupKind::nvswitch;
    device.scaleup_links = 18;
    device.scaleup_per_direction = sim::Bandwidth(450e9);
    device.scaleup_pair = sim::Bandwidth(450e9);
    device.pcie_per_direction = sim::Bandwidth(63e9);
    device.tdp_watts = 700.0;
    device.compute_units = 132;
    device.sources = {"NVIDIA H100 datasheet"};
    device.confidence = "high";
    return device;
}

sim::Device a100_sxm_80gb() {
    sim::Device device = h100_sxm();
    device.name = "A100-SXM-80GB";
    device.arch = "Ampere";
    device.compute_capability = "8.0";
    device.aliases = {};
    device.peak_dense = {{"fp32", sim::FlopRate(19.5e12)},
                         {"tf32", sim::FlopRate(156e12)},
                         {"fp16", sim::FlopRate(312e12)},
                         {"bf16", sim::FlopRate(312e12)},
                         {"int8", sim::FlopRate(624e12)}};
    device.memory_type = "HBM2e";
    device.memory_bandwidth.physical = sim::Bandwidth(2039e9);
    device.memory_bandwidth.achievable.reset();
    device.scaleup_links = 12;
    device.scaleup_per_direction = sim::Bandwidth(300e9);
    device.scaleup_pair = sim::Bandwidth(300e9);
    device.pcie_per_direction = sim::Bandwidth(31.5e9);
    device.tdp_watts = 400.0;
    device.compute_units = 108;
    device.sources = {"NVIDIA A100 datasheet"};
    return device;
}

sim::Cluster dgx_h100(std::int64_t nodes) {
    return dgx("dgx-h100", "H100-SXM-80GB", nodes, sim::Bandwidth(450e9), sim::Bandwidth(50e9));
}

sim::Cluster dgx_a100(std::int64_t nodes) {
    return dgx("dgx-a100", "A100-SXM-80GB", nodes, sim::Bandwidth(300e9), sim::Bandwidth(25e9));
}

sim::StackProfile generic_stack() {
    using sim::Shard;
    sim::StackProfile stack;
    stack.name = "generic";
    stack.title = "any other software";
    stack.features = {sim::Feature::dp_overlap};
    sim::Capabilities& can = stack.capabilities;
    can.shards = {Shard::none, Shard::optimizer, Shard::optimizer_gradients, Shard::all};
    can.schedules.clear();
    for (std::size_t i = 0; i < sim::EnumNames<sim::ScheduleKind>::names.size(); ++i) {
        can.schedules.push_back(static_cast<sim::ScheduleKind>(i));
    }
    can.cp_kinds = {sim::CpKind::ring, sim::CpKind::all_to_all, sim::CpKind::all_gather};
    can.offload_tiers = {sim::OffloadTier::none, sim::OffloadTier::host, sim::OffloadTier::nvme};
    can.expert_parallel = true;
    can.expert_tensor_parallel = true;
    can.hybrid_shard = true;
    can.kv_replication = true;
    can.uneven_stages = true;
    can.partial_recompute = true;
    can.interleaving_needs_multiple = false;
    can.vocab_multiple = 1;
    sim::StackMemory& memory = stack.memory;
    memory.context = constant(0.5e9, "B");
    memory.workspace = constant(32e6, "B");
    memory.communicator = constant(50e6, "B");
    memory.fragmentation = constant(0.03, "");
    memory.phase_slack = constant(0.5, "");
    memory.bucket_bytes = constant(160e6, "B");
    memory.activation_sigma = constant(0.05, "");
    sim::StackTime& time = stack.time;
    time.gemm_efficiency = constant(0.7, "");
    time.attention_efficiency = constant(0.5, "");
    time.memory_efficiency = constant(0.8, "");
    time.elementwise_passes = constant(1.5, "");
    time.launch = constant(4e-6, "s");
    time.kernels_per_block = constant(20.0, "");
    time.step_overhead = constant(5e-3, "s");
    time.dp_overlap = constant(0.8, "");
    time.gather_overlap = constant(0.8, "");
    time.host_update_efficiency = constant(0.5, "");
    time.tp_overlap = constant(0.0, "");
    time.pp_overlap = constant(0.5, "");
    time.cp_overlap = constant(0.5, "");
    time.overlap_slowdown = constant(0.1, "");
    time.sigma = constant(0.1, "");
    return stack;
}

sim::StackProfile megatron_core_stack() {
    sim::StackProfile stack = generic_stack();
    stack.name = "megatron-core";
    stack.title = "Megatron Core with Transformer Engine";
    sim::Capabilities& can = stack.capabilities;
    can.shards = {sim::Shard::none, sim::Shard::optimizer};
    can.schedules = {sim::ScheduleKind::one_f_one_b, sim::ScheduleKind::interleaved};
    can.offload_tiers = {sim::OffloadTier::none, sim::OffloadTier::host};
    can.hybrid_shard = false;
    can.kv_replication = false;
    can.vocab_multiple = 128;
    can.interleaving_needs_multiple = true;
    return stack;
}

sim::StackProfile fsdp2_stack() {
    sim::StackProfile stack = generic_stack();
    stack.name = "pytorch-fsdp2";
    stack.title = "PyTorch FSDP2 in torchtitan";
    stack.default_shard = sim::Shard::all;
    sim::Capabilities& can = stack.capabilities;
    can.shards = {sim::Shard::all};
    can.schedules = {sim::ScheduleKind::gpipe, sim::ScheduleKind::one_f_one_b,
                     sim::ScheduleKind::interleaved};
    can.offload_tiers = {sim::OffloadTier::none};
    can.kv_replication = false;
    can.partial_recompute = false;
    can.vocab_multiple = 0;
    stack.memory.sharded_fp32_parameters = true;
    return stack;
}

sim::Job job(std::int64_t sequence, std::int64_t batch) {
    sim::Job out;
    out.name = "pretrain";
    out.sequence.max = sequence;
    out.global_batch.sequences = batch;
    return out;
}

sim::Scenario scenario(sim::ModelSpec model, sim::Cluster cluster, sim::Job job,
                       sim::StackProfile stack) {
    sim::Scenario out;
    for (const sim::NodeGroup& group : cluster.node_groups) {
        out.devices.push_back(group.node.device == "A100-SXM-80GB" ? a100_sxm_80gb() : h100_sxm());
    }
    out.fabrics = {fabric_profile("nvswitch", 1e-6)};
    if (cluster.fabric.kind == sim::FabricKind::infiniband) {
        out.fabrics.push_back(fabric_profile("infiniband", 5e-6));
    }
    out.model = std::move(model);
    out.cluster = std::move(cluster);
    out.job = std::move(job);
    out.stack = std::move(stack);
    return out;
}

} // namespace shardplan::test
