#include "planner/import/recognise.hpp"

#include <map>

#include "tests/planner/import/foreign_text.hpp"

namespace shardplan::plan {
namespace {

using test::sample;

std::string name_of_format(const std::string& text) {
    const ForeignFormat* format = recognise(text);
    return format == nullptr ? "" : std::string(format->name);
}

TEST(Recognise, EverySampleIsToldByItsContent) {
    const std::map<std::string, std::string> formats = {
        {"topo_h100_nic_legend.txt", "a print of `nvidia-smi topo -m`"},
        {"topo_missing_gpu.txt", "a print of `nvidia-smi topo -m`"},
        {"topo_v100_cubemesh.txt", "a print of `nvidia-smi topo -m`"},
        {"nccl_topo_missing_arch.xml", "an NCCL topology (XML)"},
        {"nccl_topo_cloud.xml", "an NCCL topology (XML)"},
        {"rccl_topo_xgmi.xml", "an NCCL topology (XML)"},
        {"nccl_graph.xml", "an NCCL graph (XML)"},
        {"nvidia_smi_query_vgpu.csv", "a print of `nvidia-smi --query-gpu`"},
        {"nvidia_smi_list_mig.txt", "a print of `nvidia-smi -L`"},
        {"slurm_topology_two_roots_unknown.conf", "a Slurm topology.conf"},
        {"slurm_topology_comment_only.conf", "a Slurm topology.conf without a record"},
        {"slurm_topology_block.yaml", "a Slurm topology.yaml"},
        {"scontrol_nodes.txt", "a print of `scontrol show node`"},
        {"k8s_nodes_leafgroups.json", "a Kubernetes node list"},
        {"k8s_nodes_small.yaml", "a Kubernetes node list"},
        {"nccl_tests_interleaved.log", "a log of nccl-tests"},
        {"nccl_tests_rank_prefix.log", "a log of nccl-tests"},
    };
    for (const auto& [file, name] : formats) {
        EXPECT_EQ(name_of_format(sample(file)), name) << file;
    }
}

TEST(Recognise, OurOwnFilesAndOtherTextsAreNoForeignFormat) {
    EXPECT_EQ(name_of_format("{\"name\": \"mine\", \"note\": \"GPU0 busbw algbw NV18\"}"), "");
    EXPECT_EQ(name_of_format("{\"model_type\": \"llama\"}"), "");
    EXPECT_EQ(name_of_format("just some words\n"), "");
    EXPECT_EQ(name_of_format(""), "");
}

TEST(Recognise, AByteOrderMarkBeforeTheTextDoesNotMatter) {
    const std::string nodes = "\xEF\xBB\xBF" + sample("k8s_nodes_leafgroups.json");
    EXPECT_EQ(name_of_format(nodes), "a Kubernetes node list");
    const std::string ours =
        "\xEF\xBB\xBF{\"name\": \"mine\", \"note\": \"GPU0 busbw algbw NV18\"}";
    EXPECT_EQ(name_of_format(ours), "");
}

TEST(Recognise, TextBeforeTheMatrixDoesNotMatter) {
    EXPECT_EQ(name_of_format("$ nvidia-smi topo -m\n\n\tGPU0\tGPU1\nGPU0\t X \tNV4\n"),
              "a print of `nvidia-smi topo -m`");
}

} // namespace
} // namespace shardplan::plan
