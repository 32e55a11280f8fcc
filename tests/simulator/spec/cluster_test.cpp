#include "simulator/spec/cluster.hpp"

#include <string>

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/stack.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::sim {
namespace {

using namespace literals;

std::string where_of(const Status& status) { return status ? "fine" : status.error().where; }

/// Two nodes of two devices, a card each.
Cluster pair_of_nodes() {
    Cluster cluster;
    cluster.name = "pair";
    NodeGroup group;
    group.count = 2;
    group.node.device = "H100-SXM-80GB";
    group.node.devices = 2;
    group.node.scaleup = {ScaleupKind::nvswitch, {450.0_GBps, {}, {}}, 0, true, {}};
    group.node.nics = {1, {400.0_Gbps, {}, {}}, true};
    cluster.node_groups = {group};
    cluster.fabric.kind = FabricKind::infiniband;
    return cluster;
}

Vertex vertex(const char* name, VertexKind kind) { return {name, kind}; }
GraphLink link(const char* from, const char* to) { return {from, to, 1, {25.0_GBps, {}, {}}, {}}; }

/// The nodes of `pair_of_nodes` as an explicit graph.
Cluster with_graph() {
    Cluster cluster = pair_of_nodes();
    NodeTemplate& node = cluster.node_groups[0].node;
    node.vertices = {vertex("a", VertexKind::device), vertex("b", VertexKind::device),
                     vertex("card", VertexKind::nic), vertex("cpu", VertexKind::host)};
    node.links = {link("a", "b"), link("b", "cpu"), link("card", "cpu")};
    return cluster;
}

TEST(Cluster, CountsTheDevicesOfAllNodes) {
    Cluster cluster = pair_of_nodes();
    EXPECT_EQ(device_count(cluster), 4);
    cluster.node_groups.push_back(cluster.node_groups[0]);
    cluster.node_groups[1].count = 5;
    EXPECT_EQ(device_count(cluster), 14);
}

TEST(Cluster, PlansWithTheHardestEvidenceOfALink) {
    LinkBandwidth link{100.0_GBps, {}, {}};
    EXPECT_EQ(usable(link), 100.0_GBps);
    link.achievable = 90.0_GBps;
    EXPECT_EQ(usable(link), 90.0_GBps);
    link.measured = 80.0_GBps;
    EXPECT_EQ(usable(link), 80.0_GBps);
}

TEST(Device, FourBitElementsTakeHalfAByte) {
    EXPECT_DOUBLE_EQ(bytes_per_element(Dtype::fp32), 4.0);
    EXPECT_DOUBLE_EQ(bytes_per_element(Dtype::tf32), 4.0);
    EXPECT_DOUBLE_EQ(bytes_per_element(Dtype::bf16), 2.0);
    EXPECT_DOUBLE_EQ(bytes_per_element(Dtype::fp8), 1.0);
    EXPECT_DOUBLE_EQ(bytes_per_element(Dtype::nf4), 0.5);
}

TEST(ClusterCheck, AcceptsWholeClusters) {
    EXPECT_EQ(where_of(check_cluster(pair_of_nodes(), "f")), "fine");
    EXPECT_EQ(where_of(check_cluster(with_graph(), "f")), "fine");
    EXPECT_EQ(where_of(check_cluster(test::dgx_h100(64), "f")), "fine");
}

TEST(ClusterCheck, RefusesClustersWithoutNodesOrDevices) {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].node.devices = 0;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/devices");
    cluster.node_groups[0].node.device.clear();
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/device");
    cluster.node_groups.clear();
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups");
}

TEST(ClusterCheck, RefusesLinksWithoutBandwidth) {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].node.scaleup.per_device.physical = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/scaleup/per_device");
    // one device has nobody to talk to inside its node
    cluster.node_groups[0].node.devices = 1;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    cluster.node_groups[0].node.nics.per_nic.physical = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/per_nic");
}

TEST(ClusterCheck, RefusesNodesWithoutANetworkBetweenThem) {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].node.nics.count = 0;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/count");
    cluster.fabric.kind = FabricKind::none;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/kind");
    // one NVLink domain over both nodes is a network
    cluster.node_groups[0].node.scaleup.domain_devices = 4;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    cluster.node_groups[0].node.scaleup.domain_devices = 0;
    cluster.node_groups[0].count = 1;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
}

TEST(ClusterCheck, RefusesDomainsThatCutThroughNodes) {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].node.scaleup.domain_devices = 3;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")),
              "f: /node_groups/0/node/scaleup/domain_devices");
    cluster.node_groups[0].node.devices = 4;
    cluster.node_groups[0].node.scaleup.domain_devices = 2;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
}

TEST(ClusterCheck, RefusesMoreAchievableThanPhysicalBandwidth) {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].node.nics.per_nic.achievable = 400.0_GBps; // bytes instead of bits
    EXPECT_EQ(where_of(check_cluster(cluster, "f")),
              "f: /node_groups/0/node/nics/per_nic/achievable");
}

TEST(ClusterCheck, RefusesLevelsThatDoNotNest) {
    Cluster cluster = pair_of_nodes();
    cluster.fabric.levels = {{"leaf", 4, 1.0, {}}, {"spine", 6, 1.0, {}}};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/levels/1/nodes_per_group");
    cluster.fabric.levels = {{"leaf", 0, 1.0, {}}, {"spine", 8, 1.0, {}}};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/levels/0/nodes_per_group");
    cluster.fabric.levels = {{"leaf", 4, 1.0, {}}, {"spine", 0, 1.0, {}}};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
}

/// Six nodes as a torus of 3 x 2.
Cluster with_torus() {
    Cluster cluster = pair_of_nodes();
    cluster.node_groups[0].count = 6;
    cluster.fabric.torus.assign(1, {3, {50.0_GBps, {}, {}}, {}, true});
    cluster.fabric.torus.push_back({2, {50.0_GBps, {}, {}}, {}, true});
    return cluster;
}

TEST(ClusterCheck, AcceptsATorusWithOrWithoutCards) {
    Cluster cluster = with_torus();
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    cluster.node_groups[0].node.nics = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
}

TEST(ClusterCheck, RefusesATorusThatDoesNotHoldTheNodes) {
    Cluster cluster = with_torus();
    cluster.node_groups[0].count = 8;
    const Status status = check_cluster(cluster, "f");
    EXPECT_EQ(where_of(status), "f: /fabric/torus");
    EXPECT_EQ(status.error().what, "the dimensions 3 x 2 hold 6 nodes, the cluster has 8");
    EXPECT_EQ(status.error().hint,
              "write dimensions whose product is 8, or node counts that add up to 6");
}

TEST(ClusterCheck, RefusesATorusWithoutBandwidthOrWithSwitches) {
    Cluster cluster = with_torus();
    cluster.fabric.torus[1].per_link = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/torus/1/per_link");
    cluster = with_torus();
    cluster.fabric.torus[1].per_link.measured = 80.0_GBps;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/torus/1/per_link/measured");
    cluster = with_torus();
    cluster.fabric.torus[0].nodes = 0;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/torus/0/nodes");
    cluster = with_torus();
    cluster.fabric.levels = {{"leaf", 0, 1.0, {}}};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/levels");
    cluster = with_torus();
    cluster.fabric.kind = FabricKind::none;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/kind");
}

TEST(ClusterCheck, RefusesATorusOfNodesThatDoNotMatch) {
    Cluster cluster = with_torus();
    cluster.node_groups[0].node.scaleup.domain_devices = 4;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")),
              "f: /node_groups/0/node/scaleup/domain_devices");
    cluster = with_torus();
    cluster.node_groups[0].count = 3;
    cluster.node_groups.push_back(cluster.node_groups[0]);
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    cluster.node_groups[1].node.nics = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/1/node/nics/count");
}

TEST(ClusterCheck, RefusesReductionWhereNoSwitchDoesIt) {
    Cluster cluster = pair_of_nodes();
    cluster.fabric.in_network_reduction = true;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    cluster.fabric.kind = FabricKind::roce;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/in_network_reduction");
    cluster = with_torus();
    cluster.fabric.in_network_reduction = true;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /fabric/in_network_reduction");
}

TEST(ClusterCheck, RefusesStagedCardsThatAreNotThere) {
    Cluster cluster = pair_of_nodes();
    Nics& nics = cluster.node_groups[0].node.nics;
    nics.staged = {0};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "fine");
    nics.staged = {0, 1};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/staged/1");
    nics.staged = {0, 0};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/staged/1");
    nics.staged = {0};
    nics.staged_rate = 60.0_GBps; // the card has 50
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/staged_rate");
    nics.staged_rate = 0.0_GBps;
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/nics/staged_rate");
}

TEST(ClusterCheck, RefusesACardWithoutAHost) {
    Cluster cluster = with_graph();
    cluster.node_groups[0].node.links[2] = link("card", "a");
    const Status status = check_cluster(cluster, "f");
    EXPECT_EQ(where_of(status), "f: /node_groups/0/node/vertices/2");
    EXPECT_EQ(status.error().what, "the network card \"card\" has no host");
}

TEST(ClusterCheck, RefusesAGraphInTwoPieces) {
    Cluster cluster = with_graph();
    cluster.node_groups[0].node.links = {link("a", "b"), link("card", "cpu")};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/vertices/2");
    cluster.node_groups[0].node.links = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/vertices/1");
}

TEST(ClusterCheck, RefusesAGraphThatContradictsItsNode) {
    Cluster cluster = with_graph();
    NodeTemplate& node = cluster.node_groups[0].node;
    node.links[0].to = "c";
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/links/0/to");
    node.links[0] = link("a", "a");
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/links/0");
    node.links[0] = link("a", "b");
    node.links[0].bandwidth = {};
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/links/0/bandwidth");
    node.vertices[1].name = "a";
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/vertices/1/name");
    node.vertices.pop_back();
    node.vertices.pop_back();
    node.vertices[1].name = "b";
    EXPECT_EQ(where_of(check_cluster(cluster, "f")), "f: /node_groups/0/node/vertices");
}

TEST(DeviceCheck, RefusesDevicesWithoutMemoryOrWithMoreThanIsSold) {
    Device device = test::h100_sxm();
    EXPECT_EQ(where_of(check_device(device, "f")), "fine");
    device.peak_dense.clear(); // a device may be described before its peak is known
    EXPECT_EQ(where_of(check_device(device, "f")), "fine");
    device.peak_dense["fp12"] = 1.0_TFLOPs;
    EXPECT_EQ(where_of(check_device(device, "f")), "f: /peak_dense/fp12");
    device = test::h100_sxm();
    device.memory_visible = 96.0_GiB;
    EXPECT_EQ(where_of(check_device(device, "f")), "f: /memory_visible");
    device.memory_visible = {};
    EXPECT_EQ(where_of(check_device(device, "f")), "f: /memory_visible");
    device = test::h100_sxm();
    device.memory_bandwidth = {};
    EXPECT_EQ(where_of(check_device(device, "f")), "f: /memory_bandwidth");
}

TEST(JobCheck, RefusesContradictions) {
    Job job = test::job(4096, 256);
    EXPECT_EQ(where_of(check_job(job, "f")), "fine");
    job.global_batch.tokens = 1 << 20;
    EXPECT_EQ(where_of(check_job(job, "f")), "f: /global_batch");
    job = test::job(4096, 256);
    job.sequence.mean = 5000.0;
    EXPECT_EQ(where_of(check_job(job, "f")), "f: /sequence/mean");
    job.sequence.mean = 1000.0;
    job.sequence.mean_square = 900000.0; // below 1000^2
    EXPECT_EQ(where_of(check_job(job, "f")), "f: /sequence/mean_square");
    job = test::job(4096, 256);
    job.precision.gradients = Dtype::nf4;
    EXPECT_EQ(where_of(check_job(job, "f")), "f: /precision/gradients");
}

TEST(Stacks, RankOrdersNameEachDimensionOnce) {
    StackProfile stack = shardplan::test::generic_stack();
    stack.capabilities.rank_orders = {"tp-cp-ep-dp-pp", "any"};
    EXPECT_NE(where_of(check_stack(stack, "f")), "f: /capabilities/rank_orders");
    stack.capabilities.rank_orders = {"tp-cp-ep-dp-dp"};
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /capabilities/rank_orders");
    stack.capabilities.rank_orders.clear();
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /capabilities/rank_orders");
}

TEST(StackCheck, RefusesConstantsThatAreNotStatedOrOutOfRange) {
    StackProfile stack = load_stack("generic").value();
    ASSERT_EQ(where_of(check_stack(stack, "f")), "fine");
    stack.time.launch.source.clear();
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /time/launch");
    stack = load_stack("generic").value();
    stack.time.launch.unit = "B";
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /time/launch/unit");
    stack = load_stack("generic").value();
    stack.memory.context.hi = 0.0;
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /memory/context/value");
    stack = load_stack("generic").value();
    stack.time.gemm_efficiency.value = 1.5;
    stack.time.gemm_efficiency.hi = 2.0;
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /time/gemm_efficiency/value");
}

TEST(StackCheck, RefusesDefaultsTheStackCannotRun) {
    StackProfile stack = load_stack("generic").value();
    stack.capabilities.shards = {Shard::none};
    stack.default_shard = Shard::all;
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /default_shard");
    stack = load_stack("generic").value();
    stack.attention = AttentionImpl::flash_2;
    stack.features = {Feature::unfused_attn};
    EXPECT_EQ(where_of(check_stack(stack, "f")), "f: /features/0");
}

TEST(Stack, AttentionFeaturesReplaceOneAnother) {
    StackProfile stack;
    stack.features = {Feature::flash_attn_2, Feature::dp_overlap};
    stack.attention = AttentionImpl::flash_2;
    stack = with_features(stack, {Feature::cudnn_attn, Feature::dp_overlap});
    EXPECT_EQ(stack.attention, AttentionImpl::cudnn);
    EXPECT_FALSE(has_feature(stack, Feature::flash_attn_2));
    EXPECT_EQ(stack.features.size(), 2U) << "a feature is kept once";
    stack = with_features(stack, {Feature::no_overlap});
    EXPECT_FALSE(has_feature(stack, Feature::dp_overlap));
}

} // namespace
} // namespace shardplan::sim
