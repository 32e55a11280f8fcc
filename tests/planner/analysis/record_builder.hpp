#pragma once

#include "simulator/io/run_record.hpp"

namespace shardplan::test {

/// A run of a small Llama on 2 nodes of 8 H100 with Megatron Core, everything stated.
inline sim::RunRecord small_run() {
    sim::RunRecord r;
    r.id = "small";
    r.group = "made up";
    sim::RunModel& m = r.model;
    m.name = "small";
    m.layers = 8;
    m.hidden = 1024;
    m.heads = 8;
    m.kv_heads = 2;
    m.head_dim = 128;
    m.ffn_hidden = 4096;
    m.vocab = 32000;
    m.seq_len = 2048;
    m.gated_mlp = true;
    m.tied_embeddings = false;
    m.qk_norm = false;
    m.activation = "swiglu";
    m.norm = "rmsnorm";
    m.biases = "none";
    m.positions = "rope";
    m.attention = "gqa";
    m.attention_dropout = 0.0;
    m.hidden_dropout = 0.0;
    sim::RunCluster& c = r.cluster;
    c.device = "H100-SXM-80GB";
    c.gpus = 16;
    c.gpus_per_node = 8;
    c.intra_kind = "nvswitch";
    c.intra_gbytes_per_s = 450.0;
    c.fabric_kind = "infiniband";
    c.nics_per_node = 8;
    c.gbit_per_nic = 400.0;
    r.stack.name = "megatron-core";
    sim::RunLayout& l = r.layout;
    l.dp = 4;
    l.tp = 2;
    l.pp = 2;
    l.cp = 1;
    l.ep = 1;
    l.etp = 1;
    l.vpp = 1;
    l.schedule = "1f1b";
    l.zero_stage = 1;
    l.micro_batch = 2;
    l.global_batch = 64;
    l.num_microbatches = 8;
    l.sequence_parallel = true;
    l.flash_attention = true;
    l.recompute = "none";
    l.precision = "bf16";
    l.optimizer = "AdamW";
    r.usable_for = {"time", "fit"};
    return r;
}

} // namespace shardplan::test
