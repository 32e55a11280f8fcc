#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/estimate/step_time.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Layout;
using sim::Scenario;
using sim::TimeKind;

/// What a step costs with everything that can be hidden allowed to hide wholly.
sim::StepResult step(Scenario s, const Layout& layout) {
    sim::StackTime& time = s.stack.time;
    for (sim::Constant* overlap : {&time.dp_overlap, &time.gather_overlap, &time.tp_overlap,
                                   &time.pp_overlap, &time.cp_overlap}) {
        overlap->value = 1.0;
    }
    s.stack.features.push_back(sim::Feature::tp_comm_overlap);
    const auto resolved = resolve(s);
    EXPECT_TRUE(resolved) << sim::to_text(resolved.error());
    const sim::StepContext context = step_context(s, resolved->values);
    const sim::OwnLayoutParts own = layout_parts(context, layout);
    const sim::LayoutTables tables;
    const sim::RecomputePlan plan{sim::Recompute::full, 1};
    const auto shapes = stage_shapes(s.model, layout, plan, place(s, layout, tables).stages);
    sim::StepScratch scratch;
    return step_time(context, layout, own.parts, runs_of(shapes), plan,
                     micro_batches(resolved->values, layout), scratch);
}

/// Four nodes whose links are so slow that all kinds of communication want the same compute.
Scenario slow_links(double links) {
    Scenario s = scenario(llama_3_8b(), dgx_h100(4), job(8192, 128), generic_stack());
    sim::NodeTemplate& node = s.cluster.node_groups.front().node;
    node.scaleup.per_device.physical = sim::Bandwidth(450e9 * links);
    node.nics.per_nic.physical = sim::Bandwidth(50e9 * links);
    node.host.pcie_per_device.physical = sim::Bandwidth(50e9 * links);
    return s;
}

Scenario faster_device(Scenario s, double factor) {
    for (sim::Device& device : s.devices) {
        for (auto& [format, rate] : device.peak_dense) {
            rate = rate * factor;
        }
        device.memory_bandwidth.physical = device.memory_bandwidth.physical * factor;
    }
    s.stack.time.launch.value /= factor;
    return s;
}

/// Layouts in which several kinds of communication meet in one pass.
std::vector<Layout> crowded_layouts() {
    std::vector<Layout> out;
    Layout l;
    l.tp = 2;
    l.cp = 2;
    l.cp_kind = sim::CpKind::ring;
    l.pp = 2;
    l.dp = 4;
    for (const sim::Shard shard : {sim::Shard::none, sim::Shard::optimizer,
                                   sim::Shard::optimizer_gradients, sim::Shard::all}) {
        l.shard = shard;
        for (const sim::ScheduleKind schedule :
             {sim::ScheduleKind::gpipe, sim::ScheduleKind::one_f_one_b,
              sim::ScheduleKind::interleaved}) {
            l.chunks = schedule == sim::ScheduleKind::interleaved ? 2 : 1;
            l.schedule = schedule;
            l.offload_tier = sim::OffloadTier::none;
            l.offload_activations = 0;
            out.push_back(l);
            l.offload_tier = sim::OffloadTier::host;
            l.offload_activations = sim::offload_scale;
            out.push_back(l);
        }
    }
    return out;
}

TEST(Hiding, NeverHidesTwoSecondsOfCommunicationUnderOneOfCompute) {
    for (const double links : {0.01, 0.05, 0.2, 1.0}) {
        for (const Layout& layout : crowded_layouts()) {
            const sim::StepResult r = step(slow_links(links), layout);
            // while the device waits for copies to the host the network is free as well
            const double window =
                r.exposed[TimeKind::gemm].value() + r.exposed[TimeKind::attention].value() +
                r.exposed[TimeKind::elementwise].value() + r.exposed[TimeKind::recompute].value() +
                r.exposed[TimeKind::offload].value();
            const double hidden =
                r.hidden[TimeKind::tp_comm].value() + r.hidden[TimeKind::cp_comm].value() +
                r.hidden[TimeKind::pp_comm].value() + r.hidden[TimeKind::dp_comm].value();
            EXPECT_LE(hidden, window) << "links " << links;
            EXPECT_GT(hidden, 0.0);
        }
    }
}

TEST(Hiding, AFasterDeviceNeverMakesAStepSlower) {
    for (const double links : {0.01, 0.05, 0.2, 1.0}) {
        for (const Layout& layout : crowded_layouts()) {
            double before = step(slow_links(links), layout).total.value();
            for (const double factor : {1.25, 2.0, 4.0, 16.0, 64.0}) {
                const double now =
                    step(faster_device(slow_links(links), factor), layout).total.value();
                EXPECT_LE(now, before * (1.0 + 1e-12)) << "links " << links << ", x " << factor;
                before = now;
            }
        }
    }
}

TEST(Hiding, AFasterLinkNeverMakesAStepSlower) {
    for (const Layout& layout : crowded_layouts()) {
        double before = step(slow_links(0.01), layout).total.value();
        for (const double links : {0.013, 0.02, 0.05, 0.2, 1.0, 4.0}) {
            const double now = step(slow_links(links), layout).total.value();
            EXPECT_LE(now, before * (1.0 + 1e-12)) << "links " << links;
            before = now;
        }
    }
}

TEST(Hiding, ServesWhatAsksFirst) {
    sim::HidingBudget budget(1.0);
    EXPECT_EQ(budget.hide(0.75, 1.0, 0.0), (sim::Hiding{0.0, 0.75}));
    EXPECT_EQ(budget.hide(0.75, 1.0, 0.0), (sim::Hiding{0.5, 0.25}));
    EXPECT_EQ(budget.hide(0.75, 1.0, 0.0), (sim::Hiding{0.75, 0.0}));
}

TEST(HidingBesideExchanges, GoesOnWhileComputeWaitsForOtherLinks) {
    const sim::HidingBudget compute(2.0);
    const sim::Exchanges elsewhere{3.0, 0.0, 1.0};
    const sim::SharedHiding all = hide_beside(4.0, 1.0, 1.0, elsewhere, compute, 0.1);
    EXPECT_DOUBLE_EQ(4.0, all.hiding.hidden);
    EXPECT_EQ(0.0, all.slowed);
    // four fifths of the window, and so of the compute, have it beside them
    EXPECT_DOUBLE_EQ(0.8 * 2.0 * 0.1, all.hiding.exposed);
    const sim::SharedHiding part = hide_beside(9.0, 1.0, 1.0, elsewhere, compute, 0.0);
    EXPECT_DOUBLE_EQ(5.0, part.hiding.hidden);
    EXPECT_DOUBLE_EQ(4.0, part.hiding.exposed);
}

TEST(HidingBesideExchanges, GainsNothingOverALinkThatBothFill) {
    const sim::HidingBudget none(0.0);
    const sim::SharedHiding both = hide_beside(10.0, 1.0, 1.0, {0.0, 3.0, 1.0}, none, 0.0);
    // each has half: what is hidden makes the exchanges as much longer
    EXPECT_DOUBLE_EQ(3.0, both.hiding.hidden);
    EXPECT_DOUBLE_EQ(3.0, both.slowed);
}

TEST(HidingBesideExchanges, FillsWhatALinkHasLeft) {
    const sim::HidingBudget none(0.0);
    // a quarter of the link: the exchanges have three quarters, and take a third longer
    const sim::SharedHiding slow = hide_beside(10.0, 1.0, 0.25, {0.0, 3.0, 1.0}, none, 0.0);
    EXPECT_DOUBLE_EQ(4.0, slow.hiding.hidden);
    EXPECT_DOUBLE_EQ(1.0, slow.slowed);
    // exchanges of short messages leave room enough
    const sim::SharedHiding room = hide_beside(10.0, 1.0, 0.25, {0.0, 3.0, 0.7}, none, 0.0);
    EXPECT_DOUBLE_EQ(3.0, room.hiding.hidden);
    EXPECT_EQ(0.0, room.slowed);
    // and others are left all they ask for where that is less than half
    const sim::SharedHiding most = hide_beside(10.0, 1.0, 1.0, {0.0, 3.0, 0.4}, none, 0.0);
    EXPECT_DOUBLE_EQ(0.6 * 3.0, most.hiding.hidden);
    EXPECT_EQ(0.0, most.slowed);
}

} // namespace
} // namespace shardplan::test
