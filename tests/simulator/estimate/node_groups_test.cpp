#include "simulator/estimate/node_groups.hpp"

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

/// Two nodes of A100 with 8 x 200 Gbit/s, then two of H100 with 8 x 400 Gbit/s.
sim::Cluster old_and_new() {
    sim::Cluster cluster = dgx_a100(2);
    cluster.node_groups[0].name = "old";
    cluster.node_groups.push_back(dgx_h100(2).node_groups[0]);
    cluster.node_groups[1].name = "new";
    return cluster;
}

struct Asked {
    sim::Estimate estimate;
    std::vector<sim::GroupUse> groups;
};
Asked ask(const sim::Cluster& cluster, std::string_view text) {
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(text, "layout", tables);
    EXPECT_TRUE(parsed);
    const auto layout = sim::complete_layout(*parsed, sim::device_count(cluster), "layout");
    EXPECT_TRUE(layout);
    const auto evaluator = sim::Evaluator::make(
        scenario(llama_3_8b(), cluster, job(8192, 64), generic_stack()), tables);
    EXPECT_TRUE(evaluator);
    sim::Workspace workspace;
    Asked out;
    evaluator->evaluate(*layout, workspace, out.estimate);
    evaluator->annotate(*layout, out.estimate);
    out.groups =
        sim::group_uses(evaluator->scenario(), evaluator->resolved(), out.estimate.classes);
    return out;
}

TEST(NodeGroups, SayWhichStagesTheyHoldAndWhatTheOthersWaitFor) {
    const Asked asked = ask(old_and_new(), "tp8,pp2,mb1,zero1");
    ASSERT_EQ(asked.groups.size(), 2U);
    const sim::GroupUse& old = asked.groups[0];
    const sim::GroupUse& fresh = asked.groups[1];
    EXPECT_EQ(old.name, "old");
    EXPECT_EQ(old.device, "A100-SXM-80GB");
    EXPECT_EQ(old.ranks, 16);
    EXPECT_EQ(old.stages, std::vector<std::int64_t>{0});
    EXPECT_EQ(fresh.stages, std::vector<std::int64_t>{1});
    EXPECT_TRUE(old.slowest_device && old.slowest_scaleup && old.slowest_network);
    EXPECT_FALSE(fresh.slowest_device || fresh.slowest_scaleup || fresh.slowest_network);
    EXPECT_DOUBLE_EQ(fresh.network_per_rank.value(), 2.0 * old.network_per_rank.value());
    // memory is bounded per group
    EXPECT_EQ(asked.estimate.classes.at(0).node_group, 0);
    EXPECT_EQ(asked.estimate.classes.at(1).node_group, 1);
    EXPECT_NE(asked.estimate.verdict_text.find(" of node group "), std::string::npos);
}

TEST(NodeGroups, OfOneKindHaveNoSlowest) {
    const Asked asked = ask(dgx_h100(4), "tp8,pp2,mb1,zero1");
    ASSERT_EQ(asked.groups.size(), 1U);
    EXPECT_EQ(asked.groups[0].ranks, 32);
    EXPECT_EQ(asked.groups[0].stages, (std::vector<std::int64_t>{0, 1}));
    EXPECT_FALSE(asked.groups[0].slowest_device);
    EXPECT_EQ(asked.estimate.verdict_text.find("node group"), std::string::npos);
}

TEST(NodeGroups, AreSlowestEachInItsOwnWay) {
    sim::Cluster cluster = old_and_new();
    cluster.node_groups[1].node.nics.per_nic.physical = sim::Bandwidth(5e9);
    const Asked asked = ask(cluster, "tp8,pp2,mb1,zero1");
    EXPECT_TRUE(asked.groups[0].slowest_device);
    EXPECT_TRUE(asked.groups[1].slowest_network);
    EXPECT_FALSE(asked.groups[0].slowest_network);
}

TEST(NodeGroups, WaitForTheSlowestHostWhereStatesAreOffloaded) {
    sim::Cluster cluster = dgx_h100(1);
    cluster.node_groups.push_back(cluster.node_groups[0]);
    cluster.node_groups[1].node.host.pcie_per_device.physical = sim::Bandwidth(5e9);
    cluster.node_groups[1].node.host.pcie_per_device.achievable.reset();
    const auto seconds = [](const sim::Cluster& c) {
        return ask(c, "tp8,dp2,mb1,zero1,off=opt:1.0:host")
            .estimate.time.exposed[sim::TimeKind::offload]
            .value();
    };
    EXPECT_GT(seconds(cluster), 1.5 * seconds(dgx_h100(2)));
}

} // namespace
} // namespace shardplan::test
