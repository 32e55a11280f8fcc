#include "simulator/spec/legality.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

using namespace shardplan::test;

/// A scenario with what the rules need beside it.
struct Bench {
    explicit Bench(Scenario given) : scenario(std::move(given)) {
        Result<ResolvedWithNotes> notes = resolve(scenario);
        EXPECT_TRUE(notes.has_value()) << (notes ? "" : to_text(notes.error()));
        resolved = notes ? notes->values : Resolved{};
    }

    Layout layout(std::string_view text) {
        const auto parsed = parse_layout(text, "--layout", tables);
        EXPECT_TRUE(parsed.has_value()) << text;
        const auto whole =
            complete_layout(*parsed, device_count(scenario.cluster), "--layout", true);
        EXPECT_TRUE(whole.has_value()) << text << ": " << (whole ? "" : to_text(whole.error()));
        return whole ? *whole : Layout{};
    }
    std::vector<Refusal> check(std::string_view text) {
        const Layout l = layout(text);
        const std::vector<Refusal> refusals = check_layout(scenario, resolved, l, tables);
        EXPECT_EQ(is_legal(scenario, resolved, l, tables), refusals.empty()) << text;
        for (const Refusal& r : refusals) {
            EXPECT_FALSE(r.rule.empty()) << r.id;
            EXPECT_FALSE(r.field.empty()) << r.id;
        }
        return refusals;
    }
    /// The refusal of one rule; fails if the layout does not break it.
    Refusal refusal(std::string_view text, std::string_view id) {
        for (const Refusal& r : check(text)) {
            if (r.id == id) {
                return r;
            }
        }
        ADD_FAILURE() << text << " does not break " << id;
        return {};
    }
    /// Ids of the rules that are broken.
    std::vector<std::string> broken(std::string_view text) {
        std::vector<std::string> ids;
        for (const Refusal& r : check(text)) {
            ids.push_back(r.id);
        }
        return ids;
    }
    bool warns(std::string_view text, std::string_view id) {
        const auto warnings = layout_warnings(scenario, resolved, layout(text), tables);
        return std::any_of(warnings.begin(), warnings.end(),
                           [&](const Warning& w) { return w.id == id && !w.text.empty(); });
    }

    Scenario scenario;
    Resolved resolved;
    LayoutTables tables;
};

using Texts = std::vector<std::string>;

TEST(Layout, RefusesTensorDegreeThatDoesNotDivideHeadsAndSaysSo) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(3), job(8192, 240));
    Bench bench(given);
    const Refusal r = bench.refusal("tp3", "tp-divides-heads");
    EXPECT_EQ(r.rule, "tp 3 does not divide 32 attention heads");
    EXPECT_EQ(r.field, "tp");
    EXPECT_EQ(r.numbers, (std::vector<double>{3.0, 32.0}));
    EXPECT_EQ(r.nearest, (Texts{"tp2", "tp4"}));
}

TEST(Layout, AcceptsThePublishedSplitOfLlama8B) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(8192, 256), megatron_core_stack()));
    EXPECT_EQ(bench.broken("tp2,sp,pp2,dp2,zero1"), Texts{});
    EXPECT_EQ(bench.broken("tp8,sp,dp1"), Texts{});
}

TEST(Layout, LetsKvHeadsBeReplicatedOnlyWhereTheStackCan) {
    const ModelSpec model = small_model(4, 32, 4);
    Bench rigid(scenario(model, dgx_h100(1), job(1024, 64), megatron_core_stack()));
    const Refusal r = rigid.refusal("tp8", "tp-spreads-kv-heads");
    EXPECT_EQ(r.rule, "tp 8 exceeds 4 KV heads, which megatron-core does not replicate");
    EXPECT_EQ(r.nearest, Texts{"tp4"});
    Bench able(scenario(model, dgx_h100(1), job(1024, 64)));
    EXPECT_EQ(able.broken("tp8"), Texts{});
    Bench odd(scenario(small_model(4, 24, 4), dgx_h100(3), job(1024, 24)));
    EXPECT_EQ(odd.refusal("tp6", "tp-spreads-kv-heads").rule, "tp 6 is no multiple of 4 KV heads");
}

TEST(Layout, SplitsAnOddVocabularyOnlyWhereTheStackPadsIt) {
    const ModelSpec model = small_model(4, 48, 48, 129280);
    Bench bare(scenario(model, dgx_h100(3), job(1024, 24), fsdp2_stack()));
    const Refusal r = bare.refusal("tp24,fsdp", "tp-divides-vocabulary");
    EXPECT_EQ(
        r.rule,
        "tp 24 does not divide 129280 rows of the vocabulary, and pytorch-fsdp2 does not pad it");
    EXPECT_EQ(r.nearest, Texts{"tp8"});
    Bench padding(scenario(model, dgx_h100(3), job(1024, 24), megatron_core_stack()));
    EXPECT_EQ(padding.broken("tp24"), Texts{});
    EXPECT_TRUE(padding.warns("tp24", "vocabulary-padded"));
}

TEST(Layout, DropsNoLayersSilently) {
    StackProfile even = megatron_core_stack();
    even.capabilities.uneven_stages = false;
    Bench bench(scenario(small_model(30, 8, 8), dgx_h100(1), job(1024, 64), even));
    const Refusal r = bench.refusal("pp4", "pp-divides-layers");
    EXPECT_EQ(r.rule, "pp 4 does not divide 30 layers, and megatron-core has no uneven stages");
    EXPECT_EQ(r.nearest, Texts{"pp2"});
    Bench able(scenario(small_model(30, 8, 8), dgx_h100(1), job(1024, 64)));
    EXPECT_EQ(able.broken("pp4"), Texts{});
    EXPECT_TRUE(able.warns("pp4", "uneven-stages"));
    Bench shallow(scenario(small_model(4, 8, 8), dgx_h100(1), job(1024, 64)));
    EXPECT_EQ(shallow.refusal("pp8", "pp-divides-layers").rule, "pp 8 exceeds 4 layers");
}

TEST(Layout, RefusesStageMapsThatDoNotAddUp) {
    Bench bench(scenario(small_model(46, 8, 8), dgx_h100(1), job(1024, 64)));
    EXPECT_EQ(bench.broken("pp4,stages=11-12-12-11"), Texts{});
    const Refusal r = bench.refusal("pp4,stages=11-12-12-12", "stages-sum-to-layers");
    EXPECT_EQ(r.rule, "stages adds up to 47 layers and the model has 46");
    EXPECT_EQ(r.nearest, Texts{"stages=11-12-12-11"});
    StackProfile even = generic_stack();
    even.capabilities.uneven_stages = false;
    Bench rigid(scenario(small_model(48, 8, 8), dgx_h100(1), job(1024, 64), even));
    EXPECT_EQ(rigid.broken("pp4,stages=11-13-12-12"), Texts{"uneven-stages"});
    EXPECT_EQ(rigid.broken("pp4,stages=12-12-12-12"), Texts{});
}

TEST(Layout, SplitsSequencesIntoEqualPieces) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(3), job(8192, 24)));
    EXPECT_EQ(bench.refusal("cp3", "cp-splits-sequence").nearest, (Texts{"cp2", "cp4"}));
    // 2 x 8 pieces do not go into 8200 tokens; 8 pieces of an all-to-all do.
    Scenario odd = scenario(small_model(4, 8, 8), dgx_h100(1), job(8200, 8));
    Bench pieces(odd);
    EXPECT_EQ(pieces.broken("cp8:ring"), Texts{"cp-splits-sequence"});
    EXPECT_EQ(pieces.broken("cp8:a2a"), Texts{});
    EXPECT_EQ(pieces.broken("tp8,sp"), Texts{});
    Bench uneven(scenario(small_model(4, 8, 8), dgx_h100(1), job(8196, 8)));
    EXPECT_EQ(uneven.broken("tp8,sp"), Texts{"sp-splits-sequence"});
    EXPECT_EQ(uneven.broken("dp8,sp"), Texts{"sp-needs-tp"});
}

TEST(Layout, SpreadsHeadsOverUlyssesAndTensorRanksTogether) {
    Bench bench(scenario(small_model(4, 8, 8), dgx_h100(2), job(8192, 16)));
    EXPECT_EQ(bench.broken("tp4,cp2:a2a"), Texts{});
    const Refusal r = bench.refusal("tp4,cp4:a2a", "a2a-divides-heads");
    EXPECT_EQ(r.rule, "cp4:a2a x tp4 is 16, which does not divide 8 attention heads");
    EXPECT_EQ(r.nearest, Texts{"cp2"});
    EXPECT_EQ(bench.broken("tp4,cp4:ring"), Texts{});
}

TEST(Layout, CutsExpertGroupsOutOfTheRanksOfAStage) {
    Bench bench(scenario(mixtral_8x7b(), dgx_h100(2), job(4096, 64)));
    EXPECT_EQ(bench.broken("tp2,dp8,ep8"), Texts{});
    EXPECT_EQ(bench.broken("tp2,dp8,ep8,etp1"), Texts{});
    EXPECT_EQ(bench.refusal("dp16,ep3", "ep-divides-experts").nearest, (Texts{"ep2", "ep4"}));
    const Refusal r = bench.refusal("tp8,dp2,ep4", "ep-groups-divide");
    EXPECT_EQ(r.rule, "ep4 x etp8 is 32, which does not divide tp8 x cp1 x dp2 = 16");
    EXPECT_EQ(r.nearest, Texts{"ep2"});
    Bench dense(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64)));
    EXPECT_EQ(dense.broken("dp8,ep8"), Texts{"experts-exist"});
}

TEST(Layout, SplitsTheGlobalBatchOverRanksAndMicroBatches) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(8192, 60)));
    const Refusal dp = bench.refusal("dp8", "dp-divides-batch");
    EXPECT_EQ(dp.rule, "a global batch of 60 sequences does not split over dp 8");
    EXPECT_EQ(dp.nearest, (Texts{"a global batch of 56", "a global batch of 64"}));
    const Refusal mb = bench.refusal("tp2,dp4,mb4", "mb-divides-batch");
    EXPECT_EQ(mb.rule, "mb 4 does not divide 15 sequences of each data-parallel rank");
    EXPECT_EQ(mb.nearest, (Texts{"mb3", "mb5"}));
    EXPECT_EQ(micro_batches(bench.resolved, bench.layout("tp2,dp4,mb3")), 5);
    EXPECT_EQ(micro_batches(bench.resolved, bench.layout("tp2,dp4,mb4")), 0);
}

TEST(Layout, UsesEveryDeviceUnlessSomeMayIdle) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    Bench bench(given);
    const Refusal r = bench.refusal("tp2,dp2", "devices");
    EXPECT_EQ(r.rule, "tp2 x cp1 x pp1 x dp2 is 4 devices and the cluster has 8");
    EXPECT_EQ(r.nearest, Texts{"dp4"});
    given.job.constraints.idle_devices = true;
    Bench idle(given);
    EXPECT_EQ(idle.broken("tp2,dp2"), Texts{});
}

TEST(Layout, RefusesShardingTheStackDoesNotHave) {
    Bench megatron(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), megatron_core_stack()));
    const Refusal r = megatron.refusal("dp8,zero3", "stack-has-shard");
    EXPECT_EQ(r.rule, "megatron-core cannot run zero3");
    EXPECT_EQ(r.nearest, (Texts{"zero0", "zero1"}));
    EXPECT_EQ(megatron.broken("dp8,zero1:4"), Texts{"stack-has-hybrid-shard"});
    Bench generic(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64)));
    EXPECT_EQ(generic.broken("dp8,zero3:4,noreshard,prefetch2,wrap=2blocks"), Texts{});
    EXPECT_EQ(generic.refusal("dp8,zero3:3", "shard-group-divides").nearest,
              (Texts{"zero3:2", "zero3:4", "zero3:8"}));
    EXPECT_EQ(generic.broken("dp8,zero1,noreshard"), Texts{"term-needs-zero3"});
    StackProfile deepspeed = generic_stack();
    deepspeed.capabilities.shard_with_pipeline = false;
    Bench pipeline(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), deepspeed));
    EXPECT_EQ(pipeline.broken("pp2,dp4,zero2"), Texts{"stack-shards-with-pp"});
    EXPECT_EQ(pipeline.broken("pp2,dp4,zero1"), Texts{});
}

TEST(Layout, FitsSchedulesToStagesAndChunks) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64)));
    EXPECT_EQ(bench.broken("dp8,v2,sched=interleaved"), Texts{"pipeline-only-terms"});
    EXPECT_EQ(bench.broken("dp8,sched=zb-h1"), Texts{"pipeline-only-terms"});
    EXPECT_EQ(bench.broken("pp4,sched=interleaved"), Texts{"schedule-fits-chunks"});
    EXPECT_EQ(bench.broken("pp4,v2,sched=1f1b"), Texts{"schedule-fits-chunks"});
    EXPECT_EQ(bench.broken("pp4,v4,sched=zb-v"), Texts{"schedule-fits-chunks"});
    EXPECT_EQ(bench.broken("pp4,v2,sched=zb-v"), Texts{});
    EXPECT_EQ(bench.broken("pp4,v2,dp2,mb8,sched=dualpipe"), Texts{"dualpipe-needs-pairs"});
    EXPECT_EQ(bench.broken("pp4,v2,dp2,mb4,sched=dualpipe"), Texts{});
    EXPECT_EQ(bench.broken("pp4,v16"), Texts{"chunks-divide-layers"});
    Bench megatron(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), megatron_core_stack()));
    EXPECT_EQ(megatron.broken("pp4,sched=gpipe"), Texts{"stack-has-schedule"});
}

TEST(Layout, WarnsOrRefusesWhereMicroBatchesAreNoMultipleOfStages) {
    const Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 60));
    Bench bench(given);
    EXPECT_EQ(bench.broken("pp4,v2,tp2,dp1,mb2"), Texts{});
    EXPECT_FALSE(bench.warns("pp4,v2,tp2,dp1,mb3", "interleaving-not-multiple")); // 20 passes
    EXPECT_TRUE(bench.warns("pp4,v2,tp2,dp1,mb2", "interleaving-not-multiple"));  // 30 passes
    Bench strict(scenario(llama_3_8b(), dgx_h100(1), job(8192, 60), megatron_core_stack()));
    const Refusal r = strict.refusal("pp4,v2,tp2,dp1,mb2", "interleaving-needs-multiple");
    EXPECT_EQ(r.numbers, (std::vector<double>{30.0, 4.0}));
    EXPECT_EQ(r.nearest, (Texts{"v1", "mb1"}));
}

TEST(Layout, OffloadsOnlyToMemoryThatTheClusterStates) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    Bench bench(given);
    EXPECT_EQ(bench.broken("dp8,zero2,off=opt:1.0:host"), Texts{});
    EXPECT_EQ(bench.broken("dp8,zero1,off=par:1.0:host"), Texts{"term-needs-zero3"});
    given.cluster.node_groups[0].node.host.memory = Bytes(0.0);
    Bench unknown(given);
    EXPECT_EQ(unknown.broken("dp8,off=opt:1.0:host"), Texts{"offload-tier-exists"});
    Bench fsdp(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), fsdp2_stack()));
    EXPECT_EQ(fsdp.broken("dp8,zero3,off=opt:1.0:host"), Texts{"stack-has-offload"});
}

TEST(Layout, OffloadsPartOfTheStatesOnlyWhereTheStackCan) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    given.stack.capabilities.part_offload = PartOffload::any;
    EXPECT_EQ(Bench(given).broken("dp8,zero1,off=opt:0.3:host"), Texts{});
    given.stack.capabilities.part_offload = PartOffload::zero3;
    Bench twin_flow(given);
    EXPECT_EQ(twin_flow.broken("dp8,zero3,off=opt:0.3:host"), Texts{});
    EXPECT_EQ(twin_flow.broken("dp8,zero2,off=opt:1.0:host"), Texts{});
    const Refusal r = twin_flow.refusal("dp8,zero2,off=opt:0.3:host", "stack-offloads-part");
    EXPECT_EQ(r.nearest, (Texts{"zero3", "off=opt:1.0:host", "leave off out"}));
    given.stack.capabilities.part_offload = PartOffload::never;
    Bench all_or_none(given);
    EXPECT_EQ(all_or_none.broken("dp8,zero3,off=opt:0.3:host"), Texts{"stack-offloads-part"});
    EXPECT_EQ(all_or_none.broken("dp8,zero3,off=opt:1.0:host"), Texts{});
    EXPECT_EQ(all_or_none.broken("dp8,zero3"), Texts{});
}

TEST(Layout, KeepsToWhatTheJobInsistsOn) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    given.job.constraints.tp = {1, 2, 8};
    given.job.constraints.recompute = RecomputePolicy::forbid;
    Bench bench(given);
    const Refusal r = bench.refusal("tp4", "tp-is-allowed");
    EXPECT_EQ(r.rule, "tp 4 is not among the job's constraints.tp: 1, 2, 8");
    EXPECT_EQ(r.nearest, (Texts{"tp2", "tp1", "tp8"}));
    EXPECT_EQ(bench.broken("tp2,rc=selective"), Texts{"recompute-is-allowed"});
    given.job.constraints.recompute = RecomputePolicy::full;
    Bench full(given);
    EXPECT_EQ(full.broken("tp2"), Texts{"recompute-is-allowed"});
    EXPECT_EQ(full.broken("tp2,rc=full"), Texts{});
    EXPECT_EQ(full.broken("tp2,rc=full:3"), Texts{"recompute-is-allowed"});
}

TEST(Layout, RecomputesPartOfAStageOnlyWhereTheStackCan) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64)));
    EXPECT_EQ(bench.broken("pp4,rc=full:8"), Texts{});
    EXPECT_EQ(bench.refusal("pp4,rc=full:9", "recompute-within-stage").nearest,
              (Texts{"rc=full:8", "rc=full"}));
    Bench fsdp(scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), fsdp2_stack()));
    EXPECT_EQ(fsdp.broken("dp8,zero3,rc=full:8"), Texts{"stack-recomputes-part"});
}

TEST(Layout, RefusesByNameWhatCannotBePlannedYet) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    Part vision;
    vision.name = "vision_tower";
    vision.role = PartRole::vision;
    vision.hidden = 1024;
    vision.runs = {{0, 2}};
    given.model.parts.push_back(vision);
    Bench bench(given);
    const Refusal r = bench.refusal("dp8", "model-can-be-planned");
    EXPECT_EQ(r.rule, "the vision part \"vision_tower\" is held but cannot be planned yet");
    EXPECT_EQ(r.field, "model");
    given.model.parts[1].trainable = false;
    Bench frozen(given);
    EXPECT_EQ(frozen.broken("dp8"), Texts{});
    EXPECT_TRUE(frozen.warns("dp8", "part-not-costed"));
    given.model.parts[1].role = PartRole::encoder;
    EXPECT_EQ(Bench(given).broken("dp8"), Texts{"model-can-be-planned"});
    Scenario ssm = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    ssm.model.block_kinds[0].attention.kind = AttentionKind::ssm;
    EXPECT_NE(Bench(ssm).refusal("dp8", "model-can-be-planned").rule.find("ssm"),
              std::string::npos);
}

TEST(Layout, RefusesAdaptersAndStacksThatAreNotThere) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    given.job.method.kind = MethodKind::lora;
    given.stack.capabilities.adapters = false;
    Bench bench(given);
    EXPECT_EQ(bench.broken("dp8"), Texts{"stack-runs-adapters"});
    EXPECT_EQ(bench.broken("dp8,stack=generic"), Texts{"stack-runs-adapters"});
    EXPECT_EQ(bench.broken("dp8,stack=nanotron"),
              (Texts{"stack-is-the-scenarios", "stack-runs-adapters"}));
}

TEST(Layout, WarnsWhereTensorRanksReachPastTheNode) {
    Bench bench(scenario(llama_3_70b(), dgx_h100(2), job(8192, 64)));
    EXPECT_EQ(bench.broken("tp16,sp"), Texts{});
    EXPECT_TRUE(bench.warns("tp16,sp", "tp-across-nodes"));
    EXPECT_FALSE(bench.warns("tp8,sp", "tp-across-nodes"));
    // With dp innermost, neighbours of a tp pair sit 4 ranks apart and a group of 4 spans 16.
    EXPECT_TRUE(bench.warns("tp4,dp4,order=dp-tp-cp-ep-pp", "tp-across-nodes"));
    EXPECT_TRUE(bench.warns("pp8,tp2,mb64", "few-micro-batches"));
}

TEST(Layout, EveryRuleHasItsOwnNameAndAField) {
    std::set<std::string_view> ids;
    for (const LegalityRule& rule : legality_rules()) {
        EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
        EXPECT_FALSE(rule.field.empty()) << rule.id;
    }
    EXPECT_GE(ids.size(), 40U);
}

TEST(Legality, WarnsWhenNodeGroupsHaveDifferentDevices) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(4096, 64)));
    EXPECT_FALSE(bench.warns("dp8", "mixed-devices"));
    bench.scenario.devices.push_back(a100_sxm_80gb());
    EXPECT_TRUE(bench.warns("dp8", "mixed-devices"));
}

TEST(Legality, WarnsWhenChunksAreNotEqual) {
    Bench bench(scenario(llama_3_8b(), dgx_h100(1), job(4096, 64)));
    EXPECT_FALSE(bench.warns("pp4,v2,dp2", "uneven-chunks"));
    EXPECT_TRUE(bench.warns("pp4,v3,dp2", "uneven-chunks"));
}

TEST(Legality, RefusesContextParallelismInAPipelineWhereTheStackHasNone) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(4096, 64));
    EXPECT_EQ(Bench(given).broken("pp2,cp2,dp2"), Texts{});
    given.stack.capabilities.context_with_pipeline = false;
    Bench bench(given);
    const Refusal r = bench.refusal("pp2,cp2,dp2", "stack-splits-context-with-pp");
    EXPECT_EQ(r.field, "cp");
    EXPECT_EQ(r.nearest, (Texts{"cp1", "pp1"}));
}

TEST(Layout, NamesAttentionThatIsTimedAsAnotherKind) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    EXPECT_FALSE(Bench(given).warns("dp8", "attention-approximated"));
    given.model.block_kinds[0].attention.opaque_parameters = 4096 * 8192; // an indexer
    EXPECT_TRUE(Bench(given).warns("dp8", "attention-approximated"));
    given.model.block_kinds[0].attention.opaque_parameters = 2 * 4096; // shifts of norms
    EXPECT_FALSE(Bench(given).warns("dp8", "attention-approximated"));
}

TEST(Layout, SaysWhereAKernelComputesWhatLiesBeforeAWindow) {
    Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    given.model.block_kinds[0].attention.window = 1024;
    EXPECT_FALSE(Bench(given).warns("dp8", "window-without-effect"));
    given.stack.attention = AttentionImpl::unfused;
    EXPECT_TRUE(Bench(given).warns("dp8", "window-without-effect"));
    given.model.block_kinds[0].attention.window = 8192;
    EXPECT_FALSE(Bench(given).warns("dp8", "window-without-effect"));
}

} // namespace
} // namespace shardplan::sim
