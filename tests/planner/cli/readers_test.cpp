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

TEST(ClusterVerb, ForeignFileIsRefusedByItsName) {
    const TemporaryFile topo("topo.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n");
    const Answer answer = run_verb(run_cluster, ClusterOptions{topo.path(), std::nullopt, {}});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("nvidia-smi topo -m"), std::string::npos) << answer.err;
}

TEST(ClusterVerb, RecognisesForeignFormats) {
    EXPECT_NE(foreign_cluster_format("<system version=\"1\"><cpu numaid=\"0\">").find("NCCL"),
              std::string::npos);
    EXPECT_NE(foreign_cluster_format("SwitchName=s0 Nodes=n[1-4]").find("Slurm"),
              std::string::npos);
    EXPECT_NE(foreign_cluster_format("{\"apiVersion\": \"v1\"}").find("Kubernetes"),
              std::string::npos);
    EXPECT_EQ(foreign_cluster_format("{\"name\": \"mine\"}"), "");
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

} // namespace
} // namespace shardplan::plan::cli
