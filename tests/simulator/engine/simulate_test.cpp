#include "simulator/engine/simulate.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;
using namespace shardplan::sim;

struct Case {
    Evaluator evaluator;
    Layout layout;
};

Case make_case(Scenario scenario, const std::string& text, bool overlap) {
    if (!overlap) scenario.stack = with_features(scenario.stack, {Feature::no_overlap});
    LayoutTables tables;
    const auto parsed = parse_layout(text, "layout", tables);
    EXPECT_TRUE(parsed) << text;
    const auto layout = complete_layout(*parsed, device_count(scenario.cluster), "layout");
    return {*Evaluator::make(std::move(scenario), tables), *layout};
}

/// Eight equal blocks a stage, one of them on either end would make stages uneven; their embedding
/// and head are small beside them.
Case equal_stages(const std::string& text, bool overlap = false, std::int64_t batch = 256) {
    ModelSpec model = test::small_model(32, 32, 8);
    return make_case(test::scenario(std::move(model), test::dgx_h100(8), test::job(4096, batch)),
                     text, overlap);
}
Case llama_70b(const std::string& text, bool overlap = false, std::int64_t batch = 256) {
    return make_case(test::scenario(test::llama_3_70b(), test::dgx_h100(8), test::job(8192, batch)),
                     text, overlap);
}

double relative(const Case& c, const SimulateOptions& options = {}) {
    Workspace workspace;
    const Estimate e = c.evaluator.estimate(c.layout, workspace);
    const auto s = simulate(c.evaluator, c.layout, options);
    EXPECT_TRUE(s) << (s ? "" : to_text(s.error()));
    return s ? s->step / e.time.total.value - 1.0 : 1.0;
}

TEST(Simulate, EqualsTheEstimateWithoutPipeline) {
    for (const char* text :
         {"tp8,sp,dp8,mb1,zero1", "dp64,mb1,zero2", "dp64,mb1,zero3", "dp64,mb1,zero3,rc=full",
          "tp8,sp,dp8,mb1,rc=selective", "tp8,dp8,mb1,zero1,off=opt:1.0:host"}) {
        EXPECT_NEAR(0.0, relative(equal_stages(text)), 1e-9) << text;
        EXPECT_NEAR(0.0, relative(llama_70b(text)), 1e-9) << text;
    }
}

TEST(Simulate, EqualsTheEstimateForGPipeAnd1F1BWithoutOverlap) {
    // What is left is the embedding: stage 0 reduces a little more than the stage whose work after
    // the pipeline the estimate takes.
    for (const char* text : {"tp8,sp,pp4,dp2,mb1", "tp8,sp,pp4,dp2,mb1,sched=gpipe",
                             "tp8,sp,pp4,dp2,mb1,zero1,rc=full", "tp4,pp8,dp2,mb1,rc=full:2"}) {
        EXPECT_NEAR(0.0, relative(equal_stages(text)), 1e-6) << text;
        EXPECT_NEAR(0.0, relative(llama_70b(text)), 1e-6) << text;
    }
}

TEST(Simulate, IsNearTheEstimateForInterleavedAndZeroBubbleH1) {
    for (const char* text : {"tp8,sp,pp4,v2,dp2,mb1", "tp8,sp,pp4,v4,dp2,mb1",
                             "tp8,sp,pp4,dp2,mb1,sched=zb-h1", "tp4,sp,pp8,dp2,mb1,sched=zb-h1"}) {
        EXPECT_NEAR(0.0, relative(equal_stages(text)), 0.01) << text;
        EXPECT_NEAR(0.0, relative(llama_70b(text)), 0.01) << text;
    }
}

TEST(Simulate, OneTaskPerUnitTakesAsLongAsOnePerExchangeWithoutOverlap) {
    const Case c = llama_70b("tp8,sp,pp4,v2,dp2,mb1,zero1");
    SimulateOptions coarse;
    coarse.exchanges = false;
    EXPECT_NEAR(relative(c), relative(c, coarse), 1e-9);
}

TEST(Simulate, IsNearTheEstimateForZeroBubbleVAndDualPipe) {
    for (const char* text :
         {"tp8,sp,pp4,v2,dp2,mb1,sched=zb-v", "tp4,sp,pp8,v2,dp2,mb1,sched=zb-v",
          "tp8,sp,pp4,v2,dp2,mb1,sched=dualpipe", "tp4,sp,pp8,v2,dp2,mb1,sched=dualpipe"}) {
        EXPECT_NEAR(0.0, relative(equal_stages(text)), 0.015) << text;
        EXPECT_NEAR(0.0, relative(llama_70b(text)), 0.015) << text;
    }
}

TEST(Simulate, IsNearTheEstimateWhereGradientsAreReducedBesideExpertExchanges) {
    // experts over eight nodes each, so that both kinds of traffic want the same cards
    ModelSpec model = test::mixtral_8x7b();
    for (BlockKind& kind : model.block_kinds) {
        kind.ffn.experts = 64;
        kind.ffn.expert_width /= 8;
    }
    for (const char* text : {"dp256,ep64,mb1,zero1", "pp2,dp128,ep64,mb1,zero1",
                             "pp4,dp64,ep64,mb1,zero1", "pp4,dp64,ep64,mb1,zero0"}) {
        for (const std::int64_t batch : {256, 1024}) {
            const Case c =
                make_case(test::scenario(model, test::dgx_h100(32), test::job(4096, batch),
                                         test::megatron_core_stack()),
                          text, true);
            EXPECT_NEAR(0.0, relative(c), 0.04) << text << ", batch " << batch;
        }
    }
}

void expect_peaks_of_estimate(const Case& c, double tolerance, const std::string& text) {
    Workspace workspace;
    const Estimate e = c.evaluator.estimate(c.layout, workspace);
    const auto s = simulate(c.evaluator, c.layout);
    ASSERT_TRUE(s);
    ASSERT_EQ(e.classes.size(), s->peaks.size());
    for (std::size_t i = 0; i < e.classes.size(); ++i) {
        const double estimated = e.classes[i].allocated.value.value();
        EXPECT_NEAR(estimated, s->peaks[i].allocated.value(), tolerance * estimated) << text;
        EXPECT_NEAR(s->peaks[i].allocated.value(), s->peaks[i].kinds.total().value(),
                    1e-9 * estimated)
            << text;
        EXPECT_FALSE(s->peaks[i].during.empty());
    }
}

TEST(Simulate, MemoryOverTimePeaksWhereTheEstimateSays) {
    for (const char* text :
         {"tp8,sp,pp4,dp2,mb1,zero1", "tp8,sp,pp4,v2,dp2,mb1", "tp8,sp,pp4,dp2,mb1,sched=gpipe",
          "tp8,sp,pp4,dp2,mb1,sched=zb-h1", "dp64,mb1,zero3", "tp8,sp,pp4,dp2,mb1,rc=full:2",
          "tp8,sp,pp4,v2,dp2,mb1,sched=zb-v", "tp8,sp,pp4,v2,dp2,mb1,sched=dualpipe",
          "tp4,sp,pp8,v2,dp2,mb1,sched=dualpipe", "tp8,sp,pp2,v2,dp4,mb1,sched=dualpipe,rc=full"}) {
        expect_peaks_of_estimate(llama_70b(text), 1e-12, text);
        expect_peaks_of_estimate(llama_70b(text, true), 0.01, text);
    }
}

TEST(Simulate, ActivityOfAStageAddsUpToTheStep) {
    for (const char* text : {"tp8,sp,pp4,v2,dp2,mb1,zero1", "dp64,mb1,zero3", "tp8,sp,dp8,mb1"}) {
        for (const bool overlap : {false, true}) {
            const Case c = llama_70b(text, overlap);
            const auto s = simulate(c.evaluator, c.layout);
            ASSERT_TRUE(s);
            const double step = (s->step - s->overhead).value();
            for (const StageActivity& a : s->stages) {
                EXPECT_NEAR(step, (a.busy + a.exposed.total()).value(), 1e-9 * step) << text;
                EXPECT_LE(a.utilisation, 1.0);
            }
            double critical = 0.0;
            for (const CriticalShare& share : s->critical)
                critical += share.seconds.value();
            EXPECT_NEAR(step, critical, 1e-9 * step) << text;
        }
    }
}

TEST(Simulate, SpansOfATrackDoNotOverlap) {
    const Case c = llama_70b("tp8,sp,pp4,v2,dp2,mb1,zero1", true);
    const auto s = simulate(c.evaluator, c.layout);
    ASSERT_TRUE(s);
    ASSERT_FALSE(s->timeline.spans.empty());
    for (std::size_t i = 1; i < s->timeline.spans.size(); ++i) {
        const Span& before = s->timeline.spans[i - 1];
        const Span& span = s->timeline.spans[i];
        EXPECT_LT(span.t0, span.t1);
        if (span.track == before.track) {
            EXPECT_LE(before.t1, span.t0);
        }
    }
    EXPECT_FALSE(s->timeline.counters.empty());
}

TEST(Simulate, IsTheSameTwice) {
    const Case c = llama_70b("tp8,sp,pp4,v2,dp2,mb1,zero1", true);
    EXPECT_EQ(*simulate(c.evaluator, c.layout), *simulate(c.evaluator, c.layout));
}

TEST(Simulate, EveryRankOnItsOwnTakesExactlyAsLongAsOnePerClass) {
    SimulateOptions all;
    all.every_rank = true;
    for (const char* text :
         {"tp2,pp4,dp8,mb1,zero1", "tp2,pp2,v2,dp16,mb1", "dp64,mb1,zero3", "tp4,pp4,dp4,mb2"}) {
        for (const bool overlap : {false, true}) {
            const Case c = equal_stages(text, overlap, 128);
            const auto one = simulate(c.evaluator, c.layout);
            const auto every = simulate(c.evaluator, c.layout, all);
            ASSERT_TRUE(one && every) << text;
            EXPECT_EQ(one->step.value(), every->step.value()) << text << " " << overlap;
        }
    }
}

TEST(Simulate, EveryRankOnItsOwnExchangesTokensAndContextAsOneOfItsClassDoes) {
    SimulateOptions all;
    all.every_rank = true;
    for (const char* text : {"tp1,pp2,ep8,dp32,mb1,zero1", "tp2,pp2,cp2,ep4,dp8,mb1",
                             "tp2,sp,cp2:a2a,ep4,etp1,dp16,mb1,zero1"}) {
        for (const bool overlap : {false, true}) {
            const Case c = make_case(
                test::scenario(test::mixtral_8x7b(), test::dgx_h100(8), test::job(4096, 128)), text,
                overlap);
            const auto one = simulate(c.evaluator, c.layout);
            const auto every = simulate(c.evaluator, c.layout, all);
            ASSERT_TRUE(one && every) << text;
            EXPECT_EQ(one->step.value(), every->step.value()) << text << " " << overlap;
            EXPECT_NEAR(0.0, relative(c), overlap ? 0.05 : 1e-6) << text;
        }
    }
}

TEST(Simulate, StragglersOfAClassCostWhatDrawingEveryRankCosts) {
    const Case c = equal_stages("tp2,pp2,dp16,mb1", false, 256);
    double one = 0.0;
    double every = 0.0;
    SimulateOptions options;
    options.exchanges = false;
    options.spans = false;
    options.straggler_sigma = 0.02;
    for (options.seed = 1; options.seed <= 40; ++options.seed) {
        options.every_rank = false;
        one += simulate(c.evaluator, c.layout, options)->step.value();
        options.every_rank = true;
        every += simulate(c.evaluator, c.layout, options)->step.value();
    }
    EXPECT_NEAR(1.0, one / every, 0.01);
    options.straggler_sigma = 0.0;
    EXPECT_GT(one, 40.0 * simulate(c.evaluator, c.layout, options)->step.value());
}

TEST(Simulate, SaysSoWhenTheBoundOnEventsIsHit) {
    const Case c = equal_stages("tp8,sp,pp4,dp2,mb1");
    SimulateOptions options;
    options.most_events = 100;
    const auto few = simulate(c.evaluator, c.layout, options);
    ASSERT_FALSE(few);
    EXPECT_EQ("needs more than 100 events", few.error().what);
    options.every_rank = true;
    EXPECT_FALSE(simulate(c.evaluator, c.layout, options));
}

TEST(Simulate, ALongerPrefetchHidesNoLessOfTheGathering) {
    double before = 1e9;
    for (const char* text : {"dp64,mb1,zero3", "dp64,mb1,zero3,prefetch3"}) {
        const Case c = llama_70b(text, true);
        const auto s = simulate(c.evaluator, c.layout);
        ASSERT_TRUE(s) << text;
        EXPECT_LE(s->step.value(), before * (1.0 + 1e-12)) << text;
        before = s->step.value();
    }
}

} // namespace
