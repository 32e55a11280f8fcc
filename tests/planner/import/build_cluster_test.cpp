#include "planner/import/build_cluster.hpp"

#include "simulator/spec/cluster_check.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::help_with;
using test::read_any;
using test::sample;

ImportedCluster built_from(const std::string& file, const ImportHelp& help) {
    const auto built = build_cluster(diagnosed(sample(file), help), help);
    EXPECT_TRUE(built) << file << ": " << sim::to_text(built.error());
    return built ? *built : ImportedCluster();
}

const sim::NodeTemplate& node_of(const ImportedCluster& built) {
    return built.cluster.node_groups.at(0).node;
}

TEST(ImportedClusters, EightSwitchedDevicesHaveAllTheirLinks) {
    ImportedCluster built = built_from("topo_h100_nic_legend.txt", help_with("H100-SXM-80GB"));
    EXPECT_EQ(node_of(built).scaleup.kind, sim::ScaleupKind::nvswitch);
    EXPECT_DOUBLE_EQ(node_of(built).scaleup.per_device.physical.value(), 450e9);
    EXPECT_EQ(node_of(built).nics.count, 8);
    EXPECT_TRUE(node_of(built).nics.gpudirect);
    EXPECT_TRUE(node_of(built).vertices.empty()); // the summary says it all
    EXPECT_TRUE(built.cluster.scalable);
}

TEST(ImportedClusters, CardsWithoutASpeedAreSetAsideOnOneNodeOnly) {
    ImportedCluster one = built_from("topo_h100_nic_legend.txt", help_with("H100-SXM-80GB"));
    settle_nics(one.cluster, one.assumptions);
    EXPECT_EQ(node_of(one).nics.count, 0);
    EXPECT_TRUE(sim::check_cluster(one.cluster, "c"));
    ImportedCluster two = built_from("topo_h100_nic_legend.txt", help_with("H100-SXM-80GB"));
    two.cluster.node_groups[0].count = 2;
    settle_nics(two.cluster, two.assumptions);
    EXPECT_EQ(node_of(two).nics.count, 8);
    EXPECT_FALSE(sim::check_cluster(two.cluster, "c"));
}

TEST(ImportedClusters, TemplateGivesWhatTheFileLacks) {
    const ImportedCluster built = built_from("topo_h100_nic_legend.txt", help_with("", "dgx-h100"));
    EXPECT_EQ(node_of(built).device, "H100-SXM-80GB");
    EXPECT_DOUBLE_EQ(node_of(built).nics.per_nic.physical.value(), 50e9);
    EXPECT_GT(node_of(built).host.memory.value(), 0.0);
    EXPECT_EQ(built.cluster.fabric.kind, sim::FabricKind::infiniband);
    EXPECT_TRUE(sim::check_cluster(built.cluster, "c"));
}

TEST(ImportedClusters, ACardThatMayNotReadDeviceMemoryIsStagedAlone) {
    const auto nics_of = [](const char* first, const char* second) {
        std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
        for (int i = 0; i < 2; ++i) {
            const std::string bus = std::to_string(1 + i);
            text += "<pci busid=\"0000:" + bus +
                    "0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s "
                    "PCIe\" link_width=\"16\"><pci busid=\"0000:" +
                    bus +
                    "1:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
                    "<gpu dev=\"" +
                    std::to_string(i) + "\" sm=\"90\" rank=\"" + std::to_string(i) +
                    "\" gdr=\"1\"/></pci><pci busid=\"0000:" + bus +
                    "2:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
                    "<nic><net name=\"mlx5_" +
                    std::to_string(i) + "\" dev=\"" + std::to_string(i) +
                    "\" speed=\"400000\" port=\"1\" guid=\"0x" + bus +
                    "\" maxconn=\"1024\" gdr=\"" + (i == 0 ? first : second) +
                    "\"/></nic></pci></pci>";
        }
        const ImportHelp help = help_with("H100-SXM-80GB");
        const auto built = build_cluster(diagnosed(text + "</cpu></system>", help), help);
        EXPECT_TRUE(built) << (built ? "" : sim::to_text(built.error()));
        return built ? node_of(*built).nics : sim::Nics{};
    };
    EXPECT_EQ(nics_of("1", "0").count, 2);
    EXPECT_TRUE(nics_of("1", "0").gpudirect);
    EXPECT_EQ(nics_of("1", "0").staged, std::vector<std::int64_t>{1});
    EXPECT_TRUE(nics_of("1", "1").staged.empty());
    // where none may, the node says so as a whole
    EXPECT_FALSE(nics_of("0", "0").gpudirect);
    EXPECT_TRUE(nics_of("0", "0").staged.empty());
}

TEST(ImportedClusters, HybridCubeMeshKeepsItsGraph) {
    ImportedCluster built = built_from("topo_v100_cubemesh.txt", help_with("V100-SXM2-32GB"));
    EXPECT_EQ(node_of(built).scaleup.kind, sim::ScaleupKind::nvlink_mesh);
    EXPECT_DOUBLE_EQ(node_of(built).scaleup.per_device.physical.value(), 150e9); // 6 links of 25
    std::int64_t links = 0;
    for (const sim::GraphLink& link : node_of(built).links) {
        const bool between_devices = link.from.rfind("gpu", 0) == 0 && link.to.rfind("gpu", 0) == 0;
        links += between_devices ? link.count : 0;
    }
    EXPECT_EQ(links, 24); // 8 devices of 6 links
    settle_nics(built.cluster, built.assumptions);
    const auto status = sim::check_cluster(built.cluster, "c");
    EXPECT_TRUE(status) << sim::to_text(status.error());
}

TEST(ImportedClusters, BridgedPairsAreDomainsOfTwoAtTheSpeedOfTheWorst) {
    const ImportedCluster built =
        built_from("nccl_topo_pairwise_nvlink.xml", help_with("A100-PCIe-80GB"));
    EXPECT_EQ(node_of(built).scaleup.domain_devices, 2);
    EXPECT_DOUBLE_EQ(node_of(built).scaleup.per_device.physical.value(), 200e9); // 8 of 12 links
    EXPECT_FALSE(node_of(built).vertices.empty());
    const auto status = sim::check_cluster(built.cluster, "c");
    EXPECT_TRUE(status) << sim::to_text(status.error());
}

TEST(ImportedClusters, SixOfEightDevicesAreANodeOfSix) {
    const ImportedCluster built = built_from("topo_missing_gpu.txt", help_with("A100-SXM-80GB"));
    EXPECT_EQ(node_of(built).devices, 6);
    EXPECT_EQ(node_of(built).scaleup.kind, sim::ScaleupKind::nvswitch);
    EXPECT_DOUBLE_EQ(node_of(built).scaleup.per_device.physical.value(), 300e9);
}

TEST(ImportedClusters, MatrixAsksForTheDeviceAndNamesThoseThatFit) {
    const auto built = build_cluster(read_any(sample("topo_missing_gpu.txt")), help_with());
    ASSERT_FALSE(built);
    EXPECT_NE(built.error().hint.find("--device"), std::string::npos);
    EXPECT_NE(built.error().hint.find("A100-SXM-80GB"), std::string::npos);
    EXPECT_EQ(built.error().hint.find("H100-SXM"), std::string::npos); // it has 18 links, not 12
}

TEST(ImportedClusters, UnknownDeviceNameIsRefusedWithTheNearest) {
    const auto built =
        build_cluster(read_any(sample("topo_missing_gpu.txt")), help_with("A100-SXM-80G"));
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().where, "--device");
    EXPECT_NE(built.error().hint.find("A100-SXM-80GB"), std::string::npos);
}

TEST(ImportedClusters, FileOfACloudTakesTheLinksOfTheBoardAndSaysSo) {
    const ImportedCluster built = built_from("nccl_topo_cloud.xml", help_with("H100-SXM-80GB"));
    EXPECT_EQ(node_of(built).scaleup.kind, sim::ScaleupKind::nvswitch);
    EXPECT_EQ(built.cluster.fabric.kind, sim::FabricKind::infiniband);
    EXPECT_TRUE(std::any_of(built.assumptions.begin(), built.assumptions.end(),
                            [](const sim::Assumption& a) { return a.path == "cluster.scaleup"; }));
}

TEST(ImportedClusters, AmdDumpNamesItsDeviceByItsPciNumber) {
    const ImportedCluster built = built_from("rccl_topo_xgmi.xml", help_with());
    EXPECT_EQ(node_of(built).device, "MI300X");
    EXPECT_EQ(node_of(built).scaleup.kind, sim::ScaleupKind::xgmi_mesh);
    EXPECT_DOUBLE_EQ(node_of(built).scaleup.per_device.physical.value(), 128e9); // 2 links of 64
    EXPECT_DOUBLE_EQ(node_of(built).nics.per_nic.physical.value(), 25e9);
}

TEST(ImportedClusters, UnknownHostMemoryIsAnAssumption) {
    const ImportedCluster built = built_from("topo_missing_gpu.txt", help_with("A100-SXM-80GB"));
    EXPECT_EQ(node_of(built).host.memory.value(), 0.0);
    EXPECT_TRUE(
        std::any_of(built.assumptions.begin(), built.assumptions.end(),
                    [](const sim::Assumption& a) { return a.path == "cluster.host.memory"; }));
}

} // namespace
} // namespace shardplan::plan
