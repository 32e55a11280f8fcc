// Finding the row of a family, and what is refused or read without one.

#include <utility>

#include "planner/import/hf_rules.hpp"

namespace shardplan::plan::hf {

namespace {

constexpr MoeRule generic_moe{
    .experts = "num_experts|num_local_experts|n_routed_experts|moe_num_experts",
    .top_k = "num_experts_per_tok|num_experts_per_token|moe_top_k|moe_topk|moe_k|top_k_experts",
    .layers = MoeLayers::after_first,
    .optional = true};

constexpr Family generic_row{.model_types = "",
                             .class_name = "a llama-like model",
                             .sizes = {0, 0, 0, 0, 0, 0, 0, 0},
                             .qkv_bias = {"attention_bias|qkv_bias|use_qkv_bias", false},
                             .out_bias = {"attention_bias", false},
                             .ffn_bias = mlp_bias,
                             .tied = untied,
                             .moe = &generic_moe,
                             .window = WindowRule::upper_if_asked,
                             .adjust = adjust_generic};

/// Families whose blocks these types cannot hold, or whose counts we cannot vouch for.
constexpr std::pair<std::string_view, std::string_view> refusals[] = {
    {"t5|mt5|umt5|bart|mbart|pegasus|whisper|nllb|m2m_100|led|blenderbot",
     "is an encoder-decoder model"},
    {"bert|roberta|xlm-roberta|distilbert|albert|electra|deberta|deberta-v2|modernbert|vit|clip|"
     "siglip",
     "is an encoder, not a language model that generates"},
    {"gemma3n|gemma3n_text", "has alternating updates and per-layer embeddings"},
    {"rwkv|rwkv5|rwkv6|rwkv7", "has time-mixing layers"},
    {"recurrent_gemma|griffin", "has recurrent layers"},
    {"zamba|zamba2", "shares blocks between layers"},
    {"falcon_h1|hymba", "has attention and state-space heads in one block"},
    {"mllama|mllama_text_model", "has cross-attention layers with gates"},
    {"lfm2|lfm2_moe", "has short-convolution layers"},
    {"kimi_linear|minimax|minimax_m1|bailing_hybrid", "mixes linear attention layers"},
};

bool is_listed(std::string_view names, std::string_view name) {
    while (!names.empty()) {
        if (first_key(names) == name) {
            return true;
        }
        const std::size_t bar = names.find('|');
        names = bar == std::string_view::npos ? std::string_view{} : names.substr(bar + 1);
    }
    return false;
}

template <class F>
const Family* first_row(F&& matches) {
    const std::span<const Family> groups[] = {dense_families(), moe_families(), hybrid_families()};
    for (const std::span<const Family> rows : groups) {
        for (const Family& row : rows) {
            if (matches(row)) {
                return &row;
            }
        }
    }
    return nullptr;
}

} // namespace

const Family* find_family(std::string_view model_type) {
    return first_row([&](const Family& row) { return is_listed(row.model_types, model_type); });
}

const Family& generic_family() { return generic_row; }

std::string_view refusal_of(std::string_view model_type) {
    for (const auto& [names, reason] : refusals) {
        if (is_listed(names, model_type)) {
            return reason;
        }
    }
    return {};
}

std::vector<std::string> known_model_types() {
    std::vector<std::string> names;
    first_row([&](const Family& row) {
        std::string_view rest = row.model_types;
        while (!rest.empty()) {
            names.emplace_back(first_key(rest));
            const std::size_t bar = rest.find('|');
            rest = bar == std::string_view::npos ? std::string_view{} : rest.substr(bar + 1);
        }
        return false;
    });
    return names;
}

} // namespace shardplan::plan::hf
