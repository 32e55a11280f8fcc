#include "planner/import/node_view.hpp"
#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::finds;
using test::help_with;
using test::line_of;
using test::loses;
using test::read_any;
using test::sample;

Path path(const ForeignCluster& file, std::size_t a, std::size_t b) {
    return file.node->path(a, b);
}

TEST(TopologyMatrix, EscapeCodesAndLegendOfAnEightDeviceNodeAreUnderstood) {
    const ForeignCluster file = read_any(sample("topo_h100_nic_legend.txt"));
    ASSERT_TRUE(file.node);
    EXPECT_EQ(file.node->gpus.size(), 8U);
    EXPECT_EQ(file.node->nics.size(), 10U);
    EXPECT_EQ(file.node->rails().size(), 8U);
    EXPECT_EQ(file.node->nics[5].product, "mlx5_9");
    EXPECT_EQ(file.node->gpus[4].numa, 1);
    EXPECT_EQ(path(file, 0, 7), (Path{PathKind::nvlink, 18}));
    EXPECT_EQ(path(file, 3, 8 + 3).kind, PathKind::pix);
    EXPECT_TRUE(file.lost.empty()) << file.lost.front().what;
}

TEST(TopologyMatrix, BondsAndCardsOfAnotherMakeAreNoRails) {
    const ForeignCluster file = read_any(sample("topo_h100_nic_legend.txt"));
    EXPECT_NE(file.node->nics[8].aside.find("bond"), std::string::npos);
    EXPECT_NE(file.node->nics[9].aside.find("another make"), std::string::npos);
    EXPECT_TRUE(file.node->nics[0].aside.empty());
}

TEST(TopologyMatrix, LostDevicesAreMissedByNumberAndByTheComplaintOfTheTool) {
    const ForeignCluster file = diagnosed(sample("topo_missing_gpu.txt"));
    EXPECT_EQ(file.node->gpus.size(), 6U);
    EXPECT_TRUE(finds(file, "missing-gpu", "GPU3 and GPU6 are missing"));
    EXPECT_EQ(line_of(file, "missing-gpu"), 8);
    EXPECT_TRUE(file.lost.empty());
}

TEST(TopologyMatrix, HybridCubeMeshKeepsEveryPairAndFindsTheUnlinked) {
    const ForeignCluster file = diagnosed(sample("topo_v100_cubemesh.txt"));
    EXPECT_EQ(path(file, 0, 3), (Path{PathKind::nvlink, 2}));
    EXPECT_EQ(path(file, 0, 5).kind, PathKind::sys);
    EXPECT_TRUE(finds(file, "no-direct-link", "12 of 28 pairs"));
    EXPECT_TRUE(finds(file, "far-nic", "GPU4, GPU5, GPU6 and GPU7"));
    EXPECT_FALSE(finds(file, "half-speed")); // six links each, though pairs differ
    for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) {
            EXPECT_EQ(path(file, a, b).kind, a == b ? PathKind::self : PathKind::nvlink);
        }
    }
}

TEST(TopologyMatrix, GluedCellsAreTakenApart) {
    const ForeignCluster file = read_any(
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\n"
        "GPU0 X NV4NODEPIX 0-31 0\n"
        "GPU1 NV4 XSYS PIX0-31 0\n"
        "GPU2 NODE SYS X SYS 32-63 1\n"
        "NIC0 PIX PIX SYS X\n");
    EXPECT_EQ(path(file, 0, 1), (Path{PathKind::nvlink, 4}));
    EXPECT_EQ(path(file, 0, 2).kind, PathKind::node);
    EXPECT_EQ(path(file, 0, 3).kind, PathKind::pix);
    EXPECT_EQ(path(file, 1, 2).kind, PathKind::sys);
    EXPECT_EQ(path(file, 1, 3).kind, PathKind::pix);
    EXPECT_EQ(file.node->gpus[1].cores, "0-31");
    EXPECT_EQ(file.node->gpus[2].numa, 1);
    EXPECT_TRUE(file.lost.empty()) << file.lost.front().what;
}

TEST(TopologyMatrix, UnreadableCellIsLostAloneAndTakenFromItsMirrorImage) {
    const ForeignCluster file = read_any(
        "\tGPU0\tGPU1\tGPU2\nGPU0\t X \t@@\tSYS\n"
        "GPU1\tNV2\t X \tSYS\nGPU2\tSYS\tSYS\t X \n");
    EXPECT_EQ(path(file, 0, 1), (Path{PathKind::nvlink, 2}));
    EXPECT_TRUE(loses(file, 2, "GPU0 x GPU1"));
    EXPECT_EQ(file.lost.size(), 1U);
}

TEST(TopologyMatrix, AffinityMayBeARangeOrNotThere) {
    const ForeignCluster file = read_any(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\t0-7,16-23\t0-1\tN/A\n"
        "GPU1\tNV4\t X \tN/A\tN/A\tN/A\n");
    EXPECT_EQ(file.node->gpus[0].numa, 0);
    EXPECT_EQ(file.node->gpus[1].numa, -1);
    EXPECT_TRUE(file.lost.empty());
}

TEST(TopologyMatrix, RowsThatDisagreeGiveTheSlowerLink) {
    const ForeignCluster file = read_any("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV2\t X \n");
    EXPECT_EQ(path(file, 0, 1), (Path{PathKind::nvlink, 2}));
    EXPECT_TRUE(loses(file, 0, "disagree"));
}

TEST(TopologyMatrix, LineOfSomethingElseIsLostAlone) {
    const ForeignCluster file =
        read_any("\tGPU0\tGPU1\nGPU0\t X \tSYS\nkernel: hello\nGPU1\tSYS\t X \n");
    EXPECT_TRUE(loses(file, 3, "kernel: hello"));
    EXPECT_EQ(path(file, 0, 1).kind, PathKind::sys);
}

TEST(TopologyMatrix, HeaderWithoutARowIsRefusedWithWhatToPaste) {
    const auto file = readers::topology_matrix("\tGPU0\tGPU1\tCPU Affinity\n", "topo.txt");
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().where, "topo.txt");
    EXPECT_NE(file.error().hint.find("nvidia-smi topo -m"), std::string::npos);
}

TEST(NodeDiagnosis, DevicesAcrossSocketsWithoutLinksHaveNoPeerAccess) {
    const ForeignCluster file =
        diagnosed("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n", help_with("L40S"));
    EXPECT_TRUE(finds(file, "no-peer-access", "1 of 1 pair"));
}

TEST(NodeDiagnosis, BoardWhoseDriverForbidsPeerAccessHasNoneBehindOneSwitchEither) {
    const std::string text = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";
    EXPECT_FALSE(finds(diagnosed(text, help_with("L40S")), "no-peer-access"));
    EXPECT_TRUE(finds(diagnosed(text, help_with("RTX4090")), "no-peer-access"));
}

TEST(NodeDiagnosis, HalfOfTheLinksIsHalfSpeedOnceTheDeviceIsKnown) {
    const std::string text =
        "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV6\tNV6\nGPU1\tNV6\t X \tNV6\n"
        "GPU2\tNV6\tNV6\t X \n";
    EXPECT_FALSE(finds(diagnosed(text), "half-speed"));
    EXPECT_FALSE(finds(diagnosed(text, help_with("A100-SXM-80GB")), "half-speed")); // a mesh: 6 + 6
    const std::string pair = "\tGPU0\tGPU1\nGPU0\t X \tNV6\nGPU1\tNV6\t X \n";
    EXPECT_TRUE(finds(diagnosed(pair, help_with("A100-SXM-80GB")), "half-speed", "GPU0 (6)"));
}

TEST(NodeDiagnosis, EveryOtherDeviceWithoutACardIsAMissingCard) {
    const ForeignCluster file = diagnosed(
        "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tSYS\n"
        "NIC0\tPIX\tSYS\t X \n");
    EXPECT_TRUE(finds(file, "missing-nic", "GPU1 have no card"));
    EXPECT_TRUE(finds(file, "far-nic", "GPU1 reaches"));
}

} // namespace
} // namespace shardplan::plan
