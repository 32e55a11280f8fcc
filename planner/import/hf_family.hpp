#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/import/hf_reader.hpp"
#include "simulator/spec/model.hpp"

/// The table that says how each family of configs is to be read. A new family is one row; only what
/// no column can say is a hook.
namespace shardplan::plan::hf {

/// Sizes a transformers class takes when the file leaves them out; no_default: none is known.
struct SizeDefaults {
    std::int64_t vocab = no_default;
    std::int64_t hidden = no_default;
    std::int64_t ffn = no_default; ///< -n: n times hidden
    std::int64_t layers = no_default;
    std::int64_t heads = no_default;
    std::int64_t kv_heads = 0; ///< 0: as many as heads; -1: the class knows no such key
    std::int64_t head_dim = 0; ///< 0: hidden / heads
    std::int64_t positions = no_default;
};

/// How a family spells its sizes; the other spellings are accepted too.
struct SizeKeys {
    std::string_view hidden = "hidden_size|n_embd|d_model|n_embed";
    std::string_view ffn = "intermediate_size|ffn_hidden_size|n_inner|ffn_dim";
    std::string_view layers = "num_hidden_layers|n_layer|n_layers|num_layers";
    std::string_view heads = "num_attention_heads|n_head|n_heads|num_heads";
    std::string_view kv_heads =
        "num_key_value_heads|num_kv_heads|n_head_kv|attn_config.kv_n_heads|multi_query_group_num";
    std::string_view head_dim = "head_dim|attention_head_dim|kv_channels";
    std::string_view vocab = "vocab_size|padded_vocab_size";
    std::string_view positions =
        "max_position_embeddings|n_positions|max_seq_len|seq_length|max_sequence_length|n_ctx";
};

/// A yes or no that a family fixes (`key` empty) or reads.
struct FlagRule {
    std::string_view key{};
    bool otherwise = false; ///< the fixed value, or the class default
};

/// Where the norms of a block stand.
enum class NormShape {
    before,       ///< before attention and before the ffn
    after,        ///< after each (OLMo 2)
    sandwich,     ///< before and after each (Gemma 2)
    parallel_one, ///< attention and ffn side by side behind one norm (GPT-J)
    parallel_two, ///< side by side behind a norm each (GPT-NeoX)
};

/// Which layers look back only a window when `layer_types` does not say.
enum class WindowRule {
    none,
    all,            ///< every layer, if sliding_window is a number
    even,           ///< layers 0, 2, 4, ...
    pattern,        ///< all but each sliding_window_pattern-th
    upper_if_asked, ///< from max_window_layers on, if use_sliding_window
    chunked,        ///< attention_chunk_size, all but each 4th (Llama 4)
};

/// Which layers are mixtures of experts.
enum class MoeLayers {
    all,
    sparse_step, ///< (i + 1) % decoder_sparse_step == 0 and not in mlp_only_layers
    after_first, ///< from first_k_dense_replace on, every moe_layer_freq-th
    interleaved, ///< moe_layers, or each interleave_moe_layer_step-th
};

enum class SharedExperts {
    none,
    width_key,  ///< `shared` is their inner width
    count_key,  ///< `shared` is their number, each as wide as a routed expert
    same_width, ///< one, as wide as a routed expert
};

/// The MoE keys of a family.
struct MoeRule {
    std::string_view experts{};
    std::int64_t experts_default = no_default;
    std::string_view top_k{};
    std::int64_t top_k_default = no_default;
    std::string_view width{}; ///< empty: the ffn width of the family
    std::int64_t width_default = no_default;
    MoeLayers layers = MoeLayers::all;
    SharedExperts shared_form = SharedExperts::none;
    std::string_view shared{};
    std::int64_t shared_default = 0;
    bool shared_gate = false;
    bool router_bias = false;
    bool router_correction = false;
    bool optional = false; ///< a file without experts is a dense model
};

/// A trunk while it is being read: the block most layers share, then the layers.
struct Draft {
    sim::ModelSpec model;
    sim::Part trunk;
    sim::BlockKind block; ///< attention, dense ffn and norms of an ordinary layer
    sim::Ffn moe;         ///< the ffn of MoE layers; kind none if there are none
    std::int64_t layers = 0;
    std::int64_t window = 0;  ///< of the layers that have one
    bool layers_done = false; ///< a hook has laid out the layers itself

    /// Appends a layer; equal blocks share a kind.
    void add_layer(const sim::BlockKind& kind);
};

struct Family;
using Hook = void (*)(Reader&, const Family&, Draft&);

/// One row of the table.
struct Family {
    std::string_view model_types; ///< "qwen2|qwen2_vl_text"
    std::string_view class_name;
    const SizeKeys* keys = nullptr; ///< nullptr: the usual ones
    SizeDefaults sizes{};
    FlagRule qkv_bias{};
    FlagRule out_bias{};
    FlagRule ffn_bias{};
    FlagRule tied{};
    bool gated = true;
    sim::Activation activation = sim::Activation::silu;
    sim::NormKind norm = sim::NormKind::rmsnorm;
    bool norm_bias = false;
    bool norm_affine = true;
    NormShape norm_shape = NormShape::before;
    sim::QkNorm qk_norm = sim::QkNorm::none;
    FlagRule qk_norm_when{"", true};
    sim::Positions positions = sim::Positions::rope;
    double rotary = 1.0; ///< rotated share of a head when the file does not say
    double dropout = 0.0;
    const MoeRule* moe = nullptr;
    WindowRule window = WindowRule::none;
    std::int64_t window_default = 0;
    std::int64_t window_pattern = 0;
    bool sinks = false;
    bool has_attention = true; ///< false: no layer needs heads (Mamba)
    bool has_ffn = true;
    Hook adjust = nullptr; ///< after the columns are read, before the layers are laid out
};

/// The row of a model_type, or nullptr.
const Family* find_family(std::string_view model_type);
/// The row for models of unknown type whose keys are those of a llama.
const Family& generic_family();
/// Why a model_type cannot be read at all; empty if nothing is known against it.
std::string_view refusal_of(std::string_view model_type);
/// Every model_type of the table, for hints.
std::vector<std::string> known_model_types();

/// Reads the trunk by the rules of a row. Findings hold what is missing or wrong.
void read_trunk(Reader& reader, const Family& family, Draft& draft);

// --- hooks ------------------------------------------------------------------------------------

void adjust_falcon(Reader& reader, const Family& family, Draft& draft);
void adjust_mpt(Reader& reader, const Family& family, Draft& draft);
void adjust_opt(Reader& reader, const Family& family, Draft& draft);
void adjust_bloom(Reader& reader, const Family& family, Draft& draft);
void adjust_multi_query(Reader& reader, const Family& family, Draft& draft);
void adjust_parallel_choice(Reader& reader, const Family& family, Draft& draft);
void adjust_head_bias(Reader& reader, const Family& family, Draft& draft);
void adjust_llama4(Reader& reader, const Family& family, Draft& draft);
void adjust_chatglm(Reader& reader, const Family& family, Draft& draft);
void adjust_qwen1(Reader& reader, const Family& family, Draft& draft);
void adjust_baichuan(Reader& reader, const Family& family, Draft& draft);
void adjust_latent_attention(Reader& reader, const Family& family, Draft& draft);
void adjust_block_configs(Reader& reader, const Family& family, Draft& draft);
void adjust_generic(Reader& reader, const Family& family, Draft& draft);
void read_nemotron_h(Reader& reader, const Family& family, Draft& draft);
void read_mamba(Reader& reader, const Family& family, Draft& draft);
void read_mamba2(Reader& reader, const Family& family, Draft& draft);
void read_granite_hybrid(Reader& reader, const Family& family, Draft& draft);
void read_jamba(Reader& reader, const Family& family, Draft& draft);
void read_qwen3_next(Reader& reader, const Family& family, Draft& draft);

} // namespace shardplan::plan::hf
