#pragma once

#include <array>

#include "planner/import/hf_family.hpp"

/// Words the rows of the family table share.
namespace shardplan::plan::hf {

using sim::Activation;
using sim::NormKind;
using sim::Positions;
using sim::QkNorm;

inline constexpr FlagRule yes{"", true};
inline constexpr FlagRule attention_bias{"attention_bias", false};
inline constexpr FlagRule mlp_bias{"mlp_bias", false};
inline constexpr FlagRule tied{"tie_word_embeddings", true};
inline constexpr FlagRule untied{"tie_word_embeddings", false};
/// kv_heads of a class that knows no such key: one key-value head per query head.
inline constexpr std::int64_t mha = -1;
/// ffn of a class that takes four times the hidden width.
inline constexpr std::int64_t four_times = -4;

inline constexpr SizeKeys d_model_keys{
    .hidden = "d_model|hidden_size|n_embd",
    .ffn = "ffn_config.ffn_hidden_size|ffn_hidden_size",
    .layers = "n_layers|num_hidden_layers|n_layer",
    .heads = "n_heads|num_attention_heads|n_head",
    .kv_heads = "attn_config.kv_n_heads|num_key_value_heads",
    .positions = "max_seq_len|max_position_embeddings",
};

std::span<const Family> dense_families();
std::span<const Family> moe_families();
std::span<const Family> hybrid_families();

} // namespace shardplan::plan::hf
