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

TEST(GroupPath, WaitsForTheOneCardThatIsStagedThroughTheHost) {
    sim::Cluster cluster = dgx_h100(4);
    sim::Nics& nics = cluster.node_groups[0].node.nics;
    const auto rate = [&] {
        return path_of(on(cluster), layout(8, 1, 4), Group::dp).levels.at(0).per_rank.value();
    };
    const double direct = rate();
    nics.staged = {5};
    nics.staged_rate = sim::Bandwidth(16e9); // measured: no efficiency of the network on top
    EXPECT_DOUBLE_EQ(rate(), 16e9);
    nics.staged = {};
    EXPECT_DOUBLE_EQ(rate(), direct);
    // all of them
    nics.gpudirect = false;
    EXPECT_DOUBLE_EQ(rate(), 16e9);
}

TEST(GroupPath, FewerStagedCardsLeaveEachMoreOfHostMemory) {
    sim::Cluster cluster = dgx_h100(4);
    sim::NodeTemplate& node = cluster.node_groups[0].node;
    node.host.memory_bandwidth = sim::Bandwidth(80e9);
    const auto rate = [&] {
        return path_of(on(cluster), layout(8, 1, 4), Group::dp).levels.at(0).per_rank.value();
    };
    node.nics.gpudirect = false;
    EXPECT_DOUBLE_EQ(rate(), 80e9 / 2.0 / 8.0);
    node.nics.gpudirect = true;
    node.nics.staged = {0, 1};
    EXPECT_DOUBLE_EQ(rate(), 80e9 / 2.0 / 2.0);
}

TEST(GroupPath, OfAStagedCardTakesLongerForEveryStep) {
    sim::Scenario s = on(dgx_h100(4));
    const auto step = [&] {
        return path_of(s, layout(8, 1, 4), Group::dp).levels.at(0).step_latency.value();
    };
    const double direct = step();
    s.fabrics.back().staged_latency = s.fabrics.back().step_latency;
    s.fabrics.back().staged_latency->value = 5e-6;
    EXPECT_DOUBLE_EQ(step(), direct);
    s.cluster.node_groups[0].node.nics.staged = {0};
    EXPECT_DOUBLE_EQ(step(), direct + 5e-6);
}

TEST(GroupPath, ReducesInTheNetworkWhereTheClusterSaysSo) {
    sim::Scenario s = on(dgx_h100(64));
    sim::FabricProfile& network = s.fabrics.back();
    network.in_network = sim::TransportProfile{network.bandwidth_efficiency, network.step_latency,
                                               network.half_size};
    const auto shares = [&] {
        std::vector<double> out;
        for (const sim::PathLevel& level : path_of(s, layout(1, 1, 512), Group::dp).levels) {
            out.push_back(level.in_network.share);
        }
        return out;
    };
    EXPECT_EQ(shares(), (std::vector<double>{0.0, 0.0, 0.0}));
    s.cluster.fabric.in_network_reduction = true;
    // inside the node there are other switches; leaf and spine both add up
    EXPECT_EQ(shares(), (std::vector<double>{0.0, 1.0, 1.0}));
}

TEST(GroupPath, TakesTheSlowerEndTierByTierWhereNodeGroupsDiffer) {
    // fast links and slow cards beside slow links and fast cards
    sim::Cluster cluster = dgx_h100(2);
    cluster.node_groups[0].node.nics.per_nic.physical = sim::Bandwidth(10e9);
    cluster.node_groups.push_back(dgx_a100(2).node_groups[0]);
    const auto mixed = path_of(on(cluster), layout(2, 1, 16), Group::dp);
    const auto first = path_of(on(dgx_a100(4)), layout(2, 1, 16), Group::dp);
    sim::Cluster slow_cards = cluster;
    slow_cards.node_groups.pop_back();
    slow_cards.node_groups[0].count = 4;
    const auto second = path_of(on(slow_cards), layout(2, 1, 16), Group::dp);
    ASSERT_EQ(mixed.levels.size(), 2U);
    EXPECT_EQ(mixed.levels[0].per_rank, first.levels.at(0).per_rank);
    EXPECT_EQ(mixed.levels[1].per_rank, second.levels.at(1).per_rank);
    EXPECT_LT(mixed.levels[1].per_rank, first.levels.at(1).per_rank);
    // a layout that ends before the second group does not wait for it
    const auto alone = path_of(on(cluster), layout(2, 1, 8), Group::dp);
    EXPECT_GT(alone.levels.at(0).per_rank, mixed.levels[0].per_rank);
}

TEST(GroupPath, OfANodeGroupHasTheConstantsOfItsDevices) {
    sim::Cluster cluster = dgx_h100(2);
    cluster.node_groups.push_back(dgx_a100(2).node_groups[0]);
    sim::Scenario s = on(cluster);
    s.devices[0].arch = "hopper";
    s.devices[1].arch = "ampere";
    sim::FabricProfile hopper = s.fabrics.front();
    hopper.arch = "hopper";
    hopper.bandwidth_efficiency.value = 0.1; // slower than the ampere nodes with any other
    s.fabrics.push_back(hopper);
    const auto path = path_of(s, layout(8, 1, 4), Group::tp);
    EXPECT_DOUBLE_EQ(path.levels.at(0).per_rank.value(), 45e9);
    // the profile of another architecture is not theirs
    s.devices[0].arch = "ampere";
    EXPECT_GT(path_of(s, layout(8, 1, 4), Group::tp).levels.at(0).per_rank.value(), 100e9);
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
