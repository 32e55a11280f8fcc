// What no column of the family table can say.

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/import/hf_family.hpp"

namespace shardplan::plan::hf {

using sim::Positions;

namespace {

void side_by_side(sim::Norms& norms, bool parallel, bool two_norms) {
    norms.parallel = parallel;
    norms.pre_ffn = !parallel || two_norms;
}

void set_positions(Draft& draft, Positions positions) {
    draft.model.embedding.positions = positions;
    draft.model.embedding.position_rows =
        positions == Positions::learned ? draft.model.max_positions : 0;
    if (positions != Positions::rope) {
        draft.block.attention.rope_dim = 0;
    }
}

void set_norm_bias(Draft& draft, bool bias) {
    draft.block.norms.bias = bias;
    draft.trunk.norm_bias = bias;
}

} // namespace

/// Falcon-7B (multi-query, one norm), 40B and 180B (grouped, two norms), RW (plain blocks, biases).
void adjust_falcon(Reader& reader, const Family& family, Draft& draft) {
    // The first 40B files (model_type RefinedWeb) have grouped heads and no key that says so.
    const bool grouped = reader.flag("new_decoder_architecture", family.class_name == "RWConfig",
                                     "grouped key-value heads");
    sim::Attention& a = draft.block.attention;
    if (grouped) {
        a.kv_heads = reader.size_if("num_kv_heads|n_head_kv").value_or(a.heads);
    } else {
        a.kv_heads = reader.flag("multi_query", true, "one key-value head") ? 1 : a.heads;
    }
    const bool parallel =
        reader.flag("parallel_attn|parallel_attention", true, "attention and ffn side by side");
    const std::int64_t norms = reader.size_if("num_ln_in_parallel_attn").value_or(grouped ? 2 : 1);
    side_by_side(draft.block.norms, parallel, norms == 2);
    if (reader.flag("alibi", false, "")) {
        set_positions(draft, Positions::alibi);
    }
}

/// MPT: one switch for all biases; positions and key-value heads in attn_config.
void adjust_mpt(Reader& reader, const Family& /*family*/, Draft& draft) {
    sim::Attention& a = draft.block.attention;
    const bool bias = !reader.flag("no_bias", true, "no biases anywhere, norms included");
    a.qkv_bias = bias;
    a.out_bias = bias;
    draft.block.ffn.bias = bias;
    set_norm_bias(draft, bias);
    const double ratio = reader.real("expansion_ratio", 4.0, 0.0, 1024.0);
    draft.block.ffn.width = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(ratio * static_cast<double>(draft.trunk.hidden)));
    const std::string form = reader.text("attn_config.attn_type");
    if (form == "multiquery_attention") {
        a.kv_heads = 1;
    } else if (form == "grouped_query_attention") {
        a.kv_heads = reader.size("attn_config.kv_n_heads", no_default);
    }
    if (reader.text("norm_type").find("rms") != std::string::npos) {
        draft.block.norms.kind = sim::NormKind::rmsnorm;
        draft.trunk.norm_kind = sim::NormKind::rmsnorm;
        set_norm_bias(draft, false);
    }
    if (reader.flag("attn_config.qk_ln", false, "")) {
        a.qk_norm = sim::QkNorm::full_projection;
        a.opaque_parameters =
            draft.block.norms.bias ? (a.heads + a.kv_heads) * a.qk_head_dim : 0; // their shifts
    }
    // The class drops the learned table where ALiBi or rotary positions are on.
    if (reader.flag("attn_config.alibi", true, "positions")) {
        set_positions(draft, Positions::alibi);
    } else if (reader.flag("attn_config.rope", false, "")) {
        set_positions(draft, Positions::rope);
        a.rope_dim = a.qk_head_dim / 2 * 2;
    } else if (reader.flag("learned_pos_emb", true, "a table of learned positions")) {
        set_positions(draft, Positions::learned);
    } else {
        set_positions(draft, Positions::none);
    }
}

/// OPT: two spare position rows; the 350M model norms after each half and narrows its tables.
void adjust_opt(Reader& reader, const Family& /*family*/, Draft& draft) {
    const bool bias = reader.flag("enable_bias", true, "");
    draft.block.attention.qkv_bias = bias;
    draft.block.attention.out_bias = bias;
    draft.block.ffn.bias = bias;
    constexpr std::int64_t spare_rows = 2;
    draft.model.embedding.position_rows = draft.model.max_positions + spare_rows;
    const std::int64_t width = reader.size_if("word_embed_proj_dim").value_or(draft.trunk.hidden);
    draft.model.embedding.projection_width = width == draft.trunk.hidden ? 0 : width;
    const bool before = reader.flag("do_layer_norm_before", true, "norms before each half");
    sim::Norms& norms = draft.block.norms;
    norms.pre_attention = norms.pre_ffn = before;
    norms.post_attention = norms.post_ffn = !before;
    draft.trunk.final_norm = before && !reader.flag("_remove_final_layer_norm", false, "");
    const bool affine = reader.flag("layer_norm_elementwise_affine", true, "");
    norms.affine = affine;
    draft.trunk.norm_affine = affine;
}

void adjust_bloom(Reader& /*reader*/, const Family& /*family*/, Draft& draft) {
    draft.model.embedding.norm = true;
}

/// GPT-BigCode: one key-value head unless multi_query is off.
void adjust_multi_query(Reader& reader, const Family& /*family*/, Draft& draft) {
    if (reader.flag("multi_query", true, "one key-value head")) {
        draft.block.attention.kv_heads = 1;
    }
}

/// GPT-NeoX and StableLM choose by a key whether attention and ffn stand side by side.
void adjust_parallel_choice(Reader& reader, const Family& family, Draft& draft) {
    const bool two = family.norm_shape == NormShape::parallel_two;
    const bool parallel = reader.flag("use_parallel_residual", two, "");
    side_by_side(draft.block.norms, parallel, two);
}

/// A bias on the output table: always (GPT-J, Phi), or by key (Phi-MoE).
void adjust_head_bias(Reader& reader, const Family& family, Draft& draft) {
    draft.model.embedding.head_bias =
        family.moe == nullptr || reader.flag("lm_head_bias", false, "bias on the output table");
    sim::Attention& a = draft.block.attention;
    if (a.qk_norm == sim::QkNorm::per_head) {
        a.opaque_parameters = 2 * a.qk_head_dim; // Phi norms queries and keys with a shift
    }
}

/// Llama 4: dense layers have a width of their own; routed and shared experts share the other.
void adjust_llama4(Reader& reader, const Family& /*family*/, Draft& draft) {
    constexpr std::int64_t class_default = 16384;
    draft.block.ffn.width = reader.size("intermediate_size_mlp", class_default);
}

/// ChatGLM and GLM-4 as published with their own code.
void adjust_chatglm(Reader& reader, const Family& /*family*/, Draft& draft) {
    sim::Attention& a = draft.block.attention;
    // A file that states the number of groups means them, although the class default is off.
    const bool groups_stated = reader.has("multi_query_group_num");
    if (reader.flag(
            "multi_query_attention", groups_stated,
            groups_stated ? "multi_query_group_num is stated" : "one key-value head a head")) {
        a.kv_heads = reader.size("multi_query_group_num", 1);
    }
    const bool linear_bias = reader.flag("add_bias_linear", false, "biases everywhere");
    a.qkv_bias = linear_bias || reader.flag("add_qkv_bias", false, "biases on q, k and v");
    a.out_bias = linear_bias;
    draft.block.ffn.bias = linear_bias;
    if (!reader.flag("rmsnorm", true, "")) {
        draft.block.norms.kind = sim::NormKind::layernorm;
        draft.trunk.norm_kind = sim::NormKind::layernorm;
        set_norm_bias(draft, true);
    }
    draft.trunk.final_norm = reader.flag("post_layer_norm", true, "");
}

/// Qwen 1: intermediate_size counts both halves of the gated ffn.
void adjust_qwen1(Reader& /*reader*/, const Family& /*family*/, Draft& draft) {
    draft.block.ffn.width = std::max<std::int64_t>(1, draft.block.ffn.width / 2);
}

/// Baichuan: the 13B models use ALiBi, the 7B models rotary positions; no key says so.
void adjust_baichuan(Reader& reader, const Family& /*family*/, Draft& draft) {
    constexpr std::int64_t hidden_of_13b = 5120;
    if (draft.trunk.hidden == hidden_of_13b) {
        set_positions(draft, Positions::alibi);
        reader.findings().assume("position_embedding_type", "alibi", "published 13B models",
                                 "the file does not say; the counts do not change");
    }
}

} // namespace shardplan::plan::hf
