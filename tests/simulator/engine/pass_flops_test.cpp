#include "simulator/engine/pass_flops.hpp"

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"
#include "tests/support/measurements.hpp"

namespace {

using namespace shardplan;
using namespace shardplan::sim;

Scenario small() {
    return test::scenario(test::small_model(4, 4, 4), test::dgx_h100(1), test::job(64, 16),
                          test::generic_stack());
}

/// Passes of a block, an update, and a pass of a stage that the layout does not have.
Measurement run_of_passes() {
    Measurement m = test::run_of_two("dp2,mb1");
    // units of the stage: the embedding, four blocks, the head
    m.tasks = {{TaskKind::forward, StreamKind::compute, 0, 0, 1, 0},
               {TaskKind::backward, StreamKind::compute, 0, 0, 1, 0},
               {TaskKind::optimizer, StreamKind::compute, 0, 0, 0, -1},
               {TaskKind::forward, StreamKind::compute, 7, 0, 0, 0}};
    m.timeline->spans.clear();
    for (std::uint32_t task = 0; task < m.tasks.size(); ++task) {
        const std::int64_t begin = 10 * std::int64_t{task};
        m.timeline->spans.push_back(
            {0, task, m.tasks[task].kind, WaitCause::none, begin, begin + 10, 0.0, 0.0});
    }
    return m;
}

TEST(PassFlops, AreThoseOfTheOperatorsOfAUnit) {
    const Scenario scenario = small();
    LayoutTables tables;
    const auto parsed = parse_layout("dp8,mb1", "layout", tables);
    ASSERT_TRUE(parsed);
    Measurement m = run_of_passes();
    ASSERT_TRUE(add_flops(scenario, parsed->layout, tables, m));
    const auto& spans = m.timeline->spans;
    EXPECT_GT(spans[0].flops, 0.0);
    // gradients of inputs and of weights: twice the products, and attention's own
    EXPECT_GE(spans[1].flops, 2.0 * spans[0].flops);
    EXPECT_LE(spans[1].flops, 2.5 * spans[0].flops);
    EXPECT_EQ(0.0, spans[2].flops) << "an update is no product";
    EXPECT_EQ(0.0, spans[3].flops) << "there is no such stage";
}

TEST(PassFlops, HalveUnderTensorParallelism) {
    const Scenario scenario = small();
    const auto forward = [&](const char* text) {
        LayoutTables tables;
        const auto parsed = parse_layout(text, "layout", tables);
        Measurement m = run_of_passes();
        EXPECT_TRUE(add_flops(scenario, parsed->layout, tables, m));
        return m.timeline->spans[0].flops;
    };
    EXPECT_DOUBLE_EQ(forward("dp8,mb1"), 2.0 * forward("tp2,dp4,mb1"));
}

TEST(PassFlops, AreNotAskedForWithoutATimeline) {
    const Scenario scenario = small();
    Measurement m = test::run_of_two("dp2,mb1");
    m.timeline.reset();
    EXPECT_TRUE(add_flops(scenario, Layout{}, {}, m));
}

} // namespace
