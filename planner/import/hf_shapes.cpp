// Shapes that are read by their keys: latent attention, layer-wise search results, and models of
// unknown type.

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/import/hf_family.hpp"

namespace shardplan::plan::hf {

using sim::AttentionKind;
using sim::FfnKind;

/// DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437), Kimi-K2. Defaults are those of
/// DeepseekV2Config and DeepseekV3Config in transformers, which agree.
void adjust_latent_attention(Reader& reader, const Family& /*family*/, Draft& draft) {
    sim::Attention& a = draft.block.attention;
    a.kind = AttentionKind::mla;
    a.kv_heads = a.heads;
    a.kv_rank = reader.size("kv_lora_rank", 512);
    const bool plain_query = reader.object().find("q_lora_rank").has_value() &&
                             !reader.has("q_lora_rank"); // written as null
    a.q_rank = plain_query ? 0 : reader.size("q_lora_rank", 1536);
    a.rope_dim = reader.size("qk_rope_head_dim", 64);
    a.qk_head_dim = reader.size("qk_nope_head_dim", 128) + a.rope_dim;
    a.v_head_dim = reader.size("v_head_dim", 128);
    if (reader.text("topk_method") == "noaux_tc") {
        draft.moe.router_correction = draft.moe.kind == FfnKind::moe;
    }
}

namespace {

/// Source: _ffn_mult_to_intermediate_size in the modeling file published with the model.
std::int64_t searched_ffn_width(double ffn_mult, std::int64_t hidden) {
    constexpr std::int64_t multiple = 256;
    const auto width =
        static_cast<std::int64_t>(2.0 * ffn_mult * static_cast<double>(hidden) / 3.0);
    return (width + multiple - 1) / multiple * multiple;
}

void read_searched_attention(Reader& block, std::int64_t hidden, sim::BlockKind& kind) {
    sim::Attention& a = kind.attention;
    if (block.flag("attention.no_op", false, "")) {
        a = sim::Attention{};
        a.kind = AttentionKind::none;
        kind.norms.pre_attention = false;
    } else if (block.flag("attention.replace_with_linear", false, "")) {
        a = sim::Attention{};
        a.kind = AttentionKind::linear;
        a.opaque_parameters = std::min(hidden, std::int64_t{1} << 30);
        a.opaque_parameters *= a.opaque_parameters;
    } else if (const auto kv_heads = block.size_if("attention.num_key_value_heads")) {
        a.kv_heads = *kv_heads;
    } else {
        const std::int64_t group = block.size("attention.n_heads_in_group", no_default);
        if (a.heads % group != 0) {
            block.fail(
                "attention.n_heads_in_group",
                std::to_string(group) + " does not divide " + std::to_string(a.heads) + " heads",
                "a divisor of num_attention_heads");
            return;
        }
        a.kv_heads = a.heads / group;
        a.window = block.size_if("attention.window_length", 0).value_or(0);
    }
    if (a.kind == AttentionKind::mha && a.kv_heads != a.heads) {
        a.kind = AttentionKind::gqa;
    }
}

void read_searched_ffn(Reader& block, std::int64_t hidden, sim::BlockKind& kind) {
    sim::Ffn& f = kind.ffn;
    if (block.flag("ffn.no_op", false, "")) {
        f = sim::Ffn{};
        f.kind = FfnKind::none;
        kind.norms.pre_ffn = false;
    } else if (block.flag("ffn.replace_with_linear", false, "")) {
        f = sim::Ffn{};
        f.kind = FfnKind::linear;
    } else if (const auto width = block.size_if("ffn.intermediate_size")) {
        f.width = *width;
    } else if (block.has("ffn.ffn_mult")) {
        f.width = searched_ffn_width(block.real("ffn.ffn_mult", 1.0, 1e-6, 1e6), hidden);
    } else {
        block.size("ffn.ffn_mult", no_default);
    }
}

/// The older form: ordinary layers that differ in their key-value heads only.
bool read_heads_per_layer(Reader& reader, Draft& draft) {
    const auto kv_heads = reader.integers("num_key_value_heads_per_layer");
    if (!kv_heads) {
        return false;
    }
    draft.layers_done = true;
    draft.block.ffn.width = reader.size("intermediate_size", no_default);
    if (static_cast<std::int64_t>(kv_heads->size()) != draft.layers) {
        reader.fail("num_key_value_heads_per_layer",
                    "has " + std::to_string(kv_heads->size()) + " entries for " +
                        std::to_string(draft.layers) + " layers",
                    "one entry per layer");
        return true;
    }
    for (const std::int64_t n : *kv_heads) {
        sim::BlockKind kind = draft.block;
        kind.attention.kv_heads = n;
        kind.attention.kind = n == kind.attention.heads ? AttentionKind::mha : AttentionKind::gqa;
        draft.add_layer(kind);
    }
    return true;
}

} // namespace

/// Models found by architecture search (nemotron-nas, DeciLM): one entry of block_configs a layer.
void adjust_block_configs(Reader& reader, const Family& /*family*/, Draft& draft) {
    if (read_heads_per_layer(reader, draft)) {
        return;
    }
    const auto configs = reader.find("block_configs");
    if (!configs) {
        reader.findings().missing.push_back(reader.prefix() + "block_configs");
        return;
    }
    draft.layers_done = true;
    if (!configs->is_array() || static_cast<std::int64_t>(configs->size()) != draft.layers) {
        reader.fail("block_configs",
                    "must be a list with one entry for each of the " +
                        std::to_string(draft.layers) + " layers, and has " +
                        std::to_string(configs->size()),
                    "make num_hidden_layers and block_configs agree");
        return;
    }
    for (std::size_t i = 0; i < configs->size(); ++i) {
        const std::string prefix = reader.prefix() + "block_configs." + std::to_string(i) + ".";
        Reader block(configs->at(i), prefix, "the block", reader.findings());
        sim::BlockKind kind = draft.block;
        read_searched_attention(block, draft.trunk.hidden, kind);
        read_searched_ffn(block, draft.trunk.hidden, kind);
        if (reader.findings().error || !reader.findings().missing.empty()) {
            return;
        }
        draft.add_layer(kind);
    }
    reader.findings().assume(reader.prefix() + "block_configs.ffn.ffn_mult",
                             "width = 2/3 ffn_mult hidden", "modeling code of DeciLM",
                             "rounded down to a whole number, then up to a multiple of 256");
}

namespace {

/// Keys of forms a llama-like reading would get wrong. Better no count than a wrong one.
constexpr std::string_view telling_keys[] = {
    "hybrid_override_pattern", "layers_block_type",  "attn_type_list",    "mamba_num_heads",
    "mamba_d_state",           "ssm_state_size",     "ssm_cfg",           "state_size",
    "linear_num_value_heads",  "linear_attn_config", "attn_layer_period", "block_types",
    "cross_attention_layers",  "block_configs",      "lru_width"};

void read_generic_moe(Reader& reader, Draft& draft) {
    sim::Ffn& moe = draft.moe;
    if (moe.kind != FfnKind::moe) {
        return;
    }
    if (const auto width = reader.size_if("moe_intermediate_size|expert_intermediate_size|"
                                          "moe_ffn_hidden_size|expert_ffn_hidden_size")) {
        moe.expert_width = *width;
    }
    if (const auto width = reader.size_if(
            "shared_expert_intermediate_size|moe_shared_expert_intermediate_size", 0)) {
        moe.shared_width = *width;
    } else {
        const std::int64_t shared =
            reader.size_if("n_shared_experts|num_shared_experts|moe_num_shared_experts", 0)
                .value_or(0);
        moe.shared_width = std::min<std::int64_t>(shared, 65536) * moe.expert_width;
    }
}

} // namespace

void adjust_generic(Reader& reader, const Family& family, Draft& draft) {
    for (const std::string_view key : telling_keys) {
        if (reader.has(key)) {
            reader.unsupported(key,
                               "a model of unknown model_type has this key, so its layers are not "
                               "all attention and ffn",
                               "describe the model in a Shardplan model file (block_kinds, parts)");
            return;
        }
    }
    if (reader.has("kv_lora_rank")) {
        adjust_latent_attention(reader, family, draft);
    }
    sim::Attention& a = draft.block.attention;
    if (reader.has("multi_query_group_num|add_bias_linear|add_qkv_bias")) {
        if (reader.flag("multi_query_attention", true, "")) {
            a.kv_heads = reader.size_if("multi_query_group_num").value_or(a.kv_heads);
        } else {
            a.kv_heads = a.heads;
        }
        const bool linear_bias = reader.flag("add_bias_linear", false, "biases everywhere");
        a.qkv_bias = linear_bias || reader.flag("add_qkv_bias", a.qkv_bias, "");
        a.out_bias = linear_bias;
        draft.block.ffn.bias = linear_bias;
    }
    if (reader.flag("use_qk_norm|qk_norm", false, "")) {
        a.qk_norm = sim::QkNorm::per_head;
    }
    read_generic_moe(reader, draft);
}

} // namespace shardplan::plan::hf
