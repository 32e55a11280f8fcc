#include "planner/import/fabric_view.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::finds;
using test::help_with;
using test::read_any;
using test::sample;

TEST(KubernetesNodes, UnevenLeavesAreCountedAndDegradedNodesLeftOutOfGangs) {
    const ForeignCluster file = diagnosed(sample("k8s_nodes_leafgroups.json"));
    EXPECT_EQ(file.fabric->nodes.size(), 64U);
    EXPECT_EQ(leaf_sizes(*file.fabric, false),
              (std::vector<std::int64_t>{1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11}));
    EXPECT_TRUE(finds(file, "degraded-node", "5 nodes"));
    EXPECT_TRUE(finds(file, "degraded-node", "gpu-node-000 (7 of 8 GPUs)"));
    // The leaf of 8 has a degraded node, so that of 11 alone holds a gang of 8.
    EXPECT_EQ(gangs_in_leaves(*file.fabric, 8), 1);
    EXPECT_EQ(file.fabric->level_names, (std::vector<std::string>{"leaf", "superpod", "fabric"}));
}

TEST(KubernetesNodes, ProductOfALabelIsFoundInTheCatalogue) {
    const auto built = build_cluster(diagnosed(sample("k8s_nodes_leafgroups.json")), help_with());
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_EQ(built->cluster.node_groups[0].node.device, "H100-SXM-80GB");
    EXPECT_EQ(built->cluster.node_groups[0].count, 59);
    EXPECT_EQ(built->cluster.node_groups[0].node.nics.count, 8);
    EXPECT_EQ(built->cluster.fabric.levels.size(), 3U);
}

TEST(KubernetesNodes, NodeOfAnotherDeviceIsRefusedUnlessTheDeviceIsNamed) {
    const ForeignCluster file = diagnosed(sample("k8s_nodes_leafgroups.json"));
    const auto refused = build_cluster(file, help_with("", "dgx-a100"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "--node");
    EXPECT_TRUE(build_cluster(file, help_with("H100-SXM-80GB", "dgx-a100")));
    EXPECT_TRUE(build_cluster(file, help_with("", "dgx-h100")));
}

TEST(KubernetesNodes, DeviceChoosesAmongKindsOfNodes) {
    std::string items;
    for (int i = 0; i < 5; ++i) {
        items += std::string(i > 0 ? "," : "") + "{\"kind\":\"Node\",\"metadata\":{\"name\":\"n" +
                 std::to_string(i) + "\",\"labels\":{\"nvidia.com/gpu.product\":\"" +
                 (i < 2 ? "NVIDIA-A100-SXM4-80GB" : "NVIDIA-H100-80GB-HBM3") +
                 "\"}},\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\"}}}";
    }
    const ForeignCluster file = read_any("{\"apiVersion\":\"v1\",\"items\":[" + items + "]}");
    const auto both = build_cluster(file, help_with());
    ASSERT_TRUE(both) << sim::to_text(both.error());
    EXPECT_EQ(both->cluster.node_groups.size(), 2U);
    const auto one = build_cluster(file, help_with("H100-SXM-80GB"));
    ASSERT_TRUE(one) << sim::to_text(one.error());
    ASSERT_EQ(one->cluster.node_groups.size(), 1U);
    EXPECT_EQ(one->cluster.node_groups[0].count, 3);
}

TEST(KubernetesNodes, CordonedNodesAreNotPlannedWith) {
    const ForeignCluster file = diagnosed(sample("k8s_nodes_small.json"));
    EXPECT_TRUE(finds(file, "degraded-node", "c (cordoned)"));
    EXPECT_EQ(file.fabric->nodes[0].cores, 112);
}

TEST(KubernetesNodes, YamlIsReadLikeJson) {
    const ForeignCluster file = diagnosed(sample("k8s_nodes_small.yaml"));
    EXPECT_EQ(file.fabric->nodes.size(), 2U);
    EXPECT_EQ(leaf_sizes(*file.fabric, false), (std::vector<std::int64_t>{1, 1}));
    EXPECT_TRUE(finds(file, "degraded-node", "b (not ready)"));
}

TEST(KubernetesNodes, LevelThatCutsThroughTheLeavesIsLeftOutWithANote) {
    std::string items;
    for (int i = 0; i < 4; ++i) {
        items += std::string(i > 0 ? "," : "") + "{\"kind\":\"Node\",\"metadata\":{\"name\":\"n" +
                 std::to_string(i) + "\",\"labels\":{\"x/leaf\":\"l" + std::to_string(i / 2) +
                 "\",\"x/spine\":\"s" + std::to_string(i % 2) +
                 "\"}},\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\"}}}";
    }
    const ForeignCluster file = read_any("{\"apiVersion\":\"v1\",\"items\":[" + items + "]}");
    EXPECT_EQ(leaf_sizes(*file.fabric, false), (std::vector<std::int64_t>{2, 2}));
    EXPECT_TRUE(test::loses(file, 0, "x/spine"));
}

TEST(KubernetesNodes, ListOfOtherObjectsIsRefused) {
    const auto file = readers::kubernetes_nodes(
        "{\"apiVersion\":\"v1\",\"items\":[{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"},"
        "\"status\":{}}]}",
        "pods.json");
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().hint.find("kubectl get nodes"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan
