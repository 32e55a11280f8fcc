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

TEST(ListVerb, UnknownListIsRefusedWithTheNearest) {
    const Answer answer = run_verb(run_list, ListOptions{"model"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("models"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan::cli
