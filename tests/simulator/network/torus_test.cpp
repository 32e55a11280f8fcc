#include <gtest/gtest.h>

#include "simulator/network/group_path.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using namespace sim::literals;
using sim::Algorithm;
using sim::Collective;
using sim::Group;
using sim::GroupPath;
using sim::Layout;
using sim::PathLevel;

sim::TorusDimension dimension(std::int64_t nodes, sim::Bandwidth link = 50.0_GBps) {
    return {nodes, {link, {}, link}, sim::Seconds(1e-6), true};
}

/// Nodes of `devices` devices, whose links end at the devices.
sim::Cluster torus(std::vector<sim::TorusDimension> dimensions, std::int64_t devices = 1) {
    std::int64_t nodes = 1;
    for (const sim::TorusDimension& d : dimensions) {
        nodes *= d.nodes;
    }
    sim::Cluster cluster = dgx_h100(nodes);
    cluster.node_groups[0].node.devices = devices;
    cluster.node_groups[0].node.nics = {};
    cluster.fabric.rails = false;
    cluster.fabric.levels.clear();
    cluster.fabric.torus = std::move(dimensions);
    return cluster;
}

Layout layout(int tp, int pp, int dp) {
    Layout l;
    l.tp = static_cast<std::uint16_t>(tp);
    l.pp = static_cast<std::uint16_t>(pp);
    l.dp = static_cast<std::uint32_t>(dp);
    return l;
}

/// All ranks of a torus as one data parallel group, with one algorithm; no time but that of bytes.
GroupPath all_ranks(const sim::Cluster& cluster, Algorithm algorithm) {
    const auto ranks = static_cast<int>(device_count(cluster));
    sim::Scenario s = scenario(llama_3_8b(), cluster, job(8192, 1024), generic_stack());
    s.stack.collectives.algorithms = {algorithm};
    for (sim::FabricProfile& profile : s.fabrics) {
        profile.launch_latency.value = profile.step_latency.value = profile.half_size.value = 0.0;
        profile.floor_latency.reset();
    }
    return path_of(s, layout(1, 1, ranks), Group::dp);
}

double seconds(const GroupPath& path, Collective op, double bytes) {
    return collective_time(path, op, sim::Bytes(bytes)).value();
}

TEST(Torus, AGroupHasOneTierPerDimensionItCrosses) {
    const auto s = scenario(llama_3_8b(), torus({dimension(4), dimension(8), dimension(2)}),
                            job(8192, 64), generic_stack());
    const GroupPath dp = path_of(s, layout(1, 1, 64), Group::dp);
    ASSERT_EQ(dp.levels.size(), 3U);
    EXPECT_EQ(dp.levels[0].members, 4);
    EXPECT_EQ(dp.levels[1].members, 8);
    EXPECT_EQ(dp.levels[2].members, 2);
    // tensor parallelism of 4 is the first dimension, a pipeline of 2 the last
    const GroupPath tp = path_of(s, layout(4, 2, 8), Group::tp);
    ASSERT_EQ(tp.levels.size(), 1U);
    EXPECT_EQ(tp.levels[0].torus.directions, 2);
    const GroupPath pp = path_of(s, layout(4, 2, 8), Group::pp);
    ASSERT_EQ(pp.levels.size(), 1U);
    EXPECT_EQ(pp.levels[0].torus.stride, 1);
}

TEST(Torus, ARingOfAClosedDimensionUsesItsLinksBothWays) {
    const GroupPath p = all_ranks(torus({dimension(8)}), Algorithm::ring);
    // 2 x 7/8 of the bytes over twice 50 GB/s, and 14 hops
    EXPECT_NEAR(seconds(p, Collective::all_reduce, 80e9), 2.0 * 7.0 / 8.0 * 80e9 / 100e9 + 14e-6,
                1e-9);
}

TEST(Torus, ARingOfAnOpenLineGoesOutOneWayAndBackTheOther) {
    sim::TorusDimension line = dimension(8);
    line.wraps = false;
    const GroupPath p = all_ranks(torus({line}), Algorithm::ring);
    EXPECT_EQ(p.levels[0].torus.directions, 1);
    // every step passes over a neighbour
    EXPECT_NEAR(seconds(p, Collective::all_reduce, 80e9), 2.0 * 7.0 / 8.0 * 80e9 / 50e9 + 28e-6,
                1e-9);
}

TEST(Torus, APartOfAClosedDimensionIsAnOpenLine) {
    const auto s =
        scenario(llama_3_8b(), torus({dimension(8), dimension(2)}), job(8192, 64), generic_stack());
    const GroupPath tp = path_of(s, layout(4, 1, 4), Group::tp);
    EXPECT_EQ(tp.levels.at(0).torus.directions, 1);
    EXPECT_EQ(tp.levels.at(0).torus.stride, 1);
    EXPECT_DOUBLE_EQ(tp.levels.at(0).per_rank.value(), 50e9);
}

TEST(Torus, GroupsThatLieBetweenOneAnotherShareTheLinks) {
    const auto s = scenario(llama_3_8b(), torus({dimension(8)}), job(8192, 64), generic_stack());
    // tp 2 beside dp 4: every second node, closed all round
    const GroupPath dp = path_of(s, layout(2, 1, 4), Group::dp);
    EXPECT_EQ(dp.levels.at(0).torus.directions, 2);
    EXPECT_EQ(dp.levels.at(0).torus.stride, 2);
    EXPECT_DOUBLE_EQ(dp.levels.at(0).per_rank.value(), 50e9);
    EXPECT_GT(dp.levels.at(0).step_latency,
              path_of(s, layout(1, 1, 8), Group::dp).levels.at(0).step_latency);
}

TEST(Torus, TheDevicesOfANodeShareItsLinks) {
    const auto s = scenario(llama_3_8b(), torus({dimension(4), dimension(4)}, 8), job(8192, 128),
                            generic_stack());
    const GroupPath dp = path_of(s, layout(8, 1, 16), Group::dp);
    ASSERT_EQ(dp.levels.size(), 2U);
    EXPECT_DOUBLE_EQ(dp.levels[0].per_rank.value(), 100e9 / 8.0);
}

TEST(Torus, AlgorithmAlongTheDimensionsKeepsTheLinksOfAllOfThemBusy) {
    const sim::Cluster square = torus({dimension(4), dimension(4)});
    const double bytes = 16e9;
    // two halves, one along the rows first and one along the columns first: 15/16 of the bytes,
    // there and back, over four links of 50 GB/s
    EXPECT_NEAR(seconds(all_ranks(square, Algorithm::torus_2d), Collective::all_reduce, bytes),
                2.0 * 15.0 / 16.0 * bytes / 200e9 + 12e-6, 1e-9);
    // one ring through all nodes has two of these links
    EXPECT_NEAR(seconds(all_ranks(square, Algorithm::ring), Collective::all_reduce, bytes),
                2.0 * 15.0 / 16.0 * bytes / 100e9 + 30e-6, 1e-9);
    const sim::Cluster cube = torus({dimension(4), dimension(4), dimension(4)});
    EXPECT_NEAR(seconds(all_ranks(cube, Algorithm::torus_2d), Collective::all_gather, bytes),
                63.0 / 64.0 * bytes / 300e9 + 9e-6, 1e-9);
}

TEST(Torus, ItsAlgorithmIsChosenWithoutBeingForced) {
    const auto s =
        scenario(llama_3_8b(), torus({dimension(4), dimension(4)}), job(8192, 64), generic_stack());
    const GroupPath p = path_of(s, layout(1, 1, 16), Group::dp);
    EXPECT_EQ(chosen_line(p, Collective::all_reduce, sim::Bytes(1e10)).algorithm,
              Algorithm::torus_2d);
}

TEST(Torus, CardsBoundWhatANodeSendsInAllDimensions) {
    sim::Cluster cluster = torus({dimension(4), dimension(4)});
    const double free =
        seconds(all_ranks(cluster, Algorithm::torus_2d), Collective::all_gather, 16e9);
    cluster.node_groups[0].node.nics = {1, {100.0_GBps, {}, 100.0_GBps}, true};
    cluster.node_groups[0].node.host.pcie_per_device = {};
    const double held =
        seconds(all_ranks(cluster, Algorithm::torus_2d), Collective::all_gather, 16e9);
    EXPECT_NEAR(held - 6e-6, 15.0 / 16.0 * 16e9 / 100e9, 1e-9);
    EXPECT_GT(held, 1.9 * free);
}

TEST(Torus, AllToAllIsHeldByTheLongestDimension) {
    // a ring of 8: mean distance 2, each link one way carries 8 x 2 / (2 x 8) of a node's bytes
    const GroupPath ring = all_ranks(torus({dimension(8)}), Algorithm::ring);
    EXPECT_NEAR(seconds(ring, Collective::all_to_all, 8e9), 8e9 * 1.0 / 50e9, 1e-4);
    const GroupPath wide = all_ranks(torus({dimension(8), dimension(2)}), Algorithm::ring);
    EXPECT_NEAR(seconds(wide, Collective::all_to_all, 8e9), 8e9 * 1.0 / 50e9, 1e-4);
    sim::TorusDimension line = dimension(8);
    line.wraps = false;
    const GroupPath open = all_ranks(torus({line}), Algorithm::ring);
    // four nodes send half of their bytes each over the middle link
    EXPECT_NEAR(seconds(open, Collective::all_to_all, 8e9), 4.0 * 4e9 / 50e9, 1e-4);
}

TEST(Torus, ANeighboursMessageUsesOneDirection) {
    const auto s = scenario(llama_3_8b(), torus({dimension(8)}), job(8192, 64), generic_stack());
    const GroupPath pp = path_of(s, layout(1, 8, 1), Group::pp);
    const double small = seconds(pp, Collective::send_recv, 1.0);
    EXPECT_NEAR(seconds(pp, Collective::send_recv, 50e9) - small, 1.0, 0.05);
}

TEST(Torus, HalvingAndTreesPayForTheDistanceOfPartners) {
    const sim::Cluster ring = torus({dimension(16)});
    const double along = seconds(all_ranks(ring, Algorithm::ring), Collective::all_reduce, 16e9);
    const double halving =
        seconds(all_ranks(ring, Algorithm::halving_doubling), Collective::all_reduce, 16e9);
    const double tree = seconds(all_ranks(ring, Algorithm::tree), Collective::all_reduce, 16e9);
    // four rounds of half the bytes over a link one way, there and back
    EXPECT_NEAR(halving, 2.0 * 4.0 / 2.0 * 16e9 / 50e9, 1e-4);
    EXPECT_GT(halving, 2.0 * along);
    EXPECT_GT(tree, 2.0 * along);
}

TEST(Torus, OfOneDimensionOfTwoIsAPairOfLinks) {
    const GroupPath p = all_ranks(torus({dimension(2)}), Algorithm::ring);
    EXPECT_NEAR(seconds(p, Collective::all_reduce, 10e9), 10e9 / 100e9, 1e-5);
}

TEST(Torus, RanksAcrossTheDimensionsPassAllOfThem) {
    // three neighbours in rows of eight: some groups turn into the next row
    const auto s =
        scenario(llama_3_8b(), torus({dimension(8), dimension(3)}), job(8192, 64), generic_stack());
    const GroupPath tp = path_of(s, layout(3, 1, 8), Group::tp);
    ASSERT_EQ(tp.levels.size(), 1U);
    EXPECT_EQ(tp.levels[0].members, 3);
    EXPECT_LE(tp.levels[0].per_rank.value(), 100e9);
}

TEST(Torus, Of65536DevicesHasPathsInClosedForm) {
    const sim::Cluster cluster = torus({dimension(16), dimension(16), dimension(32)}, 8);
    ASSERT_EQ(device_count(cluster), 65536);
    ASSERT_TRUE(check_cluster(cluster, "f"));
    const auto s = scenario(llama_3_70b(), cluster, job(8192, 4096), generic_stack());
    const GroupPath dp = path_of(s, layout(8, 16, 512), Group::dp);
    ASSERT_EQ(dp.levels.size(), 3U);
    EXPECT_EQ(dp.levels[0].members * dp.levels[1].members * dp.levels[2].members, 512);
    EXPECT_EQ(dp.levels[2].torus.directions, 1); // two planes of 32 side by side
    const GroupPath pp = path_of(s, layout(8, 16, 512), Group::pp);
    ASSERT_EQ(pp.levels.size(), 1U);
    EXPECT_EQ(pp.levels[0].members, 16);
    EXPECT_EQ(pp.levels[0].torus.stride, 2);
}

} // namespace
} // namespace shardplan::test
