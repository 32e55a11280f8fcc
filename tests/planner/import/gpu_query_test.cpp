#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::diagnosed;
using test::finds;
using test::help_with;
using test::loses;
using test::read_any;
using test::sample;

TEST(GpuQuery, MemoryOfUnknownProductsComesFromTheFile) {
    const ForeignCluster file = diagnosed(sample("nvidia_smi_query_vgpu.csv"));
    ASSERT_EQ(file.node->gpus.size(), 3U);
    EXPECT_DOUBLE_EQ(file.node->gpus[0].memory.value(), 47104.0 * 0x1p20);
    EXPECT_TRUE(finds(file, "vgpu", "H100L-3-47C"));
    EXPECT_TRUE(finds(file, "unknown-device", "RTX 6000 Ada"));
    EXPECT_TRUE(finds(file, "modified-device", "RTX 4090 D"));
    EXPECT_TRUE(finds(file, "modified-device", "sold with 24 GB"));
}

TEST(GpuQuery, DevicesOfSeveralKindsAskForOneAndNeverForAnother) {
    const ForeignCluster file = read_any(sample("nvidia_smi_query_vgpu.csv"));
    const auto built = build_cluster(file, help_with());
    ASSERT_FALSE(built);
    EXPECT_NE(built.error().hint.find("--device"), std::string::npos);
    EXPECT_FALSE(build_cluster(file, help_with("H100-SXM-80GB"))); // none of the three
}

TEST(GpuQuery, UnknownProductIsHandedOnWithoutAPeak) {
    const auto built = build_cluster(read_any(sample("nvidia_smi_query_vgpu.csv")),
                                     help_with("NVIDIA GeForce RTX 4090 D"));
    ASSERT_TRUE(built) << sim::to_text(built.error());
    EXPECT_EQ(built->cluster.node_groups[0].node.devices, 1);
    EXPECT_TRUE(built->cluster.devices.empty());
    ASSERT_EQ(built->unknown_devices.size(), 1U);
    EXPECT_EQ(built->unknown_devices[0].name, "NVIDIA GeForce RTX 4090 D");
    EXPECT_TRUE(built->unknown_devices[0].peak_dense.empty());
    EXPECT_DOUBLE_EQ(built->unknown_devices[0].memory_visible.value(), 49140.0 * 0x1p20);
}

TEST(GpuQuery, UnitMayStandInTheHeaderAndTheHeaderMayBeMissing) {
    const ForeignCluster in_header =
        read_any("index, name, memory.total [MiB]\n0, NVIDIA L40S, 46068\n");
    EXPECT_DOUBLE_EQ(in_header.node->gpus[0].memory.value(), 46068.0 * 0x1p20);
    const ForeignCluster without = read_any("1, NVIDIA L40S, 46068 MiB, 00000000:02:00.0\n");
    EXPECT_EQ(without.node->gpus[0].name, "GPU1");
    EXPECT_EQ(without.node->gpus[0].product, "NVIDIA L40S");
    EXPECT_DOUBLE_EQ(without.node->gpus[0].memory.value(), 46068.0 * 0x1p20);
}

TEST(GpuQuery, UnreadableMemoryIsLostAlone) {
    const ForeignCluster file =
        read_any("name, memory.total [MiB]\nNVIDIA L40S, [N/A]\nNVIDIA L40S, 46068 MiB\n");
    EXPECT_EQ(file.node->gpus.size(), 2U);
    EXPECT_TRUE(loses(file, 2, "memory of GPU0"));
}

TEST(GpuQuery, KnownProductBecomesANodeOfItsBoard) {
    std::string text = "name, memory.total [MiB]\n";
    for (int i = 0; i < 8; ++i) {
        text += "NVIDIA H100 80GB HBM3, 81559 MiB\n";
    }
    const auto built = build_cluster(diagnosed(text), help_with());
    ASSERT_TRUE(built) << sim::to_text(built.error());
    const sim::NodeTemplate& node = built->cluster.node_groups[0].node;
    EXPECT_EQ(node.device, "H100-SXM-80GB");
    EXPECT_EQ(node.devices, 8);
    EXPECT_EQ(node.scaleup.kind, sim::ScaleupKind::nvswitch);
    EXPECT_TRUE(built->cluster.scalable);
    EXPECT_TRUE(built->cluster.devices.empty()); // as the catalogue has it
}

TEST(GpuQuery, KnownProductWithOtherMemoryIsDescribedInTheCluster) {
    const ForeignCluster file =
        diagnosed("name, memory.total [MiB]\nNVIDIA GeForce RTX 4090, 49140 MiB\n");
    EXPECT_TRUE(finds(file, "modified-device", "GPU0"));
    const auto built = build_cluster(file, help_with());
    ASSERT_TRUE(built);
    ASSERT_EQ(built->cluster.devices.size(), 1U);
    EXPECT_DOUBLE_EQ(built->cluster.devices[0].memory_visible.value(), 49140.0 * 0x1p20);
    EXPECT_FALSE(built->cluster.devices[0].peak_dense.empty());
}

TEST(GpuList, SlicesAreCountedAndDiagnosed) {
    const ForeignCluster file = read_any(sample("nvidia_smi_list_mig.txt"));
    EXPECT_EQ(file.node->gpus.size(), 2U);
    EXPECT_EQ(file.node->gpus[1].product, "NVIDIA A100-SXM4-80GB");
    EXPECT_TRUE(finds(file, "mig", "2 MIG slices"));
    EXPECT_EQ(test::line_of(file, "mig"), 2);
}

} // namespace
} // namespace shardplan::plan
