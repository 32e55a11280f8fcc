#include "simulator/memory/memory.hpp"

#include <gtest/gtest.h>

#include "simulator/memory/rank_parameters.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

/// A scenario with everything an estimate reads; layouts are written as text.
class Bench {
public:
    explicit Bench(Scenario s) : scenario(std::move(s)) {
        auto result = resolve(scenario);
        EXPECT_TRUE(result) << to_text(result.error());
        resolved = result->values;
    }

    Layout layout(const std::string& text) {
        auto parsed = parse_layout(text, "test", tables);
        EXPECT_TRUE(parsed) << to_text(parsed.error());
        auto complete = complete_layout(*parsed, device_count(scenario.cluster), "test");
        EXPECT_TRUE(complete) << to_text(complete.error());
        return *complete;
    }
    std::vector<ClassMemory> classes(const std::string& text) {
        const Layout l = layout(text);
        MemoryCache cache;
        std::vector<ClassMemory> out;
        evaluate_memory({scenario, resolved, tables}, l, place(scenario, l, tables), cache, out);
        return out;
    }
    Term explain(const std::string& text, std::size_t index) {
        const Layout l = layout(text);
        return explain_memory({scenario, resolved, tables}, l, place(scenario, l, tables), index);
    }

    Scenario scenario;
    Resolved resolved;
    LayoutTables tables;
};

Bench llama_on(std::int64_t nodes) {
    return Bench(test::scenario(test::llama_3_8b(), test::dgx_h100(nodes), test::job(8192, 64),
                                test::generic_stack()));
}

// The walk of DESIGN: half of the blocks and the token table of Llama-3-8B, split over two ranks.
TEST(Memory, WeightsAreSplitByTensorParallelNormsAreNot) {
    Bench bench = llama_on(1);
    const Layout layout = bench.layout("tp2,pp2,dp2,mb1");
    const std::vector<Stage> stages = place(bench.scenario, layout, bench.tables).stages;
    const RankParameters first =
        stage_on_rank(bench.scenario.model, bench.resolved, layout, stages[0]);
    EXPECT_EQ(first.dense, 2'007'629'824.0);
    const auto classes = bench.classes("tp2,pp2,dp2,mb1");
    EXPECT_EQ(classes[0].persistent[TensorKind::weights].value(), 4'015'259'648.0);
}

TEST(Memory, PlainDataParallelNeedsEighteenBytesPerParameterWithFp32Gradients) {
    Bench bench = llama_on(1);
    bench.scenario.stack.memory.gradient = Dtype::fp32;
    bench.resolved.gradient = Dtype::fp32;
    const BytesByKind p = bench.classes("dp8,mb1,zero0")[0].persistent;
    const double parameters = 8'030'261'248.0;
    EXPECT_EQ(p[TensorKind::weights].value(), 2.0 * parameters);
    EXPECT_EQ(p[TensorKind::gradients].value(), 4.0 * parameters);
    EXPECT_EQ(p[TensorKind::master_weights].value(), 4.0 * parameters);
    EXPECT_EQ(p[TensorKind::optimizer_states].value(), 8.0 * parameters);
}

TEST(Memory, EachZeroStageSharesOneMoreKindOfState) {
    Bench bench = llama_on(1);
    const BytesByKind zero0 = bench.classes("dp8,mb1,zero0")[0].persistent;
    const BytesByKind zero1 = bench.classes("dp8,mb1,zero1")[0].persistent;
    const BytesByKind zero2 = bench.classes("dp8,mb1,zero2")[0].persistent;
    const BytesByKind zero3 = bench.classes("dp8,mb1,zero3")[0].persistent;
    EXPECT_EQ(zero1[TensorKind::optimizer_states] * 8.0, zero0[TensorKind::optimizer_states]);
    EXPECT_EQ(zero1[TensorKind::gradients], zero0[TensorKind::gradients]);
    EXPECT_EQ(zero2[TensorKind::gradients] * 8.0, zero0[TensorKind::gradients]);
    EXPECT_EQ(zero2[TensorKind::weights], zero0[TensorKind::weights]);
    EXPECT_EQ(zero3[TensorKind::weights] * 8.0, zero0[TensorKind::weights]);
}

TEST(Memory, FirstPipelineStageHoldsMostInFlightMicroBatches) {
    Bench bench = llama_on(1);
    const auto classes = bench.classes("pp8,mb1,zero0");
    ASSERT_EQ(classes.size(), 8U);
    for (std::size_t i = 1; i + 1 < classes.size(); ++i) {
        EXPECT_GT(classes[i - 1].at_peak[TensorKind::activations],
                  classes[i].at_peak[TensorKind::activations]);
    }
}

TEST(Memory, ZeroBubbleKeepsInputsAndOutputGradientsOfProductsForTheWeightPass) {
    StackProfile stack = test::generic_stack();
    stack.capabilities.schedules.push_back(ScheduleKind::zb_h1);
    Bench bench(test::scenario(test::llama_3_8b(), test::dgx_h100(1), test::job(4096, 64), stack));
    const auto whole = bench.classes("pp8,mb1,zero0");
    const auto split = bench.classes("pp8,mb1,zero0,sched=zb-h1");
    // the weight pass follows at once on the first stage, seven micro-batches later on the last
    const Bytes least = Bytes(7.0 * 4.0 * 4096 * 4096 * 2.0); // 7 x 4 inputs of 4,096 x 4,096
    EXPECT_GT(split[7].allocated.value, whole[7].allocated.value + least);
    EXPECT_LT(split[0].allocated.value - whole[0].allocated.value,
              split[7].allocated.value - whole[7].allocated.value);
    for (const ClassMemory& c : split)
        EXPECT_NEAR(c.at_peak.total() / c.process.value, 1.0, 1e-12);
}

TEST(Memory, PeakIsPersistentPlusWorstInstantNotPlusSumOfInstants) {
    Bench bench = llama_on(1);
    for (const ClassMemory& c : bench.classes("tp2,sp,pp2,dp2,mb1,zero1")) {
        Bytes worst;
        for (const Bytes phase : c.phase_peaks) {
            worst = std::max(worst, phase);
        }
        EXPECT_EQ(c.phase_peaks[static_cast<std::size_t>(Phase::save)], c.persistent.total());
        EXPECT_EQ(c.allocated.value, worst);
        EXPECT_EQ(c.phase_peaks[static_cast<std::size_t>(c.peak_phase)], worst);
        EXPECT_GE(c.allocated.value, c.persistent.total());
        EXPECT_NEAR(c.at_peak.total() / c.process.value, 1.0, 1e-12);
    }
}

TEST(Memory, RecomputationTradesActivationsInOrder) {
    Bench bench = llama_on(1);
    const auto peak = [&](const std::string& text) {
        return bench.classes(text)[0].allocated.value;
    };
    EXPECT_GT(peak("dp8,mb4,zero1"), peak("dp8,mb4,zero1,rc=full:16"));
    EXPECT_GT(peak("dp8,mb4,zero1,rc=full:16"), peak("dp8,mb4,zero1,rc=full"));
}

TEST(Memory, SequenceParallelismSplitsWhatTensorParallelismLeavesWhole) {
    Bench bench = llama_on(1);
    EXPECT_LT(bench.classes("tp8,sp,mb1,zero0")[0].at_peak[TensorKind::activations].value(),
              0.75 * bench.classes("tp8,mb1,zero0")[0].at_peak[TensorKind::activations].value());
}

TEST(Memory, ExpertParallelismSplitsExpertsButNotTheirTokens) {
    Bench bench(test::scenario(test::mixtral_8x7b(), test::dgx_h100(4), test::job(4096, 256),
                               test::generic_stack()));
    const auto whole = bench.classes("dp32,ep1,mb1,zero0");
    const auto split = bench.classes("dp32,ep8,mb1,zero0");
    EXPECT_LT(split[0].persistent.total().value(), 0.3 * whole[0].persistent.total().value());
    EXPECT_NEAR(
        split[0].at_peak[TensorKind::activations] / whole[0].at_peak[TensorKind::activations], 1.0,
        0.05);
}

TEST(Memory, LoraTrainsAdaptersAndQloraStoresMatricesInFourBits) {
    Bench full = llama_on(1);
    Bench lora = llama_on(1);
    Bench qlora = llama_on(1);
    lora.resolved.method.kind = MethodKind::lora;
    qlora.resolved.method.kind = MethodKind::qlora;
    const BytesByKind f = full.classes("dp8,mb1,zero0")[0].persistent;
    const BytesByKind l = lora.classes("dp8,mb1,zero0")[0].persistent;
    const BytesByKind q = qlora.classes("dp8,mb1,zero0")[0].persistent;
    // rank 16 on the seven products of 32 blocks: 41 943 040 trained parameters
    const double adapters = 41'943'040.0;
    EXPECT_EQ(l[TensorKind::optimizer_states].value(), 8.0 * adapters);
    EXPECT_EQ(l[TensorKind::weights], f[TensorKind::weights] + Bytes(2.0 * adapters));
    EXPECT_LT(q[TensorKind::weights].value(), 0.4 * f[TensorKind::weights].value());
    EXPECT_GT(q[TensorKind::weights].value(), 0.25 * f[TensorKind::weights].value());
}

TEST(Memory, OffloadedStatesMoveToTheHost) {
    Bench bench = llama_on(1);
    const ClassMemory here = bench.classes("dp8,mb1,zero1")[0];
    const ClassMemory moved = bench.classes("dp8,mb1,zero1,off=opt:1.0:host")[0];
    EXPECT_EQ(moved.persistent[TensorKind::optimizer_states].value(), 0.0);
    EXPECT_EQ(moved.persistent[TensorKind::master_weights].value(), 0.0);
    // states of 12 bytes and fp32 gradients of the shard
    EXPECT_EQ((moved.host - here.host).value(), 16.0 * 8'030'261'248.0 / 8.0);
}

TEST(Memory, OffloadedActivationsLeaveTheDeviceButForTheBlocksAtWork) {
    Bench bench = llama_on(1);
    const ClassMemory here = bench.classes("dp8,mb2,zero1")[0];
    const ClassMemory moved = bench.classes("dp8,mb2,zero1,off=act:1.0:host")[0];
    const Bytes left = moved.at_peak[TensorKind::activations];
    EXPECT_GT(left.value(), 0.0);
    EXPECT_LT(left.value(), 0.15 * here.at_peak[TensorKind::activations].value());
    EXPECT_NEAR((moved.host - here.host) / (here.at_peak[TensorKind::activations] - left), 1.0,
                0.05);
}

TEST(Memory, FrozenWeightsAreHeldOnceUnderFullSharding) {
    Bench bench = llama_on(1);
    bench.scenario.stack.capabilities.fully_sharded = true;
    bench.resolved.method.kind = MethodKind::lora;
    for (const std::string text : {"dp8,mb1,zero2", "dp8,mb1,zero3"}) {
        const ClassMemory c = bench.classes(text)[0];
        EXPECT_LT(c.persistent[TensorKind::weights].value(), 2.1 * 8'030'261'248.0 / 8.0 + 1e8)
            << text;
    }
}

TEST(Memory, WrapUnitsLargerThanTheStageKeepNoLessThanItsWeights) {
    Bench bench = llama_on(4);
    bench.scenario.stack.capabilities.fully_sharded = true;
    const auto gathered = [&](const std::string& wrap) {
        return bench.classes("pp32,dp1,zero3,noreshard,mb1" + wrap)[1]
            .at_peak[TensorKind::gathered_weights];
    };
    EXPECT_EQ(gathered(",wrap=2blocks"), gathered(""));
    EXPECT_EQ(gathered(",wrap=4blocks"), gathered(""));
}

TEST(Memory, StatesThatAreNotSplitAreNotSplitOnTheHostEither) {
    Bench bench = llama_on(1);
    bench.resolved.optimizer = OptimizerKind::muon;
    const ClassMemory here = bench.classes("dp8,mb1,zero1")[0];
    const ClassMemory moved = bench.classes("dp8,mb1,zero1,off=opt:1.0:host")[0];
    const Bytes states =
        here.persistent[TensorKind::optimizer_states] + here.persistent[TensorKind::master_weights];
    EXPECT_EQ(states.value(), 8.0 * 8'030'261'248.0);
    EXPECT_GE((moved.host - here.host).value(), states.value());
}

TEST(Memory, HostHoldsWholeStagesWhileLoadingUnlessShardsAreFilledOneByOne) {
    Bench plain = llama_on(1);
    Bench fsdp = llama_on(1);
    fsdp.scenario.stack.capabilities.fully_sharded = true;
    const auto load = static_cast<std::size_t>(Phase::load);
    const ClassMemory whole = plain.classes("dp8,mb1,zero3")[0];
    const ClassMemory shard = fsdp.classes("dp8,mb1,zero3")[0];
    EXPECT_EQ((whole.host_phases[load] - whole.host).value(), 2.0 * 8'030'261'248.0);
    EXPECT_EQ((shard.host_phases[load] - shard.host).value(), 2.0 * 8'030'261'248.0 / 8.0);
}

TEST(Memory, FullyShardedUnitsAreGatheredWholeAndReleased) {
    Bench bench(test::scenario(test::llama_3_8b(), test::dgx_h100(8), test::job(8192, 64),
                               test::fsdp2_stack()));
    bench.scenario.stack.capabilities.fully_sharded = true;
    const auto released = bench.classes("dp64,mb1,zero3")[0];
    const auto kept = bench.classes("dp64,mb1,zero3,noreshard")[0];
    EXPECT_GT(kept.at_peak[TensorKind::gathered_weights],
              2.0 * released.at_peak[TensorKind::gathered_weights]);
    EXPECT_NEAR(released.persistent.total().value() * 64.0, 16.0 * 8'030'261'248.0, 1e6);
}

TEST(Memory, AGroupOfOneGathersNothingUnlessItsShardsAreInAnotherFormat) {
    Bench bench = llama_on(1);
    bench.scenario.stack.capabilities.fully_sharded = true;
    const auto peak = [&](const std::string& text) {
        return bench.classes(text)[0].allocated.value;
    };
    EXPECT_EQ(peak("tp8,dp1,mb1,zero2"), peak("tp8,dp1,mb1,zero1"));
    EXPECT_EQ(peak("tp8,dp1,mb1,zero3"), peak("tp8,dp1,mb1,zero1"));
    bench.scenario.stack.memory.sharded_fp32_parameters = true;
    const auto copied = bench.classes("tp8,dp1,mb1,zero3")[0];
    EXPECT_GT(copied.at_peak[TensorKind::gathered_weights].value(), 0.0);
}

TEST(Memory, LeavesOfTheExplanationAddUpToTheProcessFigure) {
    Bench bench = llama_on(4);
    for (const std::string text :
         {"tp2,sp,pp4,dp4,mb1,zero1", "tp4,pp2,dp4,mb2,zero1,rc=full:3", "dp32,mb1,zero3",
          "tp2,cp2,pp2,v2,dp4,mb1,zero1,sched=interleaved,rc=selective",
          "tp2,pp4,dp4,mb1,zero1,off=act:0.5:host"}) {
        const auto classes = bench.classes(text);
        for (std::size_t i = 0; i < classes.size(); ++i) {
            const Term term = bench.explain(text, i);
            EXPECT_NEAR(sum_of_leaves(term) / classes[i].process.value.value(), 1.0, 1e-12)
                << text << " class " << i;
            EXPECT_EQ(term.value, sum_of_leaves(term)) << text;
            for (const Term& kind : term.children) {
                const auto which = enum_from<TensorKind>(kind.label);
                ASSERT_TRUE(which.has_value()) << kind.label;
                EXPECT_NEAR(kind.value, classes[i].at_peak[*which].value(), 1e-9 * kind.value + 1.0)
                    << text << " " << kind.label;
            }
        }
    }
}

TEST(Memory, VerdictFollowsFromTheBandAndTheUsableMemory) {
    Bench bench = llama_on(1);
    for (const std::string text : {"dp8,mb1,zero0", "tp8,sp,mb1,zero0", "dp8,mb8,zero1"}) {
        for (const ClassMemory& c : bench.classes(text)) {
            const Verdict expected = c.reserved.high <= c.usable ? Verdict::fits
                                     : c.reserved.low > c.usable ? Verdict::does_not_fit
                                                                 : Verdict::borderline;
            EXPECT_EQ(c.verdict, expected);
            EXPECT_LE(c.reserved.low, c.reserved.high);
        }
    }
    EXPECT_EQ(bench.classes("dp8,mb1,zero0")[0].verdict, Verdict::does_not_fit);
    EXPECT_EQ(bench.classes("tp8,sp,mb1,zero0")[0].verdict, Verdict::fits);
}

} // namespace
} // namespace shardplan::sim
