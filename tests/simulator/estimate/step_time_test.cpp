#include "simulator/estimate/step_time.hpp"

#include <utility>

#include <gtest/gtest.h>

#include "simulator/estimate/data_parallel.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Layout;
using sim::RecomputePlan;
using sim::StageShape;

/// A context and the parts of one layout.
class Prepared {
public:
    Prepared(sim::Scenario given, Layout layout) : scenario_(std::move(given)), layout_(layout) {
        auto resolved = resolve(scenario_);
        EXPECT_TRUE(resolved) << sim::to_text(resolved.error());
        resolved_ = resolved->values;
        context_ = step_context(scenario_, resolved_);
        own_ = layout_parts(context_, layout_);
    }

    [[nodiscard]] std::vector<StageShape> shapes(RecomputePlan plan = {}) const {
        const sim::LayoutTables tables;
        return stage_shapes(scenario_.model, layout_, plan,
                            place(scenario_, layout_, tables).stages);
    }
    /// `compute`: seconds of either pass that can hide communication.
    [[nodiscard]] sim::DataParallelTime data_parallel(const StageShape& shape,
                                                      std::int64_t micro_batches,
                                                      double compute = 0.0) const {
        sim::HidingBudget forward(compute);
        sim::HidingBudget backward(compute);
        auto time = data_parallel_time(context_, layout_,
                                       data_parallel_moves(context_, layout_, parts(), shape),
                                       micro_batches, forward, backward);
        hide_step(context_, {}, forward, backward, {}, {}, time);
        return time;
    }
    [[nodiscard]] const sim::StepContext& context() const { return context_; }
    [[nodiscard]] const sim::LayoutParts& parts() const { return own_.parts; }
    [[nodiscard]] const Layout& layout() const { return layout_; }

private:
    sim::Scenario scenario_;
    Layout layout_;
    sim::Resolved resolved_;
    sim::StepContext context_;
    sim::OwnLayoutParts own_;
};

Layout layout(int tp, int pp, int dp) {
    Layout l;
    l.tp = static_cast<std::uint16_t>(tp);
    l.pp = static_cast<std::uint16_t>(pp);
    l.dp = static_cast<std::uint32_t>(dp);
    return l;
}

Prepared llama(Layout l) {
    return {scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), generic_stack()), l};
}

TEST(StageShapes, CountBlocksOfEveryStageAndBothEnds) {
    const std::vector<StageShape> shapes = llama(layout(1, 4, 8)).shapes();
    ASSERT_EQ(shapes.size(), 4U);
    EXPECT_EQ(shapes[0].units, (std::vector<sim::UnitUse>{{1, 1, 0}, {0, 8, 0}}));
    EXPECT_EQ(shapes[1].units, (std::vector<sim::UnitUse>{{0, 8, 0}}));
    EXPECT_EQ(shapes[3].units, (std::vector<sim::UnitUse>{{0, 8, 0}, {2, 1, 0}}));
}

TEST(StageShapes, RecomputeTheFirstBlocksOfEveryStage) {
    const Prepared p = llama(layout(1, 4, 8));
    for (const StageShape& shape : p.shapes({sim::Recompute::full, 3})) {
        double again = 0.0;
        for (const sim::UnitUse& use : shape.units)
            again += use.recomputed;
        EXPECT_EQ(again, 3.0);
    }
}

TEST(StageShapes, SendHalfOfTheMicroBatchesThroughEachCopyOfDualPipe) {
    Layout l = layout(1, 4, 8);
    l.schedule = sim::ScheduleKind::dual_pipe;
    l.chunks = 2;
    double blocks = 0.0;
    for (const StageShape& shape : llama(l).shapes())
        blocks += shape.blocks;
    EXPECT_EQ(blocks, 32.0);
}

TEST(DataParallel, AllReducesGradientsOnceWithoutSharding) {
    const Prepared p = llama(layout(1, 1, 32));
    const auto time = p.data_parallel(p.shapes()[0], 4);
    EXPECT_NEAR(time.traffic.bytes, 2.0 * 31.0 / 32.0 * 4.0 * 8030261248.0, 1.0);
    EXPECT_EQ(time.forward.exposed, 0.0);
}

TEST(DataParallel, ReducesEveryMicroBatchUnderZero2) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::optimizer_gradients;
    const Prepared p = llama(l);
    const double once = p.data_parallel(p.shapes()[0], 1).traffic.bytes;
    const double four = p.data_parallel(p.shapes()[0], 4).traffic.bytes;
    EXPECT_NEAR(four - once, 3.0 * 31.0 / 32.0 * 4.0 * 8030261248.0, 1.0);
}

TEST(DataParallel, GathersOnceIfParametersStayAfterTheForwardPass) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::all;
    const Prepared twice = llama(l);
    l.reshard = false;
    const Prepared once = llama(l);
    const double gathered = 31.0 / 32.0 * 2.0 * 8030261248.0;
    EXPECT_NEAR(twice.data_parallel(twice.shapes()[0], 1).traffic.bytes -
                    once.data_parallel(once.shapes()[0], 1).traffic.bytes,
                gathered, 1.0);
}

TEST(DataParallel, CopiesParametersOutOfGatheredUnitsWhereTheStackDoes) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::all;
    l.reshard = true;
    sim::StackProfile stack = generic_stack();
    const auto exposed = [&](bool copies) {
        stack.states.unit_copies = copies;
        const Prepared p(scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack), l);
        const auto time = p.data_parallel(p.shapes()[0], 1);
        return std::pair{time.forward.exposed * p.context().rates.memory_rate,
                         time.backward.exposed * p.context().rates.memory_rate};
    };
    const double parameters = 8030261248.0;
    const auto with = exposed(true);
    const auto without = exposed(false);
    // 16-bit parameters out of the unit in both passes, 16-bit gradients into a 32-bit buffer
    EXPECT_NEAR(with.first - without.first, 4.0 * parameters, 1e-6 * parameters);
    EXPECT_NEAR(with.second - without.second, (4.0 + 6.0) * parameters, 1e-6 * parameters);
}

TEST(DataParallel, KeepsGatheringInsideTheNodeUnderHybridSharding) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::all;
    const Prepared whole = llama(l);
    l.shard_group = 8;
    const Prepared hybrid = llama(l);
    ASSERT_EQ(path_in(hybrid.parts().paths, sim::Group::shard).levels.size(), 1U);
    const auto time = hybrid.data_parallel(hybrid.shapes()[0], 1);
    EXPECT_LT(time.forward.exposed, whole.data_parallel(whole.shapes()[0], 1).forward.exposed);
    // twice gathered and once reduced among 8, and an eighth of the gradients among 4 nodes
    const double parameters = 8030261248.0;
    EXPECT_NEAR(
        time.traffic.bytes,
        7.0 / 8.0 * (2.0 + 2.0 + 4.0) * parameters + 2.0 * 3.0 / 4.0 * 4.0 * parameters / 8.0, 1.0);
}

TEST(DataParallel, AddsUpTheTwoCopiesOfATiedTable) {
    Layout l = layout(8, 4, 1);
    const Prepared p(scenario(gpt3_175b(), dgx_a100(4), job(2048, 8), generic_stack()), l);
    const auto shapes = p.shapes();
    EXPECT_GT(p.data_parallel(shapes[0], 1).step.exposed, 0.0);
    EXPECT_EQ(p.data_parallel(shapes[1], 1).step.exposed, 0.0);
}

TEST(DataParallel, ReducesWholeGradientsAfterTheBackwardPassWhereTheStackDoes) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::optimizer;
    const auto time = [&](bool whole, double slice) {
        sim::StackProfile stack = generic_stack();
        stack.states.reduces_whole_after = whole;
        stack.time.slice_host.value = slice;
        stack.time.slice_host.source = "stated";
        const Prepared p(scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack), l);
        return p.data_parallel(p.shapes()[0], 4, 1e3);
    };
    const double parameters = 8030261248.0;
    const sim::DataParallelTime whole = time(true, 0.0);
    EXPECT_NEAR(whole.traffic.bytes, 31.0 / 32.0 * (2.0 * 4.0 + 2.0) * parameters, 1.0);
    EXPECT_NEAR(time(false, 0.0).traffic.bytes, 31.0 / 32.0 * (4.0 + 2.0) * parameters, 1.0);
    EXPECT_EQ(whole.step.hidden, 0.0);
    EXPECT_GT(time(false, 0.0).step.hidden, 0.0);
    // 32 blocks of seven matrices and two norms, the table, the head and its norm, on 32 ranks; q,
    // k and v are one matrix here, and so are gate and up
    const double slices = (time(true, 1.0).step.exposed - whole.step.exposed) / 32.0;
    EXPECT_NEAR(slices, 32.0 * 6.0 + 3.0, 1e-6);
}

TEST(DataParallel, CannotHideTheGradientsOfTheTokenTable) {
    Layout l = layout(1, 1, 32);
    sim::StackProfile stack = generic_stack();
    stack.time.dp_overlap.value = 1.0;
    stack.time.overlap_slowdown.value = 0.0;
    const Prepared p(scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack), l);
    const auto time = p.data_parallel(p.shapes()[0], 1, 1e3);
    const double table = 128256.0 * 4096.0 / 8030261248.0;
    EXPECT_NEAR(time.step.exposed, table * time.traffic.seconds, 1e-9);
}

TEST(DataParallel, OverlapsOnlyWhereTheFeatureIsOn) {
    Layout l = layout(1, 1, 32);
    sim::StackProfile stack = generic_stack();
    const auto hidden = [&] {
        const Prepared p(scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack), l);
        return p.data_parallel(p.shapes()[0], 1, 1e3).step.hidden;
    };
    EXPECT_GT(hidden(), 0.0);
    stack.features.clear();
    EXPECT_EQ(hidden(), 0.0);
    stack.features = {sim::Feature::dp_overlap, sim::Feature::no_overlap};
    EXPECT_EQ(hidden(), 0.0);
}

TEST(Optimizer, TouchesOnlyItsOwnShardOfTheStates) {
    Layout l = layout(1, 1, 32);
    const Prepared plain = llama(l);
    const double all = optimizer_seconds(plain.context(), l, plain.parts(), plain.shapes()[0]);
    l.shard = sim::Shard::all;
    const Prepared sharded = llama(l);
    const double own =
        optimizer_seconds(sharded.context(), l, sharded.parts(), sharded.shapes()[0]);
    EXPECT_NEAR(own * 32.0, all, 1e-9 * all);
}

TEST(StepTime, CutsMessagesBetweenStagesOverTensorParallelRanks) {
    const auto result = [](bool cut) {
        sim::StackProfile stack = generic_stack();
        stack.tensors.scattered_messages = cut;
        const Prepared p{scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack),
                         layout(4, 4, 2)};
        sim::StepScratch scratch;
        std::vector<sim::StageTraffic> traffic;
        const sim::StepResult step = step_time(p.context(), p.layout(), p.parts(),
                                               runs_of(p.shapes()), {}, 64, scratch, traffic);
        return std::pair(traffic.front().message.bytes, step.exposed[sim::TimeKind::pp_comm]);
    };
    EXPECT_DOUBLE_EQ(result(true).first, result(false).first / 4.0);
    EXPECT_LT(result(true).second, result(false).second);
}

TEST(StepTime, SendsHeadersAheadOfMessagesWhereTheStackDoes) {
    const auto seconds = [](std::int64_t headers) {
        sim::StackProfile stack = generic_stack();
        stack.tensors.message_headers = headers;
        const Prepared p{scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), stack),
                         layout(1, 4, 8)};
        sim::StepScratch scratch;
        std::vector<sim::StageTraffic> traffic;
        step_time(p.context(), p.layout(), p.parts(), runs_of(p.shapes()), {}, 16, scratch,
                  traffic);
        return traffic.front().message.seconds;
    };
    EXPECT_GT(seconds(1), seconds(0));
    EXPECT_NEAR(seconds(2) - seconds(1), seconds(1) - seconds(0), 1e-12);
}

/// Llama 3 8B with `modules` that predict one further token each.
sim::ModelSpec predicting(std::int64_t modules) {
    sim::ModelSpec model = llama_3_8b();
    if (modules == 0) return model;
    sim::Part part;
    part.name = "mtp";
    part.role = sim::PartRole::mtp;
    part.hidden = 4096;
    part.runs = {{0, modules}};
    part.other_parameters = modules * (2 * 4096 * 4096 + 2 * 4096);
    model.parts.push_back(part);
    return model;
}

TEST(StepTime, PredictionModulesRunABlockAndAHeadOnTheLastStage) {
    const Layout l = layout(1, 4, 8);
    const auto prepared = [&](std::int64_t modules) {
        return Prepared{scenario(predicting(modules), dgx_h100(4), job(8192, 128)), l};
    };
    const Prepared with = prepared(2);
    const auto shapes = with.shapes();
    EXPECT_EQ(shapes[0].units, prepared(0).shapes()[0].units);
    EXPECT_EQ(shapes[3].units,
              (std::vector<sim::UnitUse>{{0, 8, 0}, {0, 2, 0}, {3, 2, 0}, {2, 1, 0}}));
    sim::StepScratch scratch;
    const auto seconds = [&](const Prepared& p, const std::vector<StageShape>& of) {
        return step_time(p.context(), l, p.parts(), runs_of(of), {}, 16, scratch);
    };
    const sim::StepResult plain = seconds(prepared(0), prepared(0).shapes());
    const sim::StepResult more = seconds(with, shapes);
    EXPECT_EQ(more.slowest_stage, 3);
    EXPECT_GT(more.total, plain.total);
    // a head, a block and 2 x 4096^2 more per module: the head alone is 2.4 blocks
    const sim::UnitTime& head = with.parts().units[2];
    const sim::UnitTime& joint = with.parts().units[3];
    EXPECT_GT(joint.forward.gemm, head.forward.gemm);
    EXPECT_LT(joint.forward.gemm, 1.2 * head.forward.gemm);
    // the joints and the copy of the table, once
    EXPECT_NEAR(2.0 * with.parts().parameters[3].trained(),
                2.0 * (2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0) + 4096.0 + 128256.0 * 4096.0, 1.0);
}

TEST(StepTime, TrafficIsThatOfEveryStageNotOfTheSlowestAlone) {
    sim::ModelSpec model = llama_3_8b();
    model.embedding.tied = true;
    const Layout l = layout(1, 4, 8);
    const Prepared p{scenario(model, dgx_h100(4), job(8192, 128)), l};
    sim::StepScratch scratch;
    std::vector<sim::StageTraffic> traffic;
    const auto runs = runs_of(p.shapes());
    const auto step = step_time(p.context(), l, p.parts(), runs, {}, 16, scratch, traffic);
    EXPECT_EQ(step, step_time(p.context(), l, p.parts(), runs, {}, 16, scratch));
    ASSERT_EQ(3U, traffic.size());
    // the unit of the head (its table and a norm) in four bytes an element, on both ends
    EXPECT_DOUBLE_EQ(4.0 * (128256.0 + 1.0) * 4096.0, traffic[0].tied.bytes);
    EXPECT_EQ(0.0, traffic[1].tied.bytes);
    EXPECT_EQ(traffic[0].tied.bytes, traffic[2].tied.bytes);
    EXPECT_GT(traffic[0].dp.bytes, traffic[1].dp.bytes);
}

TEST(StepTime, IsBoundByTheLongestStage) {
    Layout l = layout(1, 4, 8);
    const Prepared p = llama(l);
    sim::StepScratch scratch;
    auto shapes = p.shapes();
    const auto even = step_time(p.context(), l, p.parts(), runs_of(shapes), {}, 8, scratch);
    shapes[1].units[0].count = 12;
    shapes[2].units[0].count = 4;
    const auto uneven = step_time(p.context(), l, p.parts(), runs_of(shapes), {}, 8, scratch);
    EXPECT_EQ(uneven.slowest_stage, 1);
    EXPECT_GT(uneven.total, even.total);
}

} // namespace
} // namespace shardplan::test
