#include "simulator/network/group_path.hpp"

#include <gtest/gtest.h>

#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::Group;
using sim::GroupPath;
using sim::Layout;

sim::Scenario on(sim::Cluster cluster) {
    return scenario(llama_3_8b(), std::move(cluster), job(8192, 64), generic_stack());
}

Layout layout(int tp, int pp, int dp) {
    Layout l;
    l.tp = static_cast<std::uint16_t>(tp);
    l.pp = static_cast<std::uint16_t>(pp);
    l.dp = static_cast<std::uint32_t>(dp);
    return l;
}

TEST(GroupPath, OfTensorParallelismStaysOnTheSwitchesOfANode) {
    const GroupPath path = path_of(on(dgx_h100(4)), layout(8, 1, 4), Group::tp);
    ASSERT_EQ(path.levels.size(), 1U);
    EXPECT_EQ(path.levels[0].name, "nvswitch");
    EXPECT_EQ(path.levels[0].members, 8);
    EXPECT_EQ(path.levels[0].sharing_groups, 1);
}

TEST(GroupPath, OfDataParallelismBesideIt) {
    const GroupPath path = path_of(on(dgx_h100(4)), layout(8, 1, 4), Group::dp);
    ASSERT_EQ(path.levels.size(), 1U);
    EXPECT_EQ(path.levels[0].name, "infiniband");
    EXPECT_EQ(path.levels[0].members, 4);
    // eight groups leave every node at once, and each has one of its cards
    EXPECT_EQ(path.levels[0].sharing_groups, 8);
    EXPECT_LE(path.levels[0].per_rank.value(), 50e9);
}

TEST(GroupPath, SpreadsAMessageOverTheCardsOfADevice) {
    sim::Cluster cluster = dgx_h100(4);
    cluster.node_groups[0].node.nics.count = 32;
    cluster.node_groups[0].node.nics.per_nic.physical = sim::Bandwidth(12.5e9);
    const GroupPath path = path_of(on(cluster), layout(8, 4, 1), Group::pp);
    ASSERT_EQ(path.levels.size(), 1U);
    const double card = 12.5e9 * 0.8; // what the kind of network keeps
    EXPECT_DOUBLE_EQ(path.levels[0].per_link.value(), 4.0 * card);
}

TEST(GroupPath, OfAGroupLargerThanANodeHasTwoTiers) {
    const GroupPath path = path_of(on(dgx_h100(4)), layout(2, 1, 16), Group::dp);
    ASSERT_EQ(path.levels.size(), 2U);
    EXPECT_EQ(path.levels[0].members, 4);
    EXPECT_EQ(path.levels[1].members, 4);
    EXPECT_EQ(path.ranks, 16);
    EXPECT_EQ(path.levels[1].sharing_groups, 2);
}

TEST(GroupPath, OfTensorParallelismAcrossNodesUsesTheNetwork) {
    const GroupPath path = path_of(on(dgx_h100(4)), layout(16, 1, 2), Group::tp);
    ASSERT_EQ(path.levels.size(), 2U);
    EXPECT_EQ(path.levels[1].name, "infiniband");
}

TEST(GroupPath, ThatStraddlesNodesIsBoundByTheNetwork) {
    const GroupPath path = path_of(on(dgx_h100(3)), layout(3, 1, 8), Group::tp);
    ASSERT_EQ(path.levels.size(), 1U);
    EXPECT_EQ(path.levels[0].name, "infiniband");
    const GroupPath alone = path_of(on(dgx_h100(1)), layout(3, 1, 1), Group::tp);
    EXPECT_EQ(alone.levels.at(0).name, "nvswitch");
}

TEST(GroupPath, ReachesOverNodesThatShareOneDomain) {
    sim::Cluster cluster = dgx_h100(18);
    sim::NodeTemplate& node = cluster.node_groups[0].node;
    node.devices = 4;
    node.scaleup.domain_devices = 72;
    const GroupPath path = path_of(on(cluster), layout(72, 1, 1), Group::tp);
    ASSERT_EQ(path.levels.size(), 1U);
    EXPECT_EQ(path.levels[0].members, 72);
}

TEST(GroupPath, LeavesTheCardsIdleWhereAllNodesShareOneDomain) {
    sim::Cluster cluster = dgx_h100(4);
    cluster.fabric.kind = sim::FabricKind::nvlink_domain;
    const GroupPath path = path_of(on(cluster), layout(8, 1, 4), Group::dp);
    ASSERT_EQ(path.levels.size(), 1U);
    EXPECT_EQ(path.levels[0].name, "nvswitch");
}

TEST(GroupPath, IsNarrowerAboveAnOversubscribedLevel) {
    sim::Cluster cluster = dgx_h100(64);
    cluster.fabric.levels[0].oversubscription = 7.0;
    const GroupPath path = path_of(on(cluster), layout(8, 1, 64), Group::dp);
    ASSERT_EQ(path.levels.size(), 2U);
    EXPECT_EQ(path.levels[0].members, 32);
    EXPECT_EQ(path.levels[1].members, 2);
    EXPECT_DOUBLE_EQ(path.levels[1].per_rank.value(), path.levels[0].per_rank.value() / 7.0);
    EXPECT_GT(path.levels[1].step_latency, path.levels[0].step_latency);
}

TEST(GroupPath, GoesThroughHostMemoryWithoutPeerAccess) {
    sim::Cluster cluster = dgx_h100(1);
    cluster.node_groups[0].node.scaleup.kind = sim::ScaleupKind::pcie;
    cluster.node_groups[0].node.scaleup.per_device.physical = sim::Bandwidth(31.5e9);
    cluster.node_groups[0].node.host.pcie_per_device.physical = sim::Bandwidth(31.5e9);
    const auto with = path_of(on(cluster), layout(8, 1, 1), Group::tp).levels.at(0).per_rank;
    cluster.node_groups[0].node.scaleup.peer_access = false;
    const auto without = path_of(on(cluster), layout(8, 1, 1), Group::tp).levels.at(0).per_rank;
    EXPECT_LT(without.value(), 0.6 * with.value());
}

TEST(GroupPath, OfRanksThatAreCoresIsAsFastAsTheirNodeSaysTheyCopy) {
    sim::Cluster cluster = dgx_h100(1);
    sim::NodeTemplate& node = cluster.node_groups[0].node;
    node.scaleup.kind = sim::ScaleupKind::none;
    node.scaleup.per_device = {};
    node.host.pcie_per_device.physical = sim::Bandwidth(20e9);
    const auto rate = [&] {
        return path_of(on(cluster), layout(8, 1, 1), Group::tp).levels.at(0).per_rank.value();
    };
    // devices without links of their own: up one slot and down another
    EXPECT_LE(rate(), 10e9);
    node.scaleup.per_device.physical = sim::Bandwidth(50e9);
    EXPECT_DOUBLE_EQ(rate(), 50e9); // no profile of this network takes anything away
}

TEST(GroupPath, GoesThroughHostMemoryWithoutGpudirect) {
    sim::Cluster cluster = dgx_h100(4);
    const auto with = path_of(on(cluster), layout(8, 1, 4), Group::dp).levels.at(0).per_rank;
    cluster.node_groups[0].node.nics.gpudirect = false;
    const auto without = path_of(on(cluster), layout(8, 1, 4), Group::dp).levels.at(0).per_rank;
    EXPECT_LT(without, with);
}

TEST(GroupPath, UsesOnlyTheLinksToItsMembersInAMesh) {
    sim::Cluster cluster = dgx_h100(1);
    cluster.node_groups[0].node.scaleup.kind = sim::ScaleupKind::xgmi_mesh;
    cluster.node_groups[0].node.scaleup.per_device.physical = sim::Bandwidth(448e9);
    const auto rate = [&](int tp) {
        return path_of(on(cluster), layout(tp, 1, 8 / tp), Group::tp).levels.at(0).per_rank.value();
    };
    EXPECT_DOUBLE_EQ(rate(8), 7.0 * rate(2));
}

TEST(GroupPath, CutsExpertsOutOfTheRanksOfAStage) {
    Layout l = layout(2, 2, 8);
    l.ep = 8;
    l.etp = 1;
    EXPECT_EQ(ranks_of(l, Group::ep), (std::vector<sim::StridedRanks>{{1, 8}}));
    EXPECT_EQ(ranks_of(l, Group::expert_dp), (std::vector<sim::StridedRanks>{{8, 2}}));
    EXPECT_EQ(ranks_of(l, Group::pp), (std::vector<sim::StridedRanks>{{16, 2}}));
}

TEST(GroupPath, SplitsHybridShardingIntoNeighboursAndCopies) {
    Layout l = layout(1, 1, 32);
    l.shard = sim::Shard::all;
    l.shard_group = 8;
    EXPECT_EQ(ranks_of(l, Group::shard), (std::vector<sim::StridedRanks>{{1, 8}}));
    EXPECT_EQ(ranks_of(l, Group::replica), (std::vector<sim::StridedRanks>{{8, 4}}));
}

TEST(GroupPath, TakesTheSameTimeToFindForManyRanks) {
    const GroupPath path = path_of(on(dgx_h100(2048)), layout(8, 1, 2048), Group::dp);
    EXPECT_EQ(path.ranks, 2048);
    EXPECT_LE(path.levels.size(), 3U);
}

} // namespace
} // namespace shardplan::test
