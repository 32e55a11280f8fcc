#include "simulator/network/ring_search.hpp"

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/network/group_path.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using sim::LinkGraph;
using sim::Rings;

sim::NodeTemplate cube_mesh_node() {
    return sim::load_cluster("dgx-1-v100")->value.node_groups[0].node;
}

std::vector<std::int64_t> first(std::int64_t n) {
    std::vector<std::int64_t> members;
    for (std::int64_t i = 0; i < n; ++i) {
        members.push_back(i);
    }
    return members;
}

TEST(RingSearch, FindsTheRingsOfTheHybridCubeMesh) {
    const LinkGraph graph = sim::link_graph(cube_mesh_node());
    ASSERT_EQ(graph.devices, 8);
    EXPECT_EQ(graph.per_link.value(), 25e9);
    EXPECT_EQ(disjoint_rings(graph, first(2)), (Rings{1, false}));
    EXPECT_EQ(disjoint_rings(graph, first(3)), (Rings{2, false}));
    EXPECT_EQ(disjoint_rings(graph, first(4)), (Rings{4, false}));
    // the fifth has links to one of the others only
    EXPECT_EQ(disjoint_rings(graph, first(5)), (Rings{2, true}));
    EXPECT_EQ(disjoint_rings(graph, first(6)), (Rings{2, false}));
    EXPECT_EQ(disjoint_rings(graph, first(7)), (Rings{4, false}));
    EXPECT_EQ(disjoint_rings(graph, first(8)), (Rings{6, false}));
}

TEST(RingSearch, CountsTheGroupThatHasTheFewest) {
    const LinkGraph graph = sim::link_graph(cube_mesh_node());
    // neighbours 0-1 and 4-5 have one link, 2-3 and 6-7 two
    EXPECT_EQ(fewest_rings(graph, 8, 1, 2), (Rings{1, false}));
    // 0-4 and 1-5 have two links, 2-6 and 3-7 one
    EXPECT_EQ(fewest_rings(graph, 8, 4, 2), (Rings{1, false}));
    EXPECT_EQ(fewest_rings(graph, 8, 1, 4), (Rings{4, false}));
}

TEST(RingSearch, HasNoGraphWhereTheNodeStatesNoLinks) {
    EXPECT_EQ(sim::link_graph(dgx_h100(1).node_groups[0].node).devices, 0);
    EXPECT_TRUE(sim::mesh_rings(dgx_h100(1)).empty());
}

TEST(RingSearch, RefusesToConnectWhatHasNoPath) {
    LinkGraph graph;
    graph.devices = 4;
    graph.links.assign(16, 0);
    graph.links[0 * 4 + 1] = graph.links[1 * 4 + 0] = 2;
    graph.links[2 * 4 + 3] = graph.links[3 * 4 + 2] = 2;
    EXPECT_EQ(disjoint_rings(graph, {0, 1, 2, 3}).count, 0);
}

TEST(RingSearch, BandwidthOfTheCubeMeshRisesAndFallsWithTheRanks) {
    const auto scenario =
        sim::assemble_scenario({}, sim::load_cluster("dgx-1-v100")->value, {}, {}, {});
    ASSERT_TRUE(scenario) << to_text(scenario.error());
    const auto bus = [&](std::uint32_t ranks) {
        sim::Layout layout;
        layout.dp = ranks;
        const auto path = path_of(*scenario, layout, sim::Group::dp);
        const double bytes = 1 << 30;
        const double n = ranks;
        return 2.0 * (n - 1.0) / n * bytes /
               collective_time(path, sim::Collective::all_reduce, sim::Bytes(bytes)).value();
    };
    // measured: vTrain's tables of an eight V100 node
    const double measured[] = {22.6, 45.2, 85.6, 37.2, 45.8, 87.1, 134.5};
    for (std::uint32_t n = 2; n <= 8; ++n) {
        EXPECT_NEAR(bus(n) / 1e9 / measured[n - 2], 1.0, 0.15) << n;
    }
}

} // namespace
} // namespace shardplan::test
