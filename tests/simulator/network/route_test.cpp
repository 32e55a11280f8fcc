#include "simulator/network/route.hpp"

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using namespace sim::literals;
using sim::Route;

Route between(const sim::Cluster& cluster, std::int64_t from, std::int64_t to) {
    const auto route = route_between(cluster, from, to, "--between");
    EXPECT_TRUE(route) << (route ? "" : route.error().what);
    return route ? *route : Route{};
}
std::string what(const sim::Cluster& cluster, std::int64_t from, std::int64_t to) {
    const auto route = route_between(cluster, from, to, "--between");
    return route ? "found" : route.error().what;
}

sim::Cluster cube() {
    sim::Cluster cluster = dgx_h100(64);
    cluster.node_groups[0].node.devices = 1;
    cluster.node_groups[0].node.nics = {};
    cluster.fabric.rails = false;
    cluster.fabric.levels.clear();
    cluster.fabric.torus.assign(3, {4, {50.0_GBps, {}, {}}, sim::Seconds(1e-6), true});
    return cluster;
}

TEST(Route, InsideANodeGoesOverItsSwitch) {
    const Route route = between(dgx_h100(1), 0, 7);
    ASSERT_EQ(route.links.size(), 2U);
    EXPECT_EQ(route.links[0].to, "nvswitch");
    EXPECT_EQ(route.bandwidth(), 450.0_GBps);
}

TEST(Route, BetweenNodesOfOneLeafTakesTheRailOfTheOtherEnd) {
    const sim::Cluster cluster = dgx_h100(4);
    // the same card: out, one leaf, in
    const Route same = between(cluster, 0, 8);
    EXPECT_EQ(same.links.front().from, "node 0 device 0");
    EXPECT_EQ(same.bandwidth(), 50.0_GBps);
    EXPECT_EQ(same.paths, 1);
    // another card: over the scale-up network to the device that has it
    const Route other = between(cluster, 0, 9);
    EXPECT_EQ(other.hops(), same.hops() + 2);
    EXPECT_EQ(other.links[0].kind, "nvswitch");
}

TEST(Route, AboveAnOversubscribedLeafIsNarrowerWhenAllSend) {
    sim::Cluster cluster = dgx_h100(64);
    cluster.fabric.levels[0].oversubscription = 7.0;
    cluster.fabric.levels[1].switches = 32;
    const Route route = between(cluster, 0, 40 * 8);
    EXPECT_EQ(route.bandwidth(), 50.0_GBps);
    EXPECT_DOUBLE_EQ(route.crowded_bandwidth().value(), 50e9 / 7.0);
    EXPECT_EQ(route.links[route.crowded].to, "spine");
    // 32 spines over 8 rails
    EXPECT_EQ(route.paths, 4);
    EXPECT_TRUE(route.paths_stated);
    cluster.fabric.rails = false;
    EXPECT_EQ(between(cluster, 0, 40 * 8).paths, 32);
    cluster.fabric.levels[1].switches = 0;
    EXPECT_FALSE(between(cluster, 0, 40 * 8).paths_stated);
}

TEST(Route, ThroughATorusIsTheShortestWayRoundAndCountsTheOthers) {
    const sim::Cluster cluster = cube();
    const Route next = between(cluster, 0, 1);
    EXPECT_EQ(next.hops(), 1);
    EXPECT_EQ(next.paths, 1);
    // coordinate 3 is one step down
    EXPECT_EQ(between(cluster, 0, 3).hops(), 1);
    // one step in each of two dimensions, in either order
    EXPECT_EQ(between(cluster, 0, 5).paths, 2);
    // (2,2,2): six hops in 6! / (2! 2! 2!) orders, each dimension up or down
    const Route far = between(cluster, 0, 2 + 4 * 2 + 16 * 2);
    EXPECT_EQ(far.hops(), 6);
    EXPECT_EQ(far.paths, 90 * 8);
    EXPECT_DOUBLE_EQ(far.latency().value(), 6e-6);
    // two hops along a dimension: two messages on each link when all go as far
    EXPECT_DOUBLE_EQ(far.crowded_bandwidth().value(), 25e9);
}

TEST(Route, OnAnOpenLineDoesNotGoRound) {
    sim::Cluster cluster = cube();
    cluster.fabric.torus[0].wraps = false;
    EXPECT_EQ(between(cluster, 0, 3).hops(), 3);
    EXPECT_EQ(between(cluster, 3, 0).hops(), 3);
}

TEST(Route, OfATorusHasItsNarrowestDimensionAsBottleneck) {
    sim::Cluster cluster = cube();
    cluster.fabric.torus[1].per_link.physical = 20.0_GBps;
    const Route route = between(cluster, 0, 1 + 4 + 16);
    EXPECT_EQ(route.bandwidth(), 20.0_GBps);
    EXPECT_EQ(route.bottleneck, 1U);
    EXPECT_EQ(route.links[1].from, "node (1,0,0)");
    EXPECT_EQ(route.links[1].to, "node (1,1,0)");
}

TEST(Route, ThroughAHybridCubeMeshPassesANeighbourWhereTwoHaveNoLink) {
    const auto loaded = sim::load_cluster("dgx-1-v100");
    ASSERT_TRUE(loaded);
    const sim::Cluster& cluster = loaded->value;
    const Route direct = between(cluster, 0, 3);
    EXPECT_EQ(direct.hops(), 1);
    EXPECT_EQ(direct.bandwidth(), 50.0_GBps); // two links
    const Route relayed = between(cluster, 0, 5);
    EXPECT_EQ(relayed.hops(), 2);
    EXPECT_EQ(relayed.paths, 2); // over gpu1 or gpu4
    EXPECT_EQ(relayed.bandwidth(), 25.0_GBps);
}

TEST(Route, OfAStagedCardGoesThroughHostMemory) {
    sim::Cluster cluster = dgx_h100(2);
    cluster.node_groups[0].node.nics.staged = {3};
    cluster.node_groups[0].node.nics.staged_rate = 16.0_GBps;
    EXPECT_EQ(between(cluster, 2, 10).bandwidth(), 50.0_GBps);
    const Route staged = between(cluster, 3, 11);
    EXPECT_EQ(staged.bandwidth(), 16.0_GBps);
    EXPECT_EQ(staged.links[0].to, "node 0 host");
}

TEST(Route, BetweenNodeGroupsHasTheSlowerEndAsBottleneck) {
    sim::Cluster cluster = dgx_h100(2);
    cluster.node_groups.push_back(dgx_a100(2).node_groups[0]);
    const Route route = between(cluster, 0, 16);
    EXPECT_EQ(route.bandwidth(), 25.0_GBps);
    EXPECT_EQ(between(cluster, 16, 0).bandwidth(), 25.0_GBps);
    EXPECT_EQ(between(cluster, 0, 8).bandwidth(), 50.0_GBps);
    EXPECT_EQ(device_at(cluster, 16), (sim::DeviceAt{1, 2, 0}));
}

TEST(Route, OfNodesInOneDomainStaysInIt) {
    sim::Cluster cluster = dgx_h100(18);
    cluster.node_groups[0].node.devices = 4;
    cluster.node_groups[0].node.scaleup.domain_devices = 72;
    const Route route = between(cluster, 0, 71);
    EXPECT_EQ(route.bandwidth(), 450.0_GBps);
    EXPECT_EQ(route.links.back().to, "node 17 device 3");
}

TEST(Route, RefusesDevicesThatAreNotThere) {
    EXPECT_EQ(what(dgx_h100(1), 0, 8), "there is no device 8: the cluster has 8, counted from 0");
    EXPECT_EQ(what(dgx_h100(1), 3, 3), "from device 3 to itself there is no link");
    sim::Cluster cluster = dgx_h100(2);
    cluster.node_groups[0].node.nics.count = 0;
    EXPECT_EQ(what(cluster, 0, 8),
              "devices 0 and 8 have no way to one another: a node has no network card");
}

TEST(Route, Of65536DevicesIsFoundWithoutListingThem) {
    sim::Cluster cluster = cube();
    cluster.fabric.torus[0].nodes = 32;
    cluster.fabric.torus[1].nodes = 32;
    cluster.fabric.torus[2].nodes = 64;
    cluster.node_groups[0].count = 65536;
    ASSERT_TRUE(check_cluster(cluster, "f"));
    const Route route = between(cluster, 0, 16 + 32 * 16 + 1024 * 32);
    EXPECT_EQ(route.hops(), 64);
    EXPECT_EQ(route.links.size(), 3U);
    EXPECT_GT(route.paths, std::int64_t{1} << 40);
}

} // namespace
} // namespace shardplan::test
