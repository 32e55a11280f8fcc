#include "planner/import/pcie.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::finds;
using test::help_with;
using test::loses;
using test::read_any;
using test::sample;

TEST(TopologyXml, DirectLinksBelongToPairsAndOthersGoThroughTheHost) {
    const ForeignCluster file = diagnosed(sample("nccl_topo_pairwise_nvlink.xml"));
    ASSERT_TRUE(file.node);
    const NodeView& view = *file.node;
    EXPECT_EQ(view.gpus.size(), 4U);
    EXPECT_EQ(view.path(0, 1), (Path{PathKind::nvlink, 12}));
    EXPECT_EQ(view.path(2, 3), (Path{PathKind::nvlink, 8}));
    EXPECT_EQ(view.path(1, 2).kind, PathKind::phb);
    EXPECT_EQ(view.compute_capability, "8.0");
    EXPECT_TRUE(finds(file, "no-peer-access", "4 of 6"));
    EXPECT_TRUE(finds(file, "half-speed", "GPU2 (8) and GPU3 (8)"));
}

TEST(TopologyXml, ProcessorWithoutMakerAndUnknownElementsAreNoted) {
    const ForeignCluster file = read_any(sample("nccl_topo_missing_arch.xml"));
    EXPECT_EQ(file.node->gpus.size(), 1U);
    EXPECT_TRUE(loses(file, 3, "<c2c>"));
}

TEST(TopologyXml, FileOfACloudStopsAtPciDevicesAndSaysNothingOfLinks) {
    const ForeignCluster file = diagnosed(sample("nccl_topo_cloud.xml"));
    const NodeView& view = *file.node;
    EXPECT_EQ(view.gpus.size(), 4U);
    EXPECT_EQ(view.nics.size(), 3U);
    EXPECT_FALSE(view.links_stated);
    EXPECT_TRUE(view.infiniband);
    EXPECT_EQ(view.path(0, 4).kind, PathKind::pix);
    EXPECT_EQ(view.path(0, 1).kind, PathKind::phb);
    EXPECT_EQ(view.path(0, 2).kind, PathKind::sys);
    EXPECT_TRUE(finds(file, "missing-nic", "GPU1"));
    EXPECT_TRUE(finds(file, "half-speed", "GPU3 sits in a slot of 15.8 GB/s"));
}

TEST(TopologyXml, LinksOfAnAmdDumpAreReadAndAnImpossibleCardSpeedIsMended) {
    const ForeignCluster file = read_any(sample("rccl_topo_xgmi.xml"));
    const NodeView& view = *file.node;
    EXPECT_EQ(view.gpus.size(), 3U);
    EXPECT_TRUE(view.xgmi);
    EXPECT_EQ(view.path(0, 2), (Path{PathKind::nvlink, 1}));
    EXPECT_EQ(device_of_pci_id(view.gpus[0].product), "MI300X");
    EXPECT_DOUBLE_EQ(view.nics[0].speed.value(), 25e9); // 200 Gbit/s
    EXPECT_TRUE(loses(file, 24, "kbit/s"));
}

TEST(TopologyXml, SwitchOfTheLinksGivesEveryPairAllLinks) {
    std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
    for (const char* bus : {"11", "12", "13"}) {
        text += std::string("<pci busid=\"0000:") + bus + ":00.0\" class=\"0x030200\"><gpu dev=\"" +
                bus +
                "\" sm=\"90\"><nvlink target=\"0000:40:00.0\" count=\"9\" tclass=\"0x068000\"/>"
                "<nvlink target=\"0000:41:00.0\" count=\"9\" tclass=\"0x068000\"/></gpu></pci>";
    }
    const ForeignCluster file = read_any(text + "</cpu></system>");
    EXPECT_TRUE(file.node->switched);
    EXPECT_EQ(file.node->path(0, 2), (Path{PathKind::nvlink, 18}));
    EXPECT_EQ(file.node->gpus[0].name, "GPU11");
}

TEST(TopologyXml, HostsOfOneDomainAreCountedAndTheFirstStandsForAll) {
    std::string text = "<system version=\"1\">";
    for (const char* host : {"0xa", "0xb", "0xc"}) {
        text += std::string("<cpu numaid=\"0\" host_hash=\"") + host + "\">";
        for (const char* bus : {"11", "12"}) {
            text += std::string("<pci busid=\"0000:") + bus +
                    ":00.0\" class=\"0x030200\"><gpu dev=\"" + bus +
                    "\" sm=\"100\"><nvlink target=\"0000:40:00.0\" count=\"18\" "
                    "tclass=\"0x068000\"/></gpu></pci>";
        }
        text += "</cpu>";
    }
    const ForeignCluster file = read_any(text + "</system>");
    EXPECT_EQ(file.node->hosts, 3);
    EXPECT_EQ(file.node->gpus.size(), 2U);
    const auto built = build_cluster(file, help_with("GB200"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_EQ(built->cluster.node_groups[0].count, 3);
    EXPECT_EQ(built->cluster.node_groups[0].node.scaleup.domain_devices, 6);
}

TEST(TopologyXml, TextThatBreaksOffKeepsWhatStandsBefore) {
    const std::string text = sample("nccl_topo_pairwise_nvlink.xml");
    const ForeignCluster file = read_any(text.substr(0, text.find("0000:61:00.0\" class")));
    EXPECT_EQ(file.node->gpus.size(), 3U);
    EXPECT_FALSE(file.lost.empty());
}

TEST(TopologyXml, SlicedDeviceIsDiagnosed) {
    const ForeignCluster file = diagnosed(
        "<system version=\"1\"><cpu><pci busid=\"0:1:0.0\" class=\"0x030200\">"
        "<gpu dev=\"0\" sm=\"80\" mig=\"1\"/></pci></cpu></system>");
    EXPECT_TRUE(finds(file, "mig"));
}

TEST(TopologyXml, TreeWithoutDevicesIsRefused) {
    const auto file = readers::topology_xml("<system version=\"1\"><cpu/></system>", "t.xml");
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().what.find("no device"), std::string::npos);
}

TEST(GraphXml, ChannelsTimesSpeedIsTheBandwidthOfADevice) {
    const ForeignCluster file = read_any(sample("nccl_graph.xml"));
    EXPECT_EQ(file.node->gpus.size(), 4U);
    EXPECT_EQ(file.node->nics.size(), 2U);
    EXPECT_DOUBLE_EQ(file.node->collective_bandwidth.value(), 48e9); // 2 channels of 24 GB/s
    const auto built = build_cluster(file, help_with("A100-SXM-80GB"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_DOUBLE_EQ(usable(built->cluster.node_groups[0].node.scaleup.per_device).value(), 48e9);
}

TEST(Pcie, BandwidthIsRateTimesLanesLessTheLineCode) {
    EXPECT_NEAR(pcie_bandwidth("16.0 GT/s PCIe", "16").value(), 31.5e9, 0.1e9);
    EXPECT_NEAR(pcie_bandwidth("32 GT/s", "16").value(), 63e9, 0.1e9);
    EXPECT_NEAR(pcie_bandwidth("5.0 GT/s", "8").value(), 4e9, 1.0);
    EXPECT_EQ(pcie_bandwidth("Unknown", "16").value(), 0.0);
    EXPECT_EQ(pcie_bandwidth("16.0 GT/s", "-1").value(), 0.0);
}

TEST(Pcie, EveryNumberOfADeviceLeadsToTheCatalogue) {
    const auto devices = sim::load_devices();
    ASSERT_TRUE(devices);
    int known = 0;
    for (int vendor : {0x10de, 0x1002}) {
        for (int device = 0; device < 0x10000; ++device) {
            char id[16];
            std::snprintf(id, sizeof id, "%04x:%04x", vendor, device);
            if (const auto name = device_of_pci_id(id); !name.empty()) {
                EXPECT_TRUE(sim::find_device(*devices, name, "")) << id;
                ++known;
            }
        }
    }
    EXPECT_GE(known, 30);
}

} // namespace
} // namespace shardplan::plan
