#include "simulator/estimate/processor_share.hpp"

#include <string>

#include <gtest/gtest.h>

#include "simulator/engine/simulate.hpp"
#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;
using namespace shardplan::sim;

struct Case {
    Evaluator evaluator;
    Layout layout;

    [[nodiscard]] Estimate estimate() const {
        Workspace workspace;
        return evaluator.estimate(layout, workspace);
    }
};

/// Eight devices of one node on so many processors; exchanges wait for nothing.
Case on(std::int64_t processors, const std::string& text) {
    Cluster cluster = test::dgx_h100(1);
    cluster.node_groups[0].node.processors = processors;
    Scenario scenario = test::scenario(test::small_model(32, 32, 8), cluster, test::job(4096, 64));
    scenario.stack = with_features(scenario.stack, {Feature::no_overlap});
    LayoutTables tables;
    const auto parsed = parse_layout(text, "layout", tables);
    EXPECT_TRUE(parsed) << text;
    const auto layout = complete_layout(*parsed, device_count(scenario.cluster), "layout");
    return {*Evaluator::make(std::move(scenario), tables), *layout};
}

double exposed(const Estimate& e, TimeKind kind) { return e.time.exposed[kind].value(); }

TEST(ProcessorShare, OfAsManyProcessorsAsDevicesChangesNothing) {
    for (const char* text : {"tp8,dp1,mb1", "pp8,dp1,mb1", "tp2,pp2,dp2,mb1,zero1"}) {
        EXPECT_EQ(on(0, text).estimate(), on(8, text).estimate()) << text;
    }
}

TEST(ProcessorShare, OfHalfAsManyDoublesWhatIsComputedAndNotWhatIsSent) {
    for (const char* text : {"tp8,dp1,mb1", "tp4,dp2,mb1,zero1", "dp8,mb1,zero3,rc=full"}) {
        const Estimate alone = on(0, text).estimate();
        const Estimate shared = on(4, text).estimate();
        for (const TimeKind kind : {TimeKind::gemm, TimeKind::attention, TimeKind::elementwise,
                                    TimeKind::recompute, TimeKind::optimizer}) {
            EXPECT_NEAR(2.0 * exposed(alone, kind), exposed(shared, kind),
                        1e-9 * exposed(alone, kind))
                << text << ' ' << name_of(kind);
        }
        EXPECT_EQ(exposed(alone, TimeKind::tp_comm), exposed(shared, TimeKind::tp_comm)) << text;
        EXPECT_EQ(exposed(alone, TimeKind::dp_comm), exposed(shared, TimeKind::dp_comm)) << text;
    }
}

TEST(ProcessorShare, OfVirtualNodesIsThatOfTheirMachine) {
    const auto step = [](bool virtual_nodes, std::int64_t processors) {
        Cluster cluster = test::dgx_h100(2);
        (virtual_nodes ? cluster.processors : cluster.node_groups[0].node.processors) = processors;
        Scenario scenario =
            test::scenario(test::small_model(32, 32, 8), cluster, test::job(4096, 64));
        LayoutTables tables;
        const auto parsed = parse_layout("tp8,pp2,dp1,mb32", "layout", tables);
        const auto layout = complete_layout(*parsed, 16, "layout");
        Workspace workspace;
        return Evaluator::make(std::move(scenario), tables)
            ->estimate(*layout, workspace)
            .time.total.value.value();
    };
    EXPECT_EQ(step(true, 16), step(false, 0));
    EXPECT_LT(step(true, 8), step(false, 4)) << "of two stages one lends the other its processors";
    EXPECT_GT(step(true, 8), step(false, 0));
}

TEST(ProcessorShare, OfAPipelineLetsStagesComputeWhileOthersWait) {
    // eight stages and micro-batches: of 15 turns a stage works in 8, so that four processors do
    // nearly as much as eight
    const char* text = "pp8,dp1,mb8";
    const double alone = on(0, text).estimate().time.total.value.value();
    const double shared = on(4, text).estimate().time.total.value.value();
    EXPECT_LT(1.0 * alone, shared);
    EXPECT_GT(1.5 * alone, shared);
    // one processor has all the work there is
    const double one = on(1, text).estimate().time.total.value.value();
    EXPECT_GT(one, 4.0 * alone);
    EXPECT_LT(one, 8.0 * alone);
}

/// The estimate has no others compute while a stage waits for its exchanges, and no processor idle
/// in the middle of a pipeline.
TEST(ProcessorShare, AgreesWithTheStepPlayedWithinNinePercent) {
    for (const std::int64_t processors : {1, 2, 4, 6}) {
        for (const char* text :
             {"tp8,dp1,mb1", "dp8,mb1", "pp8,dp1,mb1", "pp8,dp1,mb8", "tp2,pp4,dp1,mb1",
              "pp4,dp2,mb1,zero1", "pp4,dp2,mb8", "pp2,tp2,dp2,mb1", "pp8,dp1,mb1,sched=gpipe",
              "pp4,v2,dp2,mb1", "pp4,dp2,mb1,zero1,rc=full"}) {
            const Case c = on(processors, text);
            const double estimate = c.estimate().time.total.value.value();
            const auto played = simulate(c.evaluator, c.layout, {});
            ASSERT_TRUE(played) << text;
            EXPECT_NEAR(1.0, estimate / played->step.value(), 0.09) << text << " on " << processors;
        }
    }
}

TEST(ProcessorShare, GivesTheScoreOfTheEstimate) {
    for (const char* text : {"tp8,dp1,mb1", "pp8,dp1,mb2", "pp4,dp2,mb1,zero1"}) {
        const Case c = on(3, text);
        Workspace workspace;
        EXPECT_EQ(c.estimate().time.total.value.value(),
                  c.evaluator.score(c.layout, workspace).step_time.value())
            << text;
    }
}

} // namespace
