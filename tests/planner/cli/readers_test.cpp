#include <gtest/gtest.h>

#include "planner/cli/inputs.hpp"
#include "tests/planner/cli/run_verb.hpp"

namespace shardplan::plan::cli {
namespace {

using test::Answer;
using test::parsed;
using test::run_verb;
using test::TemporaryFile;

const std::string inputs = SHARDPLAN_SOURCE_DIR "/tests/data/inputs/";

TEST(ModelVerb, PrintsExactCounts) {
    const Answer answer = run_verb(run_model, ModelOptions{"llama-3-8b", {}});
    EXPECT_EQ(answer.code, 0);
    EXPECT_NE(answer.out.find("8 030 261 248"), std::string::npos) << answer.out;
    EXPECT_TRUE(answer.err.empty()) << answer.err;
}

TEST(ModelVerb, JsonCarriesEveryFigureExpectedOfTheOddConfigs) {
    const auto text = std::ifstream(inputs + "expected.json");
    std::ostringstream buffer;
    buffer << text.rdbuf();
    const sim::JsonValue expected = parsed(buffer.str());
    int figures = 0;
    for (const std::string& file : expected.keys()) {
        if (file.rfind("config_", 0) != 0) {
            continue;
        }
        const Answer answer = run_verb(run_model, ModelOptions{inputs + file, {}}, {.json = true});
        ASSERT_EQ(answer.code, 0) << file << answer.err;
        const sim::JsonValue got = parsed(answer.out);
        const sim::JsonValue want = *expected.find(file);
        for (const std::string& key : want.keys()) {
            if (key == "must" || key == "omitted") {
                continue;
            }
            const auto figure = got.find(key);
            ASSERT_TRUE(figure) << file << " " << key;
            if (want.find(key)->is_object()) {
                for (const std::string& degree : want.find(key)->keys()) {
                    EXPECT_EQ(*figure->find(degree)->as_int(),
                              *want.find(key)->find(degree)->as_int());
                }
            } else {
                EXPECT_EQ(*figure->as_int(), *want.find(key)->as_int()) << file << " " << key;
            }
            ++figures;
        }
    }
    EXPECT_GE(figures, 9);
}

TEST(ModelVerb, SettingChangesTheModel) {
    const Answer answer =
        run_verb(run_model, ModelOptions{"llama-3-8b", {"model.embedding.tied=true"}});
    EXPECT_EQ(answer.code, 0);
    EXPECT_NE(answer.out.find("7 504 924 672"), std::string::npos) << answer.out;
}

TEST(ModelVerb, UnknownNameIsRefusedWithTheNearest) {
    const Answer answer = run_verb(run_model, ModelOptions{"lama-3-8b", {}});
    EXPECT_EQ(answer.code, 2);
    EXPECT_TRUE(answer.out.empty());
    EXPECT_NE(answer.err.find("llama-3-8b"), std::string::npos) << answer.err;
}

TEST(ModelVerb, SettingOfAnotherRootIsRefused) {
    const Answer answer = run_verb(run_model, ModelOptions{"llama-3-8b", {"job.name=x"}});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("model"), std::string::npos) << answer.err;
}

TEST(ClusterVerb, CountsWhatIsThere) {
    const Answer answer = run_verb(run_cluster, ClusterOptions{"dgx-h100", 64, {}}, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_EQ(*json.find("gpus")->as_int(), 64);
    EXPECT_EQ(*json.find("nodes")->as_int(), 8);
    EXPECT_EQ(*json.find("nics")->as_int(), 64);
    EXPECT_EQ(*json.find("rails")->as_int(), 8);
}

TEST(ClusterVerb, PartOfTwoNodesIsRefusedWithBothNeighbours) {
    const Answer answer = run_verb(run_cluster, ClusterOptions{"dgx-h100", 12, {}});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("8 or 16"), std::string::npos) << answer.err;
}

TEST(ClusterVerb, JsonCarriesEveryFigureExpectedOfTheForeignFiles) {
    const auto text = std::ifstream(inputs + "expected.json");
    std::ostringstream buffer;
    buffer << text.rdbuf();
    const sim::JsonValue expected = parsed(buffer.str());
    int files = 0;
    int figures = 0;
    for (const std::string& file : expected.keys()) {
        if (file.rfind("config_", 0) == 0) {
            continue;
        }
        ++files;
        const Answer answer =
            run_verb(run_cluster, ClusterOptions{inputs + file, {}, {}}, {.json = true});
        ASSERT_EQ(answer.code, 0) << file << answer.err;
        const sim::JsonValue got = parsed(answer.out);
        const sim::JsonValue want = *expected.find(file);
        for (const std::string& key : want.keys()) {
            if (key == "must") {
                continue;
            }
            const auto figure = got.find(key);
            ASSERT_TRUE(figure) << file << " " << key;
            EXPECT_EQ(figure->text(), want.find(key)->text()) << file << " " << key;
            ++figures;
        }
    }
    EXPECT_EQ(files, 12);
    EXPECT_EQ(figures, 20);
}

TEST(ClusterVerb, ForeignFileIsDrawnAndSaysWhatAPlanNeeds) {
    const TemporaryFile topo("topo.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n");
    const Answer answer = run_verb(run_cluster, ClusterOptions{topo.path(), std::nullopt, {}});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("nvidia-smi topo -m"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("  GPU0     X  NV12\n"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("To plan with it"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("--device NAME"), std::string::npos) << answer.out;
}

TEST(ClusterVerb, ForeignFileWithItsDeviceIsACluster) {
    const TemporaryFile topo("topo.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n");
    ClusterOptions options{topo.path(), std::nullopt, {}};
    options.import.device = "A100-SXM-80GB";
    const Answer answer = run_verb(run_cluster, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue json = parsed(answer.out);
    EXPECT_FALSE(json.find("to_plan_with_it"));
    EXPECT_EQ(*json.find("devices")->at(0).find("name")->as_string(), "A100-SXM-80GB");
    options.gpus = 3;
    EXPECT_EQ(run_verb(run_cluster, options).code, 2);
}

TEST(ClusterVerb, StaleNodesAreNamedOnlyAgainstAnInventory) {
    ClusterOptions options{inputs + "slurm_topology_stale_nodes.conf", std::nullopt, {}};
    EXPECT_EQ(run_verb(run_cluster, options).out.find("no-such-node"), std::string::npos);
    options.import.nodes = "node-[1-9]";
    const Answer answer = run_verb(run_cluster, options);
    EXPECT_NE(answer.out.find("no-such-node: line 1: node \"node-942\""), std::string::npos)
        << answer.out;
    options.import.nodes = "node-[1-";
    EXPECT_EQ(run_verb(run_cluster, options).code, 2);
}

TEST(EstimateVerb, ImportedClusterIsPlannedWith) {
    EstimateOptions options;
    options.scenario.model = "llama-3-8b";
    options.scenario.cluster = inputs + "slurm_topology_two_roots_unknown.conf";
    options.scenario.gpus = 64;
    options.scenario.import.node = "dgx-h100";
    options.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "64"}};
    options.layout = "mb1,zero2,rc=full";
    const Answer answer = run_verb(run_estimate, options);
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("8 nodes x 8 H100-SXM-80GB"), std::string::npos) << answer.out;
}

TEST(EstimateVerb, UnknownProductOfAFileAsksForItsPeakAndThenIsPlannedWith) {
    EstimateOptions options;
    options.scenario.model = "llama-3-8b";
    options.scenario.cluster = inputs + "nvidia_smi_query_vgpu.csv";
    options.scenario.import.device = "NVIDIA GeForce RTX 4090 D";
    options.scenario.job_fields = {{"--method", "method.kind", "lora"},
                                   {"--sequence", "sequence.max", "1024"},
                                   {"--global-batch", "global_batch.sequences", "8"}};
    options.layout = "mb1,zero2,rc=full";
    const Answer refused = run_verb(run_estimate, options);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("48.0 GiB"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("--device-peak"), std::string::npos) << refused.err;
    options.scenario.device_peak = "147 TFLOP/s";
    options.scenario.device_bandwidth = "1008 GB/s";
    const Answer answer = run_verb(run_estimate, options);
    EXPECT_EQ(answer.code, 0) << answer.err;
}

const char* const torus_file = R"({"name": "small torus", "node_groups": [{"name": "nodes",
  "count": 12, "node": {"device": "H100-SXM-80GB", "devices": 2,
  "scaleup": {"kind": "nvswitch", "per_device": {"physical": "450 GB/s"}}}}],
  "fabric": {"kind": "infiniband", "torus": [
    {"nodes": 4, "per_link": {"physical": "50 GB/s"}, "latency": "1 us"},
    {"nodes": 3, "per_link": {"physical": "25 GB/s"}}]}})";

TEST(ClusterVerb, SaysTheWayBetweenTwoDevices) {
    const TemporaryFile file("torus.json", torus_file);
    ClusterOptions options;
    options.cluster = file.path();
    options.between = "0,13"; // node 6: coordinates 2 and 1
    const Answer answer = run_verb(run_cluster, options, {.json = true});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const sim::JsonValue between = *parsed(answer.out).find("between");
    EXPECT_EQ(*between.find("hops")->as_int(), 3);
    EXPECT_EQ(*between.find("bottleneck")->as_int(), 1);
    EXPECT_EQ(*between.find("bandwidth_bytes_per_s")->as_double(), 25e9);
    EXPECT_EQ(*between.find("shortest_ways")->as_int(), 6); // 3 orders, two ways round
    const Answer text = run_verb(run_cluster, options);
    EXPECT_NE(text.out.find("torus 4 x 3"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("bottleneck     25.0 GB/s, node (2,0) to node (2,1)"),
              std::string::npos)
        << text.out;
}

TEST(ClusterVerb, RefusesEndsThatAreNoDevices) {
    for (const char* between : {"0", "0,x", "0,9,2", ",", "0,8", "-1,0", "5,5"}) {
        ClusterOptions options;
        options.cluster = "dgx-h100";
        options.between = between;
        const Answer answer = run_verb(run_cluster, options);
        EXPECT_EQ(answer.code, 2) << between;
        EXPECT_EQ(answer.err.rfind("error: --between: ", 0), 0U) << answer.err;
    }
}

TEST(ClusterVerb, NamesFileAndElementOfAnImpossibleTorus) {
    std::string text = torus_file;
    text.replace(text.find("\"nodes\": 3"), 10, "\"nodes\": 5");
    const TemporaryFile file("wrong.json", text);
    ClusterOptions options;
    options.cluster = file.path();
    const Answer answer = run_verb(run_cluster, options);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find(file.path() + ": /fabric/torus: the dimensions 4 x 5 hold 20 nodes, "
                                            "the cluster has 12"),
              std::string::npos)
        << answer.err;
}

TEST(ClusterVerb, UnknownDeviceIsDescribed) {
    const Answer answer = run_verb(
        run_cluster,
        ClusterOptions{
            "dgx-h100", std::nullopt, {"cluster.node_groups[0].node.device=my-accelerator-9"}});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("peak unknown"), std::string::npos) << answer.out;
}

TEST(ListVerb, NamesWhatIsBuiltIn) {
    for (const char* what : {"models", "clusters", "devices", "stacks", "jobs", "features"}) {
        const Answer answer = run_verb(run_list, ListOptions{what}, {.json = true});
        ASSERT_EQ(answer.code, 0) << what << answer.err;
        EXPECT_GE(parsed(answer.out).find(what)->size(), 3U) << what;
    }
}

TEST(ListVerb, JsonGivesAScriptWhatItWouldAskFor) {
    const auto entry = [](const char* what, const std::string& name) {
        const sim::JsonValue all =
            *parsed(run_verb(run_list, ListOptions{what}, {.json = true}).out).find(what);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (*all.at(i).find("name")->as_string() == name) {
                return all.at(i);
            }
        }
        ADD_FAILURE() << "no " << name << " among the " << what;
        return all.at(0);
    };
    const sim::JsonValue model = entry("models", "llama-3-8b");
    EXPECT_EQ(*model.find("parameters")->as_int(), 8030261248);
    EXPECT_EQ(*model.find("layers")->as_int(), 32);
    EXPECT_EQ(*model.find("hidden")->as_int(), 4096);
    const sim::JsonValue device = entry("devices", "H100-SXM-80GB");
    EXPECT_DOUBLE_EQ(*device.find("peak_dense_flops_per_s")->find("bf16")->as_double(), 989e12);
    EXPECT_GT(*device.find("memory_bytes")->as_double(), 80e9);
    EXPECT_GT(*device.find("memory_bandwidth_bytes_per_s")->as_double(), 3e12);
    const sim::JsonValue cluster = entry("clusters", "dgx-h100");
    EXPECT_EQ(*cluster.find("node_groups")->at(0).find("node")->find("devices")->as_int(), 8);
    EXPECT_EQ(*cluster.find("fabric")->find("kind")->as_string(), "infiniband");
    const sim::JsonValue stack = entry("stacks", "pytorch-fsdp2");
    EXPECT_FALSE(stack.find("version")->as_string()->empty());
    EXPECT_TRUE(*stack.find("capabilities")->find("fully_sharded")->as_bool());
}

TEST(ListVerb, UnknownListIsRefusedWithTheNearest) {
    const Answer answer = run_verb(run_list, ListOptions{"model"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("models"), std::string::npos);
}

TEST(ClusterVerb, RefusesUtf16InsteadOfReadingHalfOfIt) {
    const TemporaryFile file("utf16.conf", std::string("\xFF\xFES\0w\0\n\0", 8));
    const Answer answer = run_verb(run_cluster, ClusterOptions{file.path(), {}, {}});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("UTF-16"), std::string::npos) << answer.err;
}

} // namespace
} // namespace shardplan::plan::cli
