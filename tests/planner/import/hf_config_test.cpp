#include "planner/import/hf_config.hpp"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "planner/import/model_report.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::plan {
namespace {

const std::string data = std::string(SHARDPLAN_SOURCE_DIR) + "/tests/data/";

ImportedModel import(const std::string& text) {
    sim::Result<ImportedModel> model = import_hf_config(text, "test.json");
    EXPECT_TRUE(model) << sim::to_text(model.error());
    return model ? std::move(*model) : ImportedModel{};
}

std::int64_t total_of(const std::string& text) {
    return sim::count_parameters(import(text).model).total;
}

sim::Error error_of(const std::string& text) {
    const sim::Result<ImportedModel> model = import_hf_config(text, "test.json");
    EXPECT_FALSE(model);
    return model ? sim::Error{} : model.error();
}

bool assumes(const ImportedModel& model, const std::string& path, const std::string& value) {
    for (const sim::Assumption& a : model.assumptions) {
        if (a.path == path && a.value == value) {
            return true;
        }
    }
    return false;
}

sim::JsonValue parsed(const std::string& path) {
    const auto text = sim::read_file(path);
    EXPECT_TRUE(text) << sim::to_text(text.error());
    auto json = sim::JsonValue::parse(*text, path);
    EXPECT_TRUE(json) << sim::to_text(json.error());
    return *json;
}

/// A llama of one small layer; `more` goes in front of the other keys: ", " at its end.
std::string llama_with(const std::string& more) {
    return R"({"model_type": "llama", )" + more +
           R"("hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
              "num_attention_heads": 4, "vocab_size": 1000})";
}

/// 54 of the 57 rows are verified; the other three pin the rule of their family.
TEST(HfConfig, EveryKnownCountIsExact) {
    const auto text = sim::read_file(data + "models.jsonl");
    ASSERT_TRUE(text);
    std::istringstream lines(*text);
    int rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) {
        const auto row = sim::JsonValue::parse(line, "models.jsonl");
        ASSERT_TRUE(row);
        const std::string name = *row->find("name")->as_string();
        const auto model = import_hf_config(row->find("config")->text(), name);
        ASSERT_TRUE(model) << sim::to_text(model.error());
        const sim::ParameterCounts counts = sim::count_parameters(model->model);
        EXPECT_EQ(counts.total, *row->find("params")->as_int()) << name;
        if (const auto mtp = row->find("mtp_params")) {
            EXPECT_EQ(counts.mtp, *mtp->as_int()) << name;
        }
    }
    EXPECT_EQ(rows, 57);
}

TEST(HfConfig, EveryOddFileIsReadAsExpected) {
    const sim::JsonValue expected = parsed(data + "inputs/expected.json");
    int files = 0;
    int figures = 0;
    for (const std::string& file : expected.keys()) {
        if (file.rfind("config_", 0) != 0) {
            continue;
        }
        ++files;
        const auto text = sim::read_file(data + "inputs/" + file);
        ASSERT_TRUE(text) << file;
        const auto model = import_hf_config(*text, file);
        ASSERT_TRUE(model) << sim::to_text(model.error());
        sim::JsonWriter writer;
        writer.begin_object();
        write_model_report(writer, report_model(*model));
        writer.end_object();
        const auto report = sim::JsonValue::parse(writer.str(), file);
        ASSERT_TRUE(report);
        const sim::JsonValue wanted = *expected.find(file);
        for (const std::string& key : wanted.keys()) {
            if (key != "must") {
                const auto got = report->find(key);
                ASSERT_TRUE(got) << file << " " << key;
                EXPECT_EQ(got->text(), wanted.find(key)->text()) << file << " " << key;
                ++figures;
            }
        }
    }
    EXPECT_EQ(files, 10);
    EXPECT_EQ(figures, 11);
}

TEST(HfConfig, SearchedBlocksHaveTheirOwnHeadsAndWidths) {
    const auto text = sim::read_file(data + "inputs/config_nas_block_configs.json");
    ASSERT_TRUE(text);
    const ImportedModel model = import(*text);
    const auto& kinds = model.model.block_kinds;
    ASSERT_EQ(kinds.size(), 6U);
    EXPECT_EQ(kinds[0].attention.kv_heads, 32 / 4);
    EXPECT_EQ(kinds[0].ffn.width, 7168); // 2/3 x 2.625 x 4096
    EXPECT_EQ(kinds[1].attention.kv_heads, 32 / 8);
    EXPECT_EQ(kinds[2].attention.kind, sim::AttentionKind::none);
    EXPECT_FALSE(kinds[2].norms.pre_attention);
    EXPECT_EQ(kinds[3].attention.kind, sim::AttentionKind::linear);
    EXPECT_EQ(kinds[3].attention.opaque_parameters, 4096 * 4096);
    EXPECT_EQ(kinds[3].ffn.width, 1536); // 1365 rounded up to a multiple of 256
    EXPECT_EQ(kinds[4].ffn.kind, sim::FfnKind::none);
    EXPECT_EQ(kinds[5].ffn.kind, sim::FfnKind::linear);
    EXPECT_TRUE(assumes(model, "model.block_configs.ffn.ffn_mult", "width = 2/3 ffn_mult hidden"));
}

TEST(HfConfig, MissingKeyValueHeadsEqualHeadsAndAreReported) {
    const ImportedModel model = import(llama_with(""));
    EXPECT_EQ(model.model.block_kinds[0].attention.kv_heads, 4);
    EXPECT_EQ(model.model.block_kinds[0].attention.kind, sim::AttentionKind::mha);
    EXPECT_TRUE(assumes(model, "model.num_key_value_heads", "4"));
}

TEST(HfConfig, ByteOrderMarkAndCarriageReturnsAreAccepted) {
    std::string text = "\xEF\xBB\xBF";
    for (const char c : llama_with("")) {
        text += c == '\n' ? "\r\n" : std::string(1, c);
    }
    EXPECT_EQ(total_of(text), total_of(llama_with("")));
}

TEST(HfConfig, PythonInfinityIsNoReasonToRefuseAFile) {
    EXPECT_EQ(total_of(llama_with(R"("time_step_limit": [0.0, Infinity], "x": -Infinity,
                                     "say": "NaN \" Infinity", "y": NaN, )")),
              total_of(llama_with("")));
}

TEST(HfConfig, OldAndNewNamesOfDtypeAndRopeAreRead) {
    EXPECT_EQ(import(llama_with(R"("torch_dtype": "float16", )")).checkpoint_dtype, "float16");
    EXPECT_EQ(import(llama_with(R"("dtype": "bfloat16", )")).checkpoint_dtype, "bfloat16");
    const ImportedModel half = import(
        llama_with(R"("rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}, )"));
    EXPECT_EQ(half.model.block_kinds[0].attention.rope_dim, 8);
    EXPECT_TRUE(half.model.unknown_keys.empty());
    const ImportedModel scaled = import(llama_with(
        R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, )"));
    EXPECT_TRUE(scaled.model.unknown_keys.empty());
}

TEST(HfConfig, LayerTypesDecideWhichLayersSlide) {
    const ImportedModel model = import(R"({"model_type": "gemma3_text", "hidden_size": 64,
        "num_hidden_layers": 3, "intermediate_size": 128, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 1000, "sliding_window": 512,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"]})");
    ASSERT_EQ(model.model.parts[0].runs.size(), 3U);
    EXPECT_EQ(model.model.block_kinds[0].attention.window, 0);
    EXPECT_EQ(model.model.block_kinds[1].attention.window, 512);
    EXPECT_EQ(model.model.block_kinds[1].name, "sliding-dense");
}

TEST(HfConfig, DoublyNestedOmniModelsAreFoundAndOtherPartsHeld) {
    const ImportedModel model = import(R"({"model_type": "qwen2_5_omni",
        "thinker_config": {"model_type": "qwen2_5_omni_thinker",
            "audio_config": {"d_model": 1280},
            "text_config": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
                "max_position_embeddings": 32768, "tie_word_embeddings": false}},
        "talker_config": {"hidden_size": 896}})");
    const ModelReport report = report_model(model);
    // Two blocks of q, k, v with bias, o, three ffn matrices, two norms; tables; the last norm.
    const std::int64_t block = 64 * (64 + 32 + 32) + 128 + 64 * 64 + 3 * 64 * 128 + 2 * 64;
    EXPECT_EQ(report.text_params, 2 * block + 2 * 1000 * 64 + 64);
    EXPECT_EQ(model.model.family, "qwen2");
    EXPECT_TRUE(assumes(model, "model.thinker_config.text_config.model_type", "qwen2"));
    ASSERT_EQ(model.model.parts.size(), 3U);
    EXPECT_TRUE(assumes(model, "model.thinker_config.audio_config", "0 parameters counted"));
    EXPECT_TRUE(assumes(model, "model.talker_config", "0 parameters counted"));
}

TEST(HfConfig, TyingIsReadFromTheOuterObjectOfANestedConfig) {
    const std::string inner = R"("text_config": {"model_type": "llama", "hidden_size": 64,
        "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
        "vocab_size": 1000}})";
    EXPECT_TRUE(import(R"({"model_type": "llava", "tie_word_embeddings": true, )" + inner)
                    .model.embedding.tied);
    EXPECT_FALSE(import(R"({"model_type": "llava", )" + inner).model.embedding.tied);
}

TEST(HfConfig, CustomCodeIsReadByItsKeysAndSaysSo) {
    const std::string glm = R"("auto_map": {"AutoConfig": "other/repo--configuration_x.XConfig"},
        "num_layers": 40, "hidden_size": 4096, "ffn_hidden_size": 13696, "kv_channels": 128,
        "num_attention_heads": 32, "multi_query_attention": true, "multi_query_group_num": 2,
        "padded_vocab_size": 151552, "seq_length": 8192, "add_qkv_bias": true,
        "add_bias_linear": false})";
    constexpr std::int64_t glm_4_9b = 9399951360;
    EXPECT_EQ(total_of(R"({"model_type": "chatglm", )" + glm), glm_4_9b);
    const ImportedModel unknown = import(R"({"model_type": "never-heard-of", )" + glm);
    EXPECT_EQ(sim::count_parameters(unknown.model).total, glm_4_9b);
    EXPECT_TRUE(assumes(unknown, "model.family", "llama-like"));
    EXPECT_TRUE(assumes(unknown, "model.auto_map", "not run"));
}

TEST(HfConfig, UnknownKeysAreListed) {
    const ImportedModel model = import(llama_with(R"("hyper_width": 3, "use_cache": true, )"));
    ASSERT_EQ(model.model.unknown_keys.size(), 1U);
    EXPECT_EQ(model.model.unknown_keys[0], "hyper_width");
}

TEST(HfConfig, QuantizedCheckpointsAreCountedAsTrainedAndSaySo) {
    const ImportedModel model =
        import(llama_with(R"("quantization_config": {"quant_method": "awq", "bits": 4}, )"));
    EXPECT_EQ(model.quantization, "awq");
    EXPECT_EQ(sim::count_parameters(model.model).total, total_of(llama_with("")));
    EXPECT_TRUE(assumes(model, "model.quantization_config", "awq"));
}

TEST(HfConfig, PatternLettersChooseWhatALayerIs) {
    const ImportedModel model = import(R"({"model_type": "nemotron_h", "hidden_size": 64,
        "hybrid_override_pattern": "M*-E", "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 128, "vocab_size": 1000, "mamba_num_heads": 4,
        "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 48, "tie_word_embeddings": false})");
    const auto& kinds = model.model.block_kinds;
    ASSERT_EQ(kinds.size(), 4U);
    EXPECT_EQ(kinds[0].attention.kind, sim::AttentionKind::ssm);
    // Inner width 128, convolution over 128 + 2 x 2 x 16 channels of 4 taps and a bias.
    EXPECT_EQ(kinds[0].attention.opaque_parameters,
              64 * (128 + 192 + 4) + 192 * 5 + 3 * 4 + 128 + 128 * 64);
    EXPECT_EQ(kinds[0].ffn.kind, sim::FfnKind::none);
    EXPECT_EQ(kinds[1].attention.kind, sim::AttentionKind::gqa);
    EXPECT_EQ(kinds[2].attention.kind, sim::AttentionKind::none);
    EXPECT_EQ(kinds[2].ffn.width, 128);
    EXPECT_EQ(kinds[3].ffn.experts, 8);
    EXPECT_EQ(kinds[3].ffn.shared_width, 48);
    EXPECT_EQ(report_model(model).moe_layers, 1);
}

TEST(HfConfig, UnknownPatternLettersAreRefusedByName) {
    const sim::Error error = error_of(R"({"model_type": "nemotron_h", "hidden_size": 64,
        "hybrid_override_pattern": "M*Q"})");
    EXPECT_EQ(error.code, sim::ErrorCode::unsupported);
    EXPECT_NE(error.what.find("layer 2 is 'Q'"), std::string::npos);
}

TEST(HfConfig, AnUnknownHybridIsRefusedByTheKeyThatGivesItAway) {
    const sim::Error error = error_of(R"({"model_type": "never-heard-of", "hidden_size": 64,
        "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
        "vocab_size": 1000, "ssm_state_size": 16})");
    EXPECT_EQ(error.code, sim::ErrorCode::unsupported);
    EXPECT_EQ(error.where, "test.json: /ssm_state_size");
}

TEST(HfConfig, MissingFieldsAreListedTogether) {
    const sim::Error error = error_of(R"({"model_type": "never-heard-of", "hidden_size": 64})");
    EXPECT_NE(
        error.what.find("intermediate_size, num_hidden_layers, num_attention_heads, vocab_size"),
        std::string::npos)
        << error.what;
}

TEST(HfConfig, EncoderDecodersAreRefusedByName) {
    EXPECT_EQ(error_of(R"({"model_type": "t5", "d_model": 512})").code,
              sim::ErrorCode::unsupported);
    EXPECT_EQ(error_of(llama_with(R"("is_encoder_decoder": true, )")).code,
              sim::ErrorCode::unsupported);
}

TEST(HfConfig, BadValuesAreRefusedWhereTheyStand) {
    const auto hidden = [](const std::string& value) {
        return error_of(R"({"model_type": "llama", "hidden_size": )" + value + "}");
    };
    for (const std::string value : {"\"4096\"", "-1", "0", "4096.5", "1e300", "[4096]", "{}",
                                    "true", "9223372036854775807"}) {
        const sim::Error error = hidden(value);
        EXPECT_EQ(error.code, sim::ErrorCode::bad_input) << value;
        EXPECT_EQ(error.where, "test.json: /hidden_size") << value;
        EXPECT_FALSE(error.hint.empty()) << value;
    }
}

TEST(HfConfig, FilesThatAreNoModelConfigAreRefused) {
    for (const std::string text : {"", "{", "[]", "{}", "null", "7", R"({"model_type": "llama"})",
                                   R"({"model_type": 7})", R"({"text_config": {}})"}) {
        EXPECT_FALSE(import_hf_config(text, "test.json")) << text;
    }
}

TEST(HfConfig, ListsMustMatchTheNumberOfLayers) {
    const sim::Error error = error_of(R"({"model_type": "gpt_oss", "hidden_size": 2880,
        "num_hidden_layers": 4, "layer_types": ["full_attention"]})");
    EXPECT_EQ(error.where, "test.json: /layer_types");
    EXPECT_EQ(error_of(R"({"model_type": "nemotron-nas", "hidden_size": 64,
        "num_attention_heads": 4, "num_hidden_layers": 4, "block_configs": []})")
                  .where,
              "test.json: /block_configs");
}

TEST(HfConfig, AHeadSizeThatCannotBeDerivedMustBeStated) {
    const sim::Error error = error_of(R"({"model_type": "llama", "hidden_size": 3072,
        "num_attention_heads": 40})");
    EXPECT_EQ(error.where, "test.json: /head_dim");
}

struct Sized {
    std::string config;
    std::int64_t total;
};

/// Families without a row in models.jsonl. The totals stand in public files of others: printed
/// counts of loaders, hub metadata, presets. The one of cohere2 is that of a cohere model of equal
/// shape.
TEST(HfConfig, FurtherFamiliesMatchTheTotalsOthersCounted) {
    const Sized models[] = {
        {R"({"model_type":"phi","hidden_size":2560,"num_hidden_layers":32,"vocab_size":51200,
             "intermediate_size":10240,"num_attention_heads":32})",
         2779683840},
        {R"({"model_type":"gptj","n_embd":4096,"n_layer":28,"n_head":16,"vocab_size":50400,
             "rotary_dim":64})",
         6050882784},
        {R"({"model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":24,
             "num_local_experts":32,"num_experts_per_tok":4})",
         20914757184},
        {R"({"model_type":"mamba","hidden_size":2560,"num_hidden_layers":64,"state_size":16,
             "vocab_size":50280})",
         2768345600},
        {R"({"model_type":"gpt_bigcode","n_embd":6144,"n_layer":40,"n_head":48,"n_inner":24576,
             "n_positions":8192,"vocab_size":49152})",
         15517456384},
        {R"({"model_type":"cohere2","hidden_size":4096,"num_hidden_layers":32,
             "intermediate_size":14336,"num_attention_heads":32,"num_key_value_heads":8})",
         8028033024},
        {R"({"model_type":"olmo","hidden_size":4096,"num_hidden_layers":32})", 6888095744},
        {R"({"model_type":"olmoe","hidden_size":2048,"intermediate_size":1024})", 6919161856},
        {R"({"model_type":"internlm2","hidden_size":4096,"intermediate_size":14336,
             "num_key_value_heads":8,"vocab_size":92544,"bias":false})",
         7737708544},
        {R"({"model_type":"qwen","hidden_size":4096,"intermediate_size":22016})", 7721324544},
        {R"({"model_type":"gpt_neo","hidden_size":2560,"num_layers":32,"num_heads":20})",
         2651307520},
        {R"({"model_type":"qwen2_moe","hidden_size":2048})", 14315784192},
        {R"({"model_type":"gemma","hidden_size":3072})", 8537680896},
        {R"({"model_type":"kimi_k2","num_attention_heads":64,"vocab_size":163840,
             "n_routed_experts":384,"first_k_dense_replace":1})",
         1026408232448},
        {R"({"model_type":"qwen3_next","hidden_size":2048,"intermediate_size":5120})", 79674391296},
    };
    for (const Sized& model : models) {
        EXPECT_EQ(total_of(model.config), model.total) << model.config;
    }
}

/// No independent exact count was found for these: the totals pin what the rules of the family
/// give.
TEST(HfConfig, FamiliesWithoutAnIndependentCountKeepTheirRules) {
    const Sized models[] = {
        {R"({"model_type":"phimoe","hidden_size":4096,"num_hidden_layers":32,"vocab_size":32064,
             "intermediate_size":6400,"num_attention_heads":32,"num_key_value_heads":8,
             "num_local_experts":16,"num_experts_per_tok":2,"attention_bias":true,
             "lm_head_bias":true})",
         41873153344},
        {R"({"model_type":"dbrx","d_model":6144,"n_layers":40,"n_heads":48,"vocab_size":100352,
             "attn_config":{"kv_n_heads":8},"ffn_config":{"ffn_hidden_size":10752,
             "moe_num_experts":16,"moe_top_k":4}})",
         131596523520},
        {R"({"model_type":"jamba","hidden_size":4096,"num_hidden_layers":32})", 51570323328},
        {R"({"model_type":"starcoder2","hidden_size":3072,"num_hidden_layers":30,
             "intermediate_size":12288,"num_attention_heads":24})",
         3030371328},
        {R"({"model_type":"stablelm","hidden_size":2560,"num_hidden_layers":32})", 2795443200},
        {R"({"model_type":"cohere","hidden_size":12288,"num_hidden_layers":64,
             "intermediate_size":33792,"num_attention_heads":96,"num_key_value_heads":8,
             "use_qk_norm":true})",
         103810674688},
        {R"({"model_type":"baichuan","hidden_size":5120,"num_hidden_layers":40,"vocab_size":64000,
             "intermediate_size":13696,"num_attention_heads":40})",
         13264901120},
        {R"({"model_type":"RefinedWeb","hidden_size":8192,"n_layer":60,"n_head":128,
             "n_head_kv":8,"bias":false})",
         41303293952},
    };
    for (const Sized& model : models) {
        EXPECT_EQ(total_of(model.config), model.total) << model.config;
    }
}

/// The towers and projectors of multimodal models, against whole totals in public files of others.
TEST(HfConfig, VisionTowersAndProjectorsMatchTheTotalsOthersCounted) {
    EXPECT_EQ(total_of(R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text",
        "hidden_size":5376,"num_hidden_layers":62,"intermediate_size":21504,
        "num_attention_heads":32,"num_key_value_heads":16,"head_dim":128},
        "vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,
        "model_type":"siglip_vision_model","num_attention_heads":16,"num_hidden_layers":27,
        "patch_size":14,"vision_use_head":false}})"),
              27432406640);
    EXPECT_EQ(total_of(R"({"model_type":"llava","text_config":{"model_type":"llama",
        "vocab_size":32064},"vision_config":{"hidden_size":1024,"image_size":336,
        "intermediate_size":4096,"model_type":"clip_vision_model","num_attention_heads":16,
        "num_hidden_layers":24,"patch_size":14}})"),
              7063427072);
    EXPECT_EQ(total_of(R"({"model_type":"mistral3","text_config":{"model_type":"mistral",
        "hidden_size":5120,"num_hidden_layers":40,"intermediate_size":32768,
        "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":131072,
        "sliding_window":null},"vision_config":{"model_type":"pixtral","hidden_size":1024,
        "intermediate_size":4096,"num_hidden_layers":24,"num_attention_heads":16,
        "image_size":1540,"patch_size":14}})"),
              24011361280);
}

} // namespace
} // namespace shardplan::plan
