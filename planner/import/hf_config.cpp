#include "planner/import/hf_config.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "planner/import/hf_family.hpp"
#include "planner/import/hf_multimodal.hpp"
#include "planner/import/hf_reader.hpp"
#include "simulator/spec/model_check.hpp"

namespace shardplan::plan {

namespace {

using hf::Draft;
using hf::Family;
using hf::Findings;
using hf::Reader;
using sim::AttentionKind;
using sim::FfnKind;

/// The text with what Python writes beyond JSON turned into null: NaN, Infinity, -Infinity. They
/// stand in published files (time_step_limit) at keys no count depends on.
std::string without_python_numbers(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    bool in_string = false;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        if (in_string) {
            const std::size_t step = c == '\\' && i + 1 < text.size() ? 2 : 1;
            out.append(text.substr(i, step));
            in_string = c != '"';
            i += step;
            continue;
        }
        constexpr std::array<std::string_view, 3> words = {"-Infinity", "Infinity", "NaN"};
        const auto word = std::find_if(words.begin(), words.end(), [&](std::string_view w) {
            return text.substr(i, w.size()) == w;
        });
        if (word != words.end()) {
            out += "null";
            i += word->size();
            continue;
        }
        in_string = c == '"';
        out += c;
        ++i;
    }
    return out;
}

/// Keys that decide no shape: nothing is said about them.
constexpr std::string_view silent_keys =
    "|architectures|auto_map|model_type|_name_or_path|name_or_path|transformers_version|torch_dtype"
    "|dtype|use_cache|return_dict|output_attentions|output_hidden_states|bos_token_id|eos_token_id"
    "|pad_token_id|sep_token_id|decoder_start_token_id|unk_token_id|cls_token_id|initializer_range"
    "|initializer_factor|initializer_std|init_std|init_method_std|rms_norm_eps|layer_norm_eps"
    "|layer_norm_epsilon|layernorm_epsilon|norm_eps|norm_epsilon|rope_theta|rope_scaling"
    "|rope_parameters|rope_local_base_freq|rotary_emb_base|rotary_base|rope_ratio|rope_mscale"
    "|rope_interleaved|rope_interleave|rope_pct|rope|original_max_position_embeddings|max_length"
    "|min_length|top_p|top_k|temperature|do_sample|num_beams|repetition_penalty|length_penalty"
    "|no_repeat_ngram_size|task_specific_params|id2label|label2id|num_labels|problem_type|chunk_"
    "size"
    "|pretraining_tp|attn_implementation|_attn_implementation|_flash_attn_2_enabled"
    "|use_flash_attn|use_flash_attn_2|flash_attn|use_dynamic_ntk|use_logn_attn|softmax_in_fp32"
    "|attention_softmax_in_fp32|scale_attention_softmax_in_fp32|scale_attn_weights"
    "|scale_attn_by_inverse_layer_idx|reorder_and_upcast_attn|summary_activation|summary_type"
    "|summary_first_dropout|summary_proj_to_labels|summary_use_proj|gradient_checkpointing"
    "|embd_pdrop|emb_pdrop|embedding_dropout|embed_dropout|classifier_dropout|layerdrop"
    "|activation_dropout|logits_soft_cap|final_logit_softcapping|attn_logit_softcapping"
    "|query_pre_attn_scalar|embedding_multiplier|logits_scaling|residual_multiplier"
    "|attention_multiplier|logit_scale|embedding_multiplier_scale|router_aux_loss_coef"
    "|output_router_logits|router_jitter_noise|input_jitter_noise|norm_topk_prob"
    "|routed_scaling_factor|scoring_func|topk_group|n_group|seq_aux|aux_loss_alpha|ep_size"
    "|topk_method|router_z_loss_coef|moe_router_use_sigmoid|quantization_config|vision_config"
    "|audio_config|text_config|llm_config|language_config|thinker_config|talker_config"
    "|token2wav_config|code2wav_config|image_token_index|image_token_id|video_token_id"
    "|audio_token_id|vision_start_token_id|vision_end_token_id|boi_token_index|eoi_token_index"
    "|mm_tokens_per_image|projector_hidden_act|vision_feature_layer|vision_feature_select_strategy"
    "|multimodal_projector_bias|image_seq_length|spatial_merge_size|is_decoder"
    "|is_encoder_decoder|add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder"
    "|attn_config|ffn_config|init_config|init_device|logit_scale|verbose|emb_init_std"
    "|use_pad_tok_in_ffn|apply_residual_connection_post_layernorm|bias_dropout_fusion"
    "|residual_in_fp32|rescale_prenorm_residual|slow_but_exact|skip_bias_add|skip_bias_add_qkv"
    "|unk_token_id|offset_alibi|masked_softmax_fusion|attention_probs_dropout_prob"
    "|hidden_dropout_prob|onnx_safe|fp16|bf16|fp32|tokenizer_class|prefix|sliding_window"
    "|max_window_layers|use_sliding_window|rope_type|swiglu_limit|experts_per_token|time_step_limit"
    "|time_step_min|time_step_max|time_step_floor|mamba_hidden_act|mamba_ssm_cache_dtype"
    "|mamba_chunk_size|use_mamba_kernels|num_logits_to_keep|cache_implementation|bias|alibi"
    "|no_rope_layers|no_rope_layer_interval|attn_scale|attn_temperature_tuning|floor_scale"
    "|for_llm_class|use_qk_norm|unsloth_version|unsloth_fixed|head_dim|n_ctx|num_key_value_heads|"
    "num_kv_heads|multi_query|comment|notes|";

bool is_silent(const std::string& key) {
    return silent_keys.find("|" + key + "|") != std::string_view::npos;
}

std::string stem_of(std::string_view source_name) {
    const std::size_t slash = source_name.find_last_of('/');
    std::string_view name =
        slash == std::string_view::npos ? source_name : source_name.substr(slash + 1);
    if (name.ends_with(".json")) {
        name.remove_suffix(5);
    }
    return std::string(name);
}

/// What tells one block kind from another, in words.
std::string kind_name(const sim::BlockKind& kind, bool windows, bool mixed_attention) {
    std::string name;
    const auto add = [&](std::string_view word) {
        name += (name.empty() ? "" : "-") + std::string(word);
    };
    if (kind.attention.kind == AttentionKind::ssm) {
        add("mamba");
    } else if (kind.attention.kind == AttentionKind::linear) {
        add("linear");
    } else if (kind.attention.kind != AttentionKind::none) {
        if (windows) {
            add(kind.attention.window > 0 ? "sliding" : "full");
        }
        if (mixed_attention || kind.ffn.kind == FfnKind::none) {
            add("attention");
        }
    }
    switch (kind.ffn.kind) {
        case FfnKind::dense:
            add(kind.attention.kind == AttentionKind::none ? "ffn" : "dense");
            break;
        case FfnKind::moe:
            add("moe");
            break;
        case FfnKind::linear:
            add("map");
            break;
        case FfnKind::none:
            break;
    }
    return name.empty() ? "empty" : name;
}

void name_kinds(sim::ModelSpec& model) {
    bool full = false;
    bool sliding = false;
    bool plain = false;
    bool opaque = false;
    for (const sim::BlockKind& kind : model.block_kinds) {
        const bool attends = kind.attention.kind == AttentionKind::mha ||
                             kind.attention.kind == AttentionKind::gqa ||
                             kind.attention.kind == AttentionKind::mla;
        plain = plain || attends;
        opaque = opaque || !attends;
        full = full || (attends && kind.attention.window == 0);
        sliding = sliding || (attends && kind.attention.window > 0);
    }
    std::map<std::string, int> uses;
    for (sim::BlockKind& kind : model.block_kinds) {
        kind.name = kind_name(kind, full && sliding, plain && opaque);
        const int n = ++uses[kind.name];
        if (n > 1) {
            kind.name += "-" + std::to_string(n);
        }
    }
}

/// Modules that predict further tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2): each joins two
/// normed vectors by one map and runs one block and a norm. Their copies of embedding and head are
/// the trunk's.
void add_prediction_modules(Reader& reader, Draft& draft) {
    constexpr std::int64_t most_modules = 1024;
    const std::int64_t n = std::min(
        most_modules, reader.size_if("num_nextn_predict_layers|num_mtp_layers", 0).value_or(0));
    if (n == 0 || draft.trunk.runs.empty()) {
        return;
    }
    const std::int64_t h = std::min(draft.trunk.hidden, std::int64_t{1} << 24);
    sim::Part mtp;
    mtp.name = "mtp";
    mtp.role = sim::PartRole::mtp;
    mtp.hidden = draft.trunk.hidden;
    mtp.runs = {{draft.trunk.runs.back().kind, n}};
    mtp.norm_kind = draft.trunk.norm_kind;
    mtp.norm_bias = draft.trunk.norm_bias;
    mtp.other_parameters = n * (2 * h * h + 2 * h) + (n - 1) * h;
    draft.model.parts.push_back(mtp);
}

void note_unknown_keys(const Reader& reader, sim::ModelSpec& model) {
    for (const std::string& key : reader.object().keys()) {
        const auto value = reader.object().find(key);
        if (!reader.used().contains(key) && !is_silent(key) && value && !value->is_null()) {
            model.unknown_keys.push_back(reader.prefix() + key);
        }
    }
}

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

sim::Error missing_fields(const Findings& findings, const std::string& type, bool generic) {
    const std::string why = generic
                                ? (type.empty() ? "the file has no model_type"
                                                : "model_type '" + type + "' is not known here") +
                                      std::string(", and reading it as a llama needs more fields: ")
                                : "no default of '" + type + "' is known for: ";
    return {sim::ErrorCode::bad_input, findings.source_name, why + joined(findings.missing),
            "add them, or describe the model in a Shardplan model file; known model_types: " +
                joined(hf::known_model_types())};
}

/// Whether any size stands in the text config: a file without one is not a model config.
bool has_any_size(Reader& reader) {
    return reader.has(
        "hidden_size|n_embd|d_model|n_embed|num_hidden_layers|n_layer|n_layers|"
        "num_layers|intermediate_size|num_attention_heads|n_head|vocab_size|"
        "hybrid_override_pattern");
}

void note_storage(const hf::TextPlace& place, Findings& findings, ImportedModel& out) {
    for (auto object = place.objects.rbegin(); object != place.objects.rend(); ++object) {
        Reader reader(*object, "", "", findings);
        if (out.checkpoint_dtype.empty()) {
            out.checkpoint_dtype = reader.text("dtype|torch_dtype");
        }
        if (out.quantization.empty() && reader.has("quantization_config")) {
            out.quantization = reader.text("quantization_config.quant_method");
            if (out.quantization.empty()) {
                out.quantization = "unnamed";
            }
            findings.assume(
                "quantization_config", out.quantization, "the file",
                "the checkpoint is stored quantized; parameters are counted as trained");
        }
    }
}

/// The row to read by, or an Error into `findings`.
const Family* choose_family(const hf::TextPlace& place, const std::string& root_type,
                            Findings& findings) {
    for (const std::string& type : {place.model_type, root_type}) {
        const std::string_view reason = hf::refusal_of(type);
        if (!reason.empty() && (place.model_type == type || place.keys.empty())) {
            findings.fail(
                {sim::ErrorCode::unsupported, findings.source_name + ": /model_type",
                 "'" + type + "' " + std::string(reason) + ", which cannot be planned yet",
                 "use a decoder-only model, or describe the part to plan in a Shardplan "
                 "model file"});
            return nullptr;
        }
    }
    if (const Family* row = hf::find_family(place.model_type)) {
        return row;
    }
    findings.assume("family", "llama-like", "guess from the key names",
                    "model_type '" + place.model_type +
                        "' is not known: gated ffn, RMS norms before each half and no biases are "
                        "taken where no key says otherwise; check the parameter count");
    return &hf::generic_family();
}

} // namespace

sim::Result<ImportedModel> import_hf_config(std::string_view text, std::string_view source_name) {
    const std::string json = without_python_numbers(text);
    const sim::Result<sim::JsonValue> root = sim::JsonValue::parse(json, source_name);
    if (!root) {
        return root.error();
    }
    Findings findings;
    findings.source_name = std::string(source_name);
    if (!root->is_object()) {
        return sim::Error{sim::ErrorCode::bad_input, root->where(),
                          "a model config is an object with keys such as hidden_size",
                          "give the config.json of the model"};
    }
    const hf::TextPlace place = hf::find_text(*root);
    Reader top(*root, "", "", findings);
    if (top.flag("is_encoder_decoder", false, "")) {
        top.unsupported("is_encoder_decoder", "encoder-decoder models cannot be planned yet",
                        "use a decoder-only model");
    }
    const Family* family = choose_family(place, top.text("model_type"), findings);
    if (findings.error) {
        return *findings.error;
    }
    const bool generic = family == &hf::generic_family();
    Reader reader(place.object(), place.prefix(), std::string(family->class_name), findings);
    if (place.objects.size() > 1) {
        reader.set_outer(*root);
    }
    if (!place.implied_by.empty()) {
        findings.assume(place.prefix() + "model_type", place.model_type,
                        "class default of " + place.implied_by, "the file leaves it out");
    }
    if (!has_any_size(reader)) {
        return sim::Error{sim::ErrorCode::bad_input, place.object().where(),
                          "no size of a model stands here",
                          "a config.json with hidden_size, num_hidden_layers and the like"};
    }
    Draft draft;
    hf::read_trunk(reader, *family, draft);
    if (findings.error) {
        return *findings.error;
    }
    if (!findings.missing.empty()) {
        return missing_fields(findings, place.model_type, generic);
    }
    draft.model.parts.push_back(draft.trunk);
    add_prediction_modules(reader, draft);
    name_kinds(draft.model);
    hf::add_other_parts(place, draft.model, findings);

    ImportedModel out;
    note_storage(place, findings, out);
    if (findings.error) {
        return *findings.error;
    }
    out.model = std::move(draft.model);
    out.model.name = top.text("_name_or_path");
    if (out.model.name.empty()) {
        out.model.name = stem_of(source_name);
    }
    out.model.family = place.model_type.empty() ? "custom" : place.model_type;
    out.model.source = std::string(source_name);
    if (root->find("auto_map") && generic) {
        findings.assume("auto_map", "not run", "the keys of the file",
                        "the model's own code decides its shape; it was read by its keys only");
    }
    note_unknown_keys(reader, out.model);
    out.assumptions = std::move(findings.assumptions);
    out.omitted = std::move(findings.omitted);
    if (const sim::Status status = sim::check_model(out.model, source_name); !status) {
        return status.error();
    }
    return out;
}

} // namespace shardplan::plan
