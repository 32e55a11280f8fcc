#include "planner/analysis/reproduce.hpp"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "planner/analysis/validate.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/spec/parameters.hpp"
#include "tests/planner/analysis/record_builder.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using test::small_run;

sim::Result<Reproduction> reproduce(const sim::RunRecord& record) {
    auto reproducer = Reproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    return reproducer->reproduce(record);
}

/// The reason a record is skipped for; empty if it is not.
std::string reason(const sim::RunRecord& record) {
    const auto run = reproduce(record);
    return run ? "" : run.error().where;
}

sim::ModelSpec model(const sim::RunRecord& record) {
    std::vector<sim::Assumption> notes;
    auto out = model_of(record, test::generic_stack(), notes);
    EXPECT_TRUE(out) << (out ? "" : sim::to_text(out.error()));
    return out ? *out : sim::ModelSpec{};
}

sim::Layout layout(const sim::RunRecord& record, sim::LayoutTables& tables) {
    std::vector<sim::Assumption> notes;
    const auto out = layout_of(record, test::generic_stack(), tables, notes);
    EXPECT_TRUE(out) << (out ? "" : sim::to_text(out.error()));
    return out ? *out : sim::Layout{};
}

bool has_note(const std::vector<sim::Assumption>& notes, const std::string& path) {
    return std::any_of(notes.begin(), notes.end(), [&](const auto& n) { return n.path == path; });
}

// --- models -------------------------------------------------------------------------------------

TEST(Reproduce, DenseModelHasThePublishedCount) {
    // Llama 3 8B: https://huggingface.co/meta-llama/Meta-Llama-3-8B, 8 030 261 248 parameters.
    sim::RunRecord r = small_run();
    r.model.layers = 32;
    r.model.hidden = 4096;
    r.model.heads = 32;
    r.model.kv_heads = 8;
    r.model.ffn_hidden = 14336;
    r.model.vocab = 128256;
    EXPECT_EQ(sim::count_parameters(model(r)).total, 8030261248);
}

TEST(Reproduce, BiasesNormsAndLearnedPositionsCount) {
    // GPT-2: 124 439 808 parameters with 1024 learned positions and tied tables.
    sim::RunRecord r = small_run();
    r.model = {};
    r.model.layers = 12;
    r.model.hidden = 768;
    r.model.heads = 12;
    r.model.kv_heads = 12;
    r.model.ffn_hidden = 3072;
    r.model.vocab = 50257;
    r.model.seq_len = 1024;
    r.model.max_positions = 1024;
    r.model.gated_mlp = false;
    r.model.activation = "gelu";
    r.model.norm = "layernorm";
    r.model.biases = "all";
    r.model.positions = "learned";
    r.model.tied_embeddings = true;
    EXPECT_EQ(sim::count_parameters(model(r)).total, 124439808);
}

TEST(Reproduce, MixtureHasItsDenseLayersFirst) {
    sim::RunRecord r = small_run();
    r.model.experts = 8;
    r.model.experts_per_token = 2;
    r.model.moe_ffn_hidden = 512;
    r.model.shared_expert_ffn = 256;
    r.model.first_dense_layers = 3;
    const sim::ModelSpec m = model(r);
    ASSERT_EQ(m.block_kinds.size(), 2U);
    EXPECT_EQ(m.block_kinds[0].ffn.kind, sim::FfnKind::dense);
    EXPECT_EQ(m.block_kinds[1].ffn.kind, sim::FfnKind::moe);
    EXPECT_EQ(m.block_kinds[1].ffn.shared_width, 256);
    EXPECT_EQ(m.parts[0].runs, (std::vector<sim::Run>{{0, 3}, {1, 5}}));
}

TEST(Reproduce, LatentAttentionTakesItsRanksAndHeads) {
    sim::RunRecord r = small_run();
    r.model.attention = "mla";
    r.model.q_lora_rank = 1536;
    r.model.kv_lora_rank = 512;
    r.model.qk_nope_head_dim = 128;
    r.model.qk_rope_head_dim = 64;
    r.model.v_head_dim = 128;
    const sim::Attention a = model(r).block_kinds[0].attention;
    EXPECT_EQ(a.kind, sim::AttentionKind::mla);
    EXPECT_EQ(a.qk_head_dim, 192);
    EXPECT_EQ(a.rope_dim, 64);
    EXPECT_EQ(a.kv_heads, a.heads);
    r.model.kv_lora_rank.reset();
    EXPECT_EQ(reason(r), "model.kv_lora_rank");
}

TEST(Reproduce, WindowIsOnEverySecondLayer) {
    sim::RunRecord r = small_run();
    r.model.window = 128;
    const sim::ModelSpec m = model(r);
    const sim::Part& trunk = m.parts[0];
    EXPECT_EQ(
        m.block_kinds.at(static_cast<std::size_t>(sim::kind_of_block(trunk, 0))).attention.window,
        128);
    EXPECT_EQ(
        m.block_kinds.at(static_cast<std::size_t>(sim::kind_of_block(trunk, 1))).attention.window,
        0);
    EXPECT_EQ(sim::block_count(trunk), 8);
}

TEST(Reproduce, UnstatedDropoutIsTheStacksForModelsWithLearnedPositions) {
    sim::RunRecord r = small_run();
    r.model.attention_dropout.reset();
    std::vector<sim::Assumption> notes;
    sim::StackProfile megatron = test::megatron_core_stack();
    megatron.default_dropout = 0.1;
    EXPECT_DOUBLE_EQ(model_of(r, megatron, notes)->attention_dropout, 0.0);
    r.model.positions = "learned";
    EXPECT_DOUBLE_EQ(model_of(r, megatron, notes)->attention_dropout, 0.1);
    EXPECT_DOUBLE_EQ(model_of(r, test::generic_stack(), notes)->attention_dropout, 0.0);
    EXPECT_TRUE(has_note(notes, "model.attention_dropout"));
}

// --- clusters and stacks ------------------------------------------------------------------------

TEST(Reproduce, ClusterHasTheNodesLinksAndCardsOfTheRecord) {
    const auto run = reproduce(small_run());
    ASSERT_TRUE(run) << sim::to_text(run.error());
    const sim::Cluster& c = run->scenario.cluster;
    ASSERT_EQ(c.node_groups.size(), 1U);
    EXPECT_EQ(c.node_groups[0].count, 2);
    EXPECT_EQ(c.node_groups[0].node.devices, 8);
    EXPECT_EQ(c.node_groups[0].node.scaleup.kind, sim::ScaleupKind::nvswitch);
    EXPECT_EQ(c.node_groups[0].node.nics.count, 8);
    EXPECT_EQ(c.node_groups[0].node.nics.per_nic.physical, sim::Bandwidth(50e9));
    EXPECT_EQ(c.fabric.kind, sim::FabricKind::infiniband);
}

TEST(Reproduce, PartOfANodeNeedsNoFabric) {
    sim::RunRecord r = small_run();
    r.cluster.gpus = 4;
    r.cluster.fabric_kind = "none";
    r.layout.dp = 1;
    const auto run = reproduce(r);
    ASSERT_TRUE(run) << sim::to_text(run.error());
    EXPECT_EQ(run->scenario.cluster.node_groups[0].node.devices, 4);
    EXPECT_EQ(run->scenario.cluster.node_groups[0].count, 1);
}

TEST(Reproduce, HybridCubeMeshHasTheLinksOfItsBoard) {
    sim::RunRecord r = small_run();
    r.cluster.device = "V100-SXM2-16GB"; // the built-in board holds those of 32 GB
    r.cluster.intra_kind = "nvlink-mesh";
    r.cluster.intra_gbytes_per_s = 150.0;
    r.cluster.nics_per_node = 2;
    r.cluster.gbit_per_nic = 100.0;
    r.layout.precision = "fp16";
    const auto run = reproduce(r);
    ASSERT_TRUE(run) << sim::to_text(run.error());
    const sim::NodeTemplate& node = run->scenario.cluster.node_groups[0].node;
    EXPECT_EQ(std::count_if(node.vertices.begin(), node.vertices.end(),
                            [](const auto& v) { return v.kind == sim::VertexKind::nic; }),
              2);
    EXPECT_TRUE(has_note(run->notes, "cluster.intra_kind"));
    // two neighbours have one link of 25 GB/s, not a seventh of all links
    const auto path = path_of(run->scenario, run->layout, sim::Group::tp);
    EXPECT_DOUBLE_EQ(path.levels.at(0).per_link.value(), 25e9 * 0.92);
    // boards of four are joined all to all: no graph is needed
    r.cluster.gpus_per_node = 4;
    const auto four = reproduce(r);
    ASSERT_TRUE(four) << sim::to_text(four.error());
    EXPECT_TRUE(four->scenario.cluster.node_groups[0].node.vertices.empty());
}

TEST(Reproduce, StackNobodyDescribesIsGenericWithANote) {
    sim::RunRecord r = small_run();
    r.stack.name = "somebody's own";
    const auto run = reproduce(r);
    ASSERT_TRUE(run) << sim::to_text(run.error());
    EXPECT_EQ(run->scenario.stack.name, "somebody's own");
    EXPECT_TRUE(has_note(run->notes, "stack"));
}

TEST(Reproduce, WhatTheSourceSaysWinsOverKnownDefaults) {
    sim::RunRecord r = small_run();
    r.stack.features_assumed = {"flash-attn-2"};
    r.stack.features = {"flash-attn-1", "warp-drive"};
    std::vector<sim::Assumption> notes;
    const sim::StackProfile stack = stack_of(r, test::generic_stack(), notes);
    EXPECT_EQ(stack.attention, sim::AttentionImpl::flash_1);
    ASSERT_TRUE(has_note(notes, "stack.features"));
    EXPECT_EQ(notes[0].value, "warp-drive");
}

TEST(Reproduce, FlashAttentionAndFeaturesDecideTheKernelTogether) {
    std::vector<sim::Assumption> notes;
    sim::RunRecord r = small_run();
    const auto kernel = [&] { return stack_of(r, test::generic_stack(), notes).attention; };
    r.layout.flash_attention = false;
    EXPECT_EQ(kernel(), sim::AttentionImpl::unfused);
    r.stack.features = {"fused-softmax"};
    EXPECT_EQ(kernel(), sim::AttentionImpl::fused_softmax);
    r.stack.features = {"cudnn-attn"};
    r.layout.flash_attention = true;
    EXPECT_EQ(kernel(), sim::AttentionImpl::cudnn);
}

// --- layouts and jobs ---------------------------------------------------------------------------

TEST(Reproduce, LayoutReadsBackInItsTextForm) {
    sim::LayoutTables tables;
    const sim::Layout l = layout(small_run(), tables);
    EXPECT_EQ(sim::to_text(l, tables), "tp2,sp,pp2,dp4,mb2,zero1");
}

TEST(Reproduce, DpFollowsFromTheDevicesAndMustNotContradictThem) {
    sim::RunRecord r = small_run();
    r.layout.dp.reset();
    sim::LayoutTables tables;
    EXPECT_EQ(layout(r, tables).dp, 4U);
    r.layout.dp = 8;
    EXPECT_EQ(reason(r), "layout.dp");
}

TEST(Reproduce, RecomputedLayersOfTheModelAreSpreadOverTheStages) {
    sim::RunRecord r = small_run();
    r.layout.recompute = "full";
    r.layout.recompute_layers = 5;
    sim::LayoutTables tables;
    const sim::Layout l = layout(r, tables);
    EXPECT_EQ(tables.recompute(l.recompute), (sim::RecomputePlan{sim::Recompute::full, 3}));
    r.layout.recompute_layers = 8; // all of them
    EXPECT_EQ(layout(r, tables).recompute, 2U);
}

TEST(Reproduce, StagePartitionMustAddUp) {
    sim::RunRecord r = small_run();
    r.layout.stage_partition = "5, 3: the last stage also holds the loss";
    sim::LayoutTables tables;
    const sim::Layout l = layout(r, tables);
    EXPECT_EQ(tables.stage_map(l.stage_map).layers, (std::vector<std::int64_t>{5, 3}));
    r.layout.stage_partition = "5,4";
    EXPECT_EQ(reason(r), "layout.stage_partition");
}

TEST(Reproduce, ChunksWithoutALayerAreNotEstimated) {
    sim::RunRecord r = small_run();
    r.layout.vpp = 2;
    r.layout.schedule = "interleaved";
    r.layout.stage_partition = "7,1: embedding and loss count as a layer each";
    sim::LayoutTables tables;
    EXPECT_EQ(layout(r, tables).chunks, 1);
    r.layout.stage_partition = "5,3";
    EXPECT_EQ(layout(r, tables).chunks, 2);
    EXPECT_EQ(layout(r, tables).schedule, sim::ScheduleKind::interleaved);
}

TEST(Reproduce, ExpertsMayBeSplitWiderThanTheRest) {
    sim::RunRecord r = small_run();
    r.model.experts = 8;
    r.model.experts_per_token = 2;
    r.model.moe_ffn_hidden = 512;
    r.layout.etp = 4;
    sim::LayoutTables tables;
    EXPECT_EQ(layout(r, tables).etp, 4);
    r.model.experts = 0; // dense models carry etp without meaning it
    EXPECT_EQ(layout(r, tables).etp, 0);
}

TEST(Reproduce, FullyShardedRunsBecomeZero3) {
    sim::RunRecord r = small_run();
    r.layout.pp = 1;
    r.layout.dp = 8;
    r.layout.fsdp = "hybrid";
    r.layout.shard_group = 4;
    sim::LayoutTables tables;
    EXPECT_EQ(layout(r, tables).shard, sim::Shard::all);
    EXPECT_EQ(layout(r, tables).shard_group, 4U);
}

TEST(Reproduce, OffloadWordsAreRead) {
    sim::RunRecord r = small_run();
    r.layout.offload = "optimizer+param";
    sim::LayoutTables tables;
    const sim::Layout l = layout(r, tables);
    EXPECT_EQ(l.offload_optimizer, 1000);
    EXPECT_EQ(l.offload_parameters, 1000);
    EXPECT_EQ(l.offload_activations, 0);
    EXPECT_EQ(l.offload_tier, sim::OffloadTier::host);
    r.layout.offload = "unknown";
    EXPECT_EQ(reason(r), "layout.offload");
}

TEST(Reproduce, OptimizerAndPrecisionWordsAreRead) {
    std::vector<sim::Assumption> notes;
    sim::RunRecord r = small_run();
    r.layout.optimizer = "8-bit AdamW, fp32 grad accumulation";
    r.layout.precision = "fp8";
    r.layout.precision_detail = "MXFP8";
    const auto job = job_of(r, notes);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->optimizer.kind, sim::OptimizerKind::adamw_8bit);
    EXPECT_EQ(job->precision.gradients, sim::Dtype::fp32);
    EXPECT_EQ(job->precision.compute, sim::Dtype::fp8);
    EXPECT_EQ(job->precision.recipe, sim::Fp8Recipe::mxfp8);
    EXPECT_EQ(job->global_batch.sequences, 64);
}

TEST(Reproduce, SmallerLastMicroBatchIsRoundedUpWithANote) {
    std::vector<sim::Assumption> notes;
    sim::RunRecord r = small_run();
    r.layout.global_batch = 60;
    EXPECT_EQ(job_of(r, notes)->global_batch.sequences, 64);
    EXPECT_TRUE(has_note(notes, "layout.global_batch"));
}

// --- what is skipped ----------------------------------------------------------------------------

TEST(Reproduce, EssentialsThatAreMissingAreNamed) {
    struct Case {
        const char* path;
        void (*remove)(sim::RunRecord&);
    };
    const Case cases[] = {
        {"model.layers", [](sim::RunRecord& r) { r.model.layers.reset(); }},
        {"model.seq_len", [](sim::RunRecord& r) { r.model.seq_len.reset(); }},
        {"model.hybrid", [](sim::RunRecord& r) { r.model.hybrid = true; }},
        {"cluster.device", [](sim::RunRecord& r) { r.cluster.device.reset(); }},
        {"cluster.gpus", [](sim::RunRecord& r) { r.cluster.gpus.reset(); }},
        {"layout.tp", [](sim::RunRecord& r) { r.layout.tp.reset(); }},
        {"layout.micro_batch", [](sim::RunRecord& r) { r.layout.micro_batch.reset(); }},
        {"layout.recompute", [](sim::RunRecord& r) { r.layout.recompute.reset(); }},
        {"layout.zero_stage", [](sim::RunRecord& r) { r.layout.zero_stage.reset(); }},
        {"layout.precision", [](sim::RunRecord& r) { r.layout.precision.reset(); }},
        {"essentials_missing",
         [](sim::RunRecord& r) { r.essentials_missing = {"layout.recompute_detail"}; }},
    };
    for (const Case& c : cases) {
        sim::RunRecord r = small_run();
        c.remove(r);
        EXPECT_EQ(reason(r), c.path);
    }
}

TEST(Reproduce, LayoutsThatDoNotMultiplyToTheGpusAreNamedWithTheFigures) {
    sim::RunRecord r = small_run(); // tp 2, pp 2, cp 1, dp 4 on 16
    EXPECT_EQ(rank_contradiction(r), "");
    r.cluster.gpus = 32;
    EXPECT_EQ(rank_contradiction(r),
              "tp 2 x pp 2 x cp 1 x dp 4 is 16 ranks, but there are 32 GPUs");
    EXPECT_EQ(reason(r), "layout.dp");
    r.layout.dp.reset();
    EXPECT_EQ(rank_contradiction(r), "") << "dp is 8";
    r.cluster.gpus = 6;
    EXPECT_EQ(rank_contradiction(r),
              "tp 2 x pp 2 x cp 1 is 4 ranks, which do not divide the 6 GPUs");
    r.essentials_missing = {"layout.dp"};
    const auto rows = predict_runs({r});
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->front().skipped, rank_contradiction(r));
    r.layout.tp = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(rank_contradiction(r), "") << "refused for its own sake";
}

TEST(Reproduce, IdGroupAndMeasurementsPlayNoPart) {
    sim::RunRecord other = small_run();
    other.id = "elsewhere";
    other.group = "another";
    other.source = "a paper";
    other.measured.step_time_s = 1000.0;
    other.measured.oom = true;
    const auto a = reproduce(small_run());
    const auto b = reproduce(other);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->scenario, b->scenario);
    EXPECT_EQ(a->layout, b->layout);
}

TEST(Predict, EveryRecordGetsARowInItsPlace) {
    sim::RunRecord broken = small_run();
    broken.id = "broken";
    broken.layout.tp.reset();
    const auto rows = predict_runs({small_run(), broken});
    ASSERT_TRUE(rows) << sim::to_text(rows.error());
    ASSERT_EQ(rows->size(), 2U);
    EXPECT_EQ(rows->at(0).id, "small");
    EXPECT_TRUE(rows->at(0).skipped.empty()) << rows->at(0).skipped;
    EXPECT_GT(rows->at(0).step_time_s, 0.0);
    EXPECT_LE(rows->at(0).step_time_low_s, rows->at(0).step_time_s);
    EXPECT_GE(rows->at(0).step_time_high_s, rows->at(0).step_time_s);
    EXPECT_GT(rows->at(0).allocated.max, 0.0);
    EXPECT_LE(rows->at(0).allocated.max, rows->at(0).reserved.max);
    EXPECT_LE(rows->at(0).reserved.max, rows->at(0).process.max);
    EXPECT_EQ(rows->at(1).skipped, "layout.tp is missing");
}

TEST(Predict, LayoutThatTheProfileRefusesRanAllTheSame) {
    sim::RunRecord r = small_run();
    r.layout.zero_stage = 3; // no part of Megatron's own optimizer
    const auto rows = predict_runs({r});
    ASSERT_TRUE(rows);
    EXPECT_TRUE(rows->at(0).skipped.empty()) << rows->at(0).skipped;
    EXPECT_TRUE(std::any_of(rows->at(0).notes.begin(), rows->at(0).notes.end(),
                            [](const auto& n) { return n.origin == "allowed, since it ran"; }));
}

} // namespace
} // namespace shardplan::plan
