#include "planner/import/load_model.hpp"

#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan {
namespace {

namespace fs = std::filesystem;

const std::string source = SHARDPLAN_SOURCE_DIR;

struct Size {
    std::string name;
    std::int64_t total;
};

/// Totals that a count independent of ours confirms: verified rows of tests/data/models.jsonl, or
/// the same number in public files of others (loaders' printed counts, hub metadata, presets). Of
/// GLM-4.5 they state the total with MTP module and its copies of both tables, which agrees too.
const Size exact_sizes[] = {
    // clang-format off
        {"bloom-176b", 176247271424},
        {"bloom-7b1", 7069016064},
        {"deepseek-v2-lite", 15706484224},
        {"deepseek-v2", 235741434880},
        {"deepseek-v3", 671026419200},
        {"falcon-180b", 178557088768},
        {"falcon-7b", 6921720704},
        {"gemma-2-27b", 27227128320},
        {"gemma-2-2b", 2614341888},
        {"gemma-2-9b", 9241705984},
        {"gemma-3-1b", 999885952},
        {"gemma-3-27b", 27009346304},
        {"glm-4-9b", 9399951360},
        {"glm-4.5-air", 106852251264},
        {"glm-4.5", 352797829024},
        {"gpt-j-6b", 6050882784},
        {"gpt-neox-20b", 20554567680},
        {"gpt-oss-120b", 116829156672},
        {"gpt-oss-20b", 20914757184},
        {"gpt2-medium", 354823168},
        {"gpt2-xl", 1557611200},
        {"gpt2", 124439808},
        {"granite-3.1-1b-a400m", 1334628352},
        {"kimi-k2", 1026408232448},
        {"llama-13b", 13015864320},
        {"llama-2-13b", 13015864320},
        {"llama-2-70b", 68976648192},
        {"llama-2-7b", 6738415616},
        {"llama-3-70b", 70553706496},
        {"llama-3-8b", 8030261248},
        {"llama-3.1-405b", 405853388800},
        {"llama-3.1-70b", 70553706496},
        {"llama-3.1-8b", 8030261248},
        {"llama-3.2-1b", 1235814400},
        {"llama-3.2-3b", 3212749824},
        {"llama-30b", 32528943616},
        {"llama-65b", 65285660672},
        {"llama-7b", 6738415616},
        {"mistral-7b", 7241732096},
        {"mistral-nemo-12b", 12247782400},
        {"mistral-small-24b", 23572403200},
        {"mixtral-8x22b", 140630071296},
        {"mixtral-8x7b", 46702792704},
        {"nemotron-3-nano-30b", 31577940288},
        {"olmo-2-32b", 32234279936},
        {"olmo-2-7b", 7298617344},
        {"olmoe-1b-7b", 6919161856},
        {"opt-1.3b", 1315758080},
        {"phi-2", 2779683840},
        {"phi-3-medium", 13960238080},
        {"phi-3-mini", 3821079552},
        {"phi-4", 14659507200},
        {"pythia-12b", 11846072320},
        {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},
        {"qwen2.5-14b", 14770033664},
        {"qwen2.5-32b", 32763876352},
        {"qwen2.5-3b", 3085938688},
        {"qwen2.5-72b", 72706203648},
        {"qwen2.5-7b", 7615616512},
        {"qwen3-1.7b", 1720574976},
        {"qwen3-14b", 14768307200},
        {"qwen3-235b-a22b", 235093634560},
        {"qwen3-30b-a3b", 30532122624},
        {"qwen3-32b", 32762123264},
        {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},
        {"qwen3-next-80b-a3b", 79674391296},
        {"tinyllama-1.1b", 1100048384},
    // clang-format on
};

/// Totals by our rules of the family. No independent count was found, so these only pin what the
/// rules give; that the shape is right rests on the rounded public size.
const Size sizes_by_rule[] = {
    {"command-r-35b", 34980831232},  {"dbrx-132b", 131596523520},    {"falcon-40b", 41303293952},
    {"glm-4-32b", 32566081536},      {"granite-3.1-8b", 8170848256}, {"mpt-7b", 6649286656},
    {"starcoder2-15b", 15957889024},
};

/// Models of papers without published weights or exact count: near their nominal size, in billions.
const Size nominal_billions[] = {
    {"gpt-175b", 175},      {"gpt-3-175b", 175},      {"mt-nlg-530b", 530}, {"megatron-1t", 1000},
    {"gpt-22b", 22},        {"mpt-30b", 30},          {"opt-66b", 66},      {"opt-175b", 175},
    {"nemotron-4-15b", 15}, {"nemotron-4-340b", 340},
};

std::int64_t total_of(const std::string& name) {
    const auto model = load_model(name);
    EXPECT_TRUE(model) << sim::to_text(model.error());
    return model ? sim::count_parameters(model->model).total : 0;
}

/// A folder of this test's own that is gone afterwards.
class Folder {
public:
    Folder() : path_(fs::temp_directory_path() / ("shardplan-load-model-" + unique())) {
        fs::create_directories(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        std::error_code error;
        fs::remove_all(path_, error);
    }
    [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
        const std::string path = (path_ / name).string();
        EXPECT_TRUE(sim::write_file(path, text));
        return path;
    }
    [[nodiscard]] std::string path() const { return path_.string(); }

private:
    static std::string unique() {
        const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
        return info->name();
    }
    fs::path path_;
};

const std::string small_llama = R"({"model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
    "vocab_size": 1000})";

TEST(BuiltInModels, HaveTheSizesOthersCounted) {
    for (const Size& model : exact_sizes) {
        EXPECT_EQ(total_of(model.name), model.total) << model.name;
    }
}

TEST(BuiltInModels, KeepTheSizesOurRulesGive) {
    for (const Size& model : sizes_by_rule) {
        EXPECT_EQ(total_of(model.name), model.total) << model.name;
    }
}

TEST(BuiltInModels, AreWithinFivePercentOfTheirNominalSize) {
    for (const Size& model : nominal_billions) {
        const double billions = static_cast<double>(total_of(model.name)) / 1e9;
        const auto nominal = static_cast<double>(model.total);
        EXPECT_NEAR(billions, nominal, 0.05 * nominal) << model.name;
    }
}

TEST(BuiltInModels, AreAllCheckedByThisTest) {
    std::set<std::string> checked;
    for (const Size& model : exact_sizes) {
        checked.insert(model.name);
    }
    for (const Size& model : sizes_by_rule) {
        checked.insert(model.name);
    }
    for (const Size& model : nominal_billions) {
        checked.insert(model.name);
    }
    const auto listed = list_models();
    ASSERT_TRUE(listed) << sim::to_text(listed.error());
    EXPECT_GE(listed->size(), 30U);
    for (const sim::CatalogueEntry& entry : *listed) {
        EXPECT_TRUE(checked.contains(entry.name)) << entry.name;
    }
    EXPECT_EQ(listed->size(), checked.size());
}

TEST(BuiltInModels, AssumeNothingAndNameTheirSource) {
    const auto listed = list_models();
    ASSERT_TRUE(listed);
    for (const sim::CatalogueEntry& entry : *listed) {
        const auto model = load_model(entry.name);
        ASSERT_TRUE(model) << entry.name;
        EXPECT_TRUE(model->assumptions.empty()) << entry.name;
        EXPECT_TRUE(model->model.unknown_keys.empty()) << entry.name;
        EXPECT_FALSE(model->model.source.empty()) << entry.name;
        EXPECT_EQ(model->model.name, entry.name);
    }
}

TEST(LoadModel, NamesAreFoundWithoutRegardToCaseAndSeparators) {
    for (const std::string name : {"llama-3-8b", "Llama-3-8B", "llama3_8b", "LLAMA 3 8B"}) {
        EXPECT_EQ(total_of(name), 8030261248) << name;
    }
}

TEST(LoadModel, HubNamesAndAliasesAreFound) {
    const auto hub = load_model("meta-llama/Meta-Llama-3-8B-Instruct");
    ASSERT_TRUE(hub) << sim::to_text(hub.error());
    EXPECT_EQ(hub->model.name, "llama-3-8b");
    ASSERT_EQ(hub->assumptions.size(), 1U);
    EXPECT_EQ(hub->assumptions[0].origin, "alias");
    EXPECT_EQ(load_model("gpt3")->model.name, "gpt-3-175b");
    EXPECT_EQ(load_model("mistralai/Mixtral-8x7B-v0.1")->model.name, "mixtral-8x7b");
}

TEST(LoadModel, AnUnknownNameIsAnsweredWithTheNearest) {
    const auto model = load_model("lama-3-8b");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, sim::ErrorCode::not_found);
    EXPECT_NE(model.error().hint.find("llama-3-8b"), std::string::npos) << model.error().hint;
}

TEST(LoadModel, NothingAndMissingFilesAreRefused) {
    EXPECT_FALSE(load_model(""));
    EXPECT_EQ(load_model("./no-such.json").error().code, sim::ErrorCode::not_found);
    EXPECT_EQ(load_model("/no/such/config.json").error().where, "/no/such/config.json");
}

TEST(LoadModel, AFolderWithAConfigIsCalledAfterTheFolder) {
    const Folder folder;
    EXPECT_FALSE(load_model(folder.path()));
    const std::string config = folder.write("config.json", small_llama);
    const auto from_folder = load_model(folder.path());
    const auto from_file = load_model(config);
    ASSERT_TRUE(from_folder && from_file);
    EXPECT_EQ(from_folder->model.name, fs::path(folder.path()).filename().string());
    EXPECT_EQ(from_file->model.name, from_folder->model.name);
    EXPECT_EQ(from_file->model.parts, from_folder->model.parts);
}

TEST(LoadModel, OwnFilesAndHuggingFaceConfigsAreToldApartByContent) {
    const Folder folder;
    const auto config = load_model(folder.write("a.json", small_llama));
    ASSERT_TRUE(config);
    EXPECT_EQ(config->model.name, "a");
    const auto own = load_model(folder.write("b.json", sim::write_described(config->model)));
    ASSERT_TRUE(own) << sim::to_text(own.error());
    EXPECT_EQ(own->model, config->model);
    EXPECT_TRUE(own->assumptions.empty());
}

TEST(LoadModel, OwnFilesThatAreWrongSayWhere) {
    const Folder folder;
    const std::string path = folder.write("odd.json", R"({"parts": [{"name": "trunk",
        "hidden": 64, "runs": [{"kind": 3}]}], "block_kinds": [{"name": "a"}],
        "embedding": {"vocab": 100}})");
    const auto model = load_model(path);
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().where.find("odd.json"), std::string::npos);
    EXPECT_FALSE(model.error().hint.empty());
}

TEST(LoadModel, TheExampleInTheDocumentationLoads) {
    const auto text = sim::read_file(source + "/samples/models/README.md");
    ASSERT_TRUE(text);
    const std::size_t begin = text->find("```json\n") + 8;
    const std::size_t end = text->find("```", begin);
    ASSERT_NE(end, std::string::npos);
    const Folder folder;
    const auto model = load_model(folder.write("next.json", text->substr(begin, end - begin)));
    ASSERT_TRUE(model) << sim::to_text(model.error());
    EXPECT_EQ(model->model.name, "my-next-model");
    EXPECT_FALSE(model->assumptions.empty());
    const sim::ParameterCounts counts = sim::count_parameters(model->model);
    EXPECT_EQ(counts.total - counts.active, 30LL * (64 - 6) * 3 * 4096 * 1536);
}

} // namespace
} // namespace shardplan::plan
