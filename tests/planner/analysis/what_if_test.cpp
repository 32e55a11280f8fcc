#include "planner/analysis/what_if.hpp"

#include <gtest/gtest.h>

#include "planner/import/catalogue_once.hpp"
#include "planner/import/load_model.hpp"
#include "simulator/engine/simulate.hpp"

namespace shardplan::plan {
namespace {

constexpr const char* nics = "cluster.node_groups[0].node.nics.per_nic";

Variant llama_8b(const std::string& layout) {
    auto model = load_model("llama-3-8b");
    EXPECT_TRUE(model);
    auto cluster = sim::load_cluster("dgx-h100");
    EXPECT_TRUE(cluster);
    auto small = sim::resize(std::move(cluster->value), 16, "test");
    EXPECT_TRUE(small);
    auto stack = sim::load_stack("megatron-core");
    EXPECT_TRUE(stack);
    sim::Job job;
    job.sequence.max = 4096;
    job.global_batch.sequences = 64;
    auto scenario =
        sim::assemble_scenario(model->model, *small, job, *stack, {}, *catalogue_once());
    EXPECT_TRUE(scenario) << scenario.error().what;
    return {std::move(*scenario), layout};
}

sim::Simulation played(const Variant& variant) {
    sim::LayoutTables tables;
    const auto layout = layout_for(variant.layout, "layout", variant.scenario, tables);
    EXPECT_TRUE(layout);
    const auto evaluator = sim::Evaluator::make(variant.scenario, tables);
    EXPECT_TRUE(evaluator);
    auto s = sim::simulate(*evaluator, *layout);
    EXPECT_TRUE(s);
    return std::move(*s);
}

sim::Result<Variant> changed(const Variant& base, std::vector<std::string> changes) {
    return change(base, changes, {&*catalogue_once(), {}}, "--what-if");
}

std::string layout_after(const char* layout, std::vector<std::string> changes) {
    const auto out = changed(llama_8b(layout), std::move(changes));
    return out ? out->layout : "refused: " + out.error().what;
}

double sum(const std::vector<DiffTerm>& terms, double DiffTerm::*side) {
    double out = 0.0;
    for (const DiffTerm& term : terms)
        out += term.*side;
    return out;
}

TEST(WhatIf, ATermOfTheLayoutTakesThePlaceOfThoseThatSetTheSame) {
    EXPECT_EQ("tp2,sp,pp2,dp4,mb1,prefetch=4",
              layout_after("tp2,sp,pp2,dp4,mb1,prefetch2", {"prefetch=4"}));
    EXPECT_EQ("tp2,pp2,dp4,mb1,hsdp8", layout_after("tp2,pp2,dp4,mb1,zero3", {"hsdp8"}));
    EXPECT_EQ("tp2,pp2,dp4,mb1,stages=15-17",
              layout_after("tp2,pp2,dp4,mb1,stages=16-16", {"stages=15-17"}));
}

TEST(WhatIf, DpFollowsWhereDegreesOrDevicesChangeUnlessItIsNamed) {
    EXPECT_EQ("pp2,mb1,tp4", layout_after("tp2,pp2,dp4,mb1", {"tp4"}));
    EXPECT_EQ("tp2,pp2,mb1", layout_after("tp2,pp2,dp4,mb1", {"gpus=8"}));
    EXPECT_EQ("pp2,mb1,tp4,dp2", layout_after("tp2,pp2,dp4,mb1", {"tp4", "dp2"}));
    EXPECT_EQ("tp2,pp2,dp4,mb2", layout_after("tp2,pp2,dp4,mb1", {"mb2"}));
}

TEST(WhatIf, AnInputIsNotTakenForATermThatBeginsAlike) {
    const auto out =
        changed(llama_8b("tp2,pp2,dp4,mb1"), {std::string(nics) + "=10 Gbit/s", "mb2"});
    ASSERT_TRUE(out);
    EXPECT_EQ("tp2,pp2,dp4,mb2", out->layout);
    EXPECT_DOUBLE_EQ(1.25e9,
                     out->scenario.cluster.node_groups[0].node.nics.per_nic.physical.value());
    const auto stack = changed(llama_8b("tp2,pp2,dp4,mb1"), {"stack.time.dp_overlap=0"});
    ASSERT_TRUE(stack);
    EXPECT_NE(llama_8b("mb1").scenario.stack, stack->scenario.stack);
}

TEST(WhatIf, RefusesWhatIsNeitherInputNorTermAndWhatIsChangedTwice) {
    const Variant base = llama_8b("tp2,pp2,dp4,mb1");
    for (const std::vector<std::string>& changes :
         std::vector<std::vector<std::string>>{{"nonsense"},
                                               {"=3"},
                                               {"tpp=3"},
                                               {"mb2", "mbs4"},
                                               {"zero1", "hsdp8"},
                                               {"stages=x"},
                                               {"gpus=8", "gpus=16"},
                                               {"layout=mb1", "layout=mb2"}}) {
        const auto out = changed(base, changes);
        ASSERT_FALSE(out) << changes.front();
        EXPECT_EQ(0U, out.error().where.find("--what-if")) << out.error().where;
        EXPECT_FALSE(out.error().hint.empty()) << changes.front();
    }
}

TEST(WhatIf, TheStepOfAnAverageStageAddsUpToBothSteps) {
    for (const char* text : {"tp2,sp,pp4,dp2,mb1,zero1", "tp2,sp,pp4,dp2,mb1,sched=zb-h2",
                             "tp2,sp,pp4,v2,dp2,mb1", "dp16,mb1,zero3"}) {
        const Variant base = llama_8b(text);
        const auto slower = changed(base, {std::string(nics) + "=10 Gbit/s"});
        ASSERT_TRUE(slower);
        const sim::Simulation a = played(base);
        const sim::Simulation b = played(*slower);
        const PlayDiff diff = diff_plays(a, b);
        EXPECT_NEAR(a.step.value(), sum(diff.step, &DiffTerm::a), 1e-8 * a.step.value()) << text;
        EXPECT_NEAR(b.step.value(), sum(diff.step, &DiffTerm::b), 1e-8 * b.step.value()) << text;
        EXPECT_GT(b.step, a.step) << text;
    }
}

TEST(WhatIf, SlowerNicsMoveTheWaitForThemAndAnUnevenSplitTheBubble) {
    const Variant base = llama_8b("tp8,sp,pp2,dp1,mb1");
    const auto slower = changed(base, {std::string(nics) + "=1 Gbit/s"});
    ASSERT_TRUE(slower);
    const sim::Simulation before = played(base);
    EXPECT_EQ("waits: pp comm", diff_plays(before, played(*slower)).moved);
    const auto split = changed(base, {"stages=24-8"});
    ASSERT_TRUE(split);
    const PlayDiff diff = diff_plays(before, played(*split));
    EXPECT_EQ("waits: bubble", diff.moved);
    ASSERT_EQ(2U, diff.stages.size());
    EXPECT_GT(diff.stages[1].change(), 0.0); // the short stage waits for the long one
}

TEST(WhatIf, NothingChangedMovesNothing) {
    const sim::Simulation a = played(llama_8b("tp2,sp,pp4,dp2,mb1,zero1"));
    const PlayDiff diff = diff_plays(a, a);
    EXPECT_EQ("", diff.moved);
    for (const DiffTerm& term : diff.path)
        EXPECT_EQ(0.0, term.change()) << term.name;
}

TEST(WhatIf, TheCriticalPathIsNamedByWhatRunsWhere) {
    const sim::Simulation s = played(llama_8b("tp8,sp,pp2,dp1,mb1,stages=24-8"));
    const auto shares = path_shares(s);
    ASSERT_FALSE(shares.empty());
    EXPECT_EQ("backward", shares.front().name);
    EXPECT_EQ(0, shares.front().stage);
    sim::Seconds all;
    for (const PathShare& share : shares) {
        all += share.seconds;
        EXPECT_LE(share.on_stage, share.seconds) << share.name;
    }
    EXPECT_NEAR((s.step - s.overhead).value(), all.value(), 1e-9 * s.step.value());
}

} // namespace
} // namespace shardplan::plan
