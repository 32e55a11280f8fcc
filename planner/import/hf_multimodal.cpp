#include "planner/import/hf_multimodal.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace shardplan::plan::hf {

namespace {

using sim::JsonValue;
using sim::PartRole;

constexpr std::array<std::string_view, 8> text_keys = {
    "text_config",           "llm_config",        "language_config", "thinker_config",
    "language_model_config", "text_model_config", "decoder_config",  "lm_config"};

/// The family of the language model in files that leave its model_type out.
constexpr std::pair<std::string_view, std::string_view> implied_types[] = {
    {"llava", "llama"},
    {"llava_next", "llama"},
    {"llava_onevision", "qwen2"},
    {"vipllava", "llama"},
    {"gemma3", "gemma3_text"},
    {"paligemma", "gemma"},
    {"qwen2_vl", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen3_vl", "qwen3"},
    {"qwen3_vl_moe", "qwen3_moe"},
    {"qwen2_5_omni", "qwen2"},
    {"qwen3_omni_moe", "qwen3_moe"},
    {"qwen2_audio", "qwen2"},
    {"mistral3", "mistral"},
    {"pixtral", "mistral"},
    {"llama4", "llama4_text"},
    {"internvl", "qwen2"},
    {"internvl_chat", "qwen2"},
    {"idefics3", "llama"},
    {"smolvlm", "llama"},
    {"aya_vision", "cohere2"},
    {"kimi_vl", "deepseek_v3"},
    {"deepseek_vl_v2", "deepseek_v2"},
    {"glm4v", "glm4"},
    {"glm4v_moe", "glm4_moe"},
    {"gemma3n", "gemma3n"},
    {"mllama", "mllama"}};

std::string text_of(const JsonValue& object, std::string_view key) {
    const auto value = object.find(key);
    if (!value || !value->is_string()) {
        return {};
    }
    const auto text = value->as_string();
    return text ? *text : std::string{};
}

std::string implied_type(const std::string& around) {
    for (const auto& [outer, inner] : implied_types) {
        if (outer == around) {
            return std::string(inner);
        }
    }
    return {};
}

struct PartRule {
    std::string_view key;
    PartRole role;
    std::string_view name;
};

constexpr PartRule other_parts[] = {
    {"vision_config", PartRole::vision, "vision"},
    {"vit_config", PartRole::vision, "vision"},
    {"visual", PartRole::vision, "vision"},
    {"vision_tower_config", PartRole::vision, "vision"},
    {"audio_config", PartRole::encoder, "audio"},
    {"speech_config", PartRole::encoder, "audio"},
    {"talker_config", PartRole::decoder, "talker"},
    {"code2wav_config", PartRole::decoder, "waveform"},
    {"token2wav_config", PartRole::decoder, "waveform"},
};

/// One kind of vision tower. Counts follow the classes of the same names in transformers.
struct Tower {
    bool class_row = false; ///< a learned row in front of the patches
    bool patch_bias = false;
    bool positions = true;
    bool first_norm = false;
    bool gated = false;
    bool bias = true;
    sim::NormKind norm = sim::NormKind::layernorm;
    bool last_norm = true;
    bool pooling_head = false; ///< SigLIP's attention pooling, unless vision_use_head is false
};

std::optional<Tower> tower_of(std::string_view type) {
    if (type == "clip_vision_model") {
        return Tower{.class_row = true, .first_norm = true};
    }
    if (type == "siglip_vision_model") {
        return Tower{.patch_bias = true, .pooling_head = true};
    }
    if (type == "pixtral") {
        return Tower{.positions = false,
                     .first_norm = true,
                     .gated = true,
                     .bias = false,
                     .norm = sim::NormKind::rmsnorm,
                     .last_norm = false};
    }
    return std::nullopt;
}

/// Patch embedding, positions, first norm and pooling head.
std::int64_t outside_blocks(Reader& reader, const Tower& tower, std::int64_t hidden,
                            std::int64_t width) {
    const std::int64_t patch = std::min<std::int64_t>(reader.size("patch_size", no_default), 4096);
    const std::int64_t image = std::min<std::int64_t>(reader.size("image_size", no_default), 65536);
    const std::int64_t channels =
        std::min<std::int64_t>(reader.size_if("num_channels").value_or(3), 64);
    const std::int64_t side = image / std::max<std::int64_t>(1, patch);
    std::int64_t n = channels * patch * patch * hidden;
    n += tower.patch_bias ? hidden : 0;
    n += tower.class_row ? hidden : 0;
    n += tower.positions ? (side * side + (tower.class_row ? 1 : 0)) * hidden : 0;
    n += tower.first_norm ? (tower.norm == sim::NormKind::layernorm ? 2 : 1) * hidden : 0;
    if (tower.pooling_head && reader.flag("vision_use_head", true, "")) {
        n += hidden + 4 * hidden * hidden + 4 * hidden + 2 * hidden + 2 * hidden * width + width +
             hidden;
    }
    return n;
}

constexpr std::int64_t largest_tower_size = std::int64_t{1} << 18;

/// The tower's blocks and the rest, or nothing if its keys do not suffice.
std::optional<sim::Part> read_tower(const JsonValue& object, const std::string& prefix,
                                    sim::ModelSpec& model, Findings& findings) {
    const auto tower = tower_of(text_of(object, "model_type"));
    if (!tower) {
        return std::nullopt;
    }
    Findings own; // what is missing here must not stop the language model
    own.source_name = findings.source_name;
    Reader reader(object, prefix, "the vision tower", own);
    sim::Part part;
    part.hidden = reader.size("hidden_size", no_default);
    sim::BlockKind kind;
    kind.name = "vision";
    kind.attention.heads = reader.size("num_attention_heads", no_default);
    kind.attention.kv_heads = kind.attention.heads;
    kind.ffn.width = reader.size("intermediate_size", no_default);
    const std::int64_t layers = reader.size("num_hidden_layers", no_default);
    const bool sane = std::max({part.hidden, kind.attention.heads, kind.ffn.width, layers}) <=
                          largest_tower_size &&
                      part.hidden % kind.attention.heads == 0;
    if (own.error || !own.missing.empty() || !sane) {
        return std::nullopt;
    }
    kind.attention.qk_head_dim = part.hidden / kind.attention.heads;
    kind.attention.v_head_dim = kind.attention.qk_head_dim;
    kind.attention.qkv_bias = kind.attention.out_bias = tower->bias;
    kind.ffn.bias = tower->bias;
    kind.ffn.gated = tower->gated;
    kind.ffn.activation = tower->gated ? sim::Activation::silu : sim::Activation::gelu;
    kind.norms.kind = tower->norm;
    kind.norms.bias = tower->norm == sim::NormKind::layernorm;
    part.norm_kind = tower->norm;
    part.norm_bias = kind.norms.bias;
    part.final_norm = tower->last_norm;
    part.other_parameters = outside_blocks(reader, *tower, part.hidden, kind.ffn.width);
    if (own.error || !own.missing.empty()) {
        return std::nullopt;
    }
    part.runs = {{static_cast<std::int64_t>(model.block_kinds.size()), layers}};
    model.block_kinds.push_back(kind);
    return part;
}

/// Parameters between tower and language model, where the classes fix them.
std::optional<std::int64_t> projector_parameters(const JsonValue& root, std::int64_t vision,
                                                 std::int64_t text, Findings& findings) {
    Findings own;
    own.source_name = findings.source_name;
    Reader reader(root, "", "the projector", own);
    const std::string type = reader.text("model_type");
    std::optional<std::int64_t> n;
    if (type == "llava" || type == "llava_next" || type == "vipllava") {
        const std::int64_t bias = reader.flag("multimodal_projector_bias", true, "") ? 2 * text : 0;
        n = vision * text + text * text + bias;
    } else if (type == "gemma3") {
        n = vision * text + vision; // one map and a norm of the tower's width
    } else if (type == "mistral3") {
        const std::int64_t merge =
            std::min<std::int64_t>(reader.size_if("spatial_merge_size").value_or(2), 64);
        const std::int64_t bias =
            reader.flag("multimodal_projector_bias", false, "") ? 2 * text : 0;
        n = vision + merge * merge * vision * vision + vision * text + text * text + bias;
    }
    return own.error ? std::nullopt : n;
}

} // namespace

std::string TextPlace::prefix() const {
    std::string out;
    for (const std::string& key : keys) {
        out += key + ".";
    }
    return out;
}

TextPlace find_text(const JsonValue& root) {
    constexpr std::size_t deepest = 6;
    TextPlace place;
    place.objects.push_back(root);
    place.model_type = text_of(root, "model_type");
    while (place.objects.size() < deepest) {
        std::optional<JsonValue> inner;
        for (const std::string_view key : text_keys) {
            inner = place.object().find(key);
            if (inner && inner->is_object()) {
                place.keys.emplace_back(key);
                break;
            }
            inner.reset();
        }
        if (!inner) {
            break;
        }
        const std::string stated = text_of(*inner, "model_type");
        if (!stated.empty()) {
            place.model_type = stated;
            place.implied_by.clear();
        } else {
            // A level in between that implies nothing (a thinker) hands on the root's family.
            const std::string around = implied_type(place.model_type).empty()
                                           ? text_of(root, "model_type")
                                           : place.model_type;
            place.model_type = implied_type(around);
            place.implied_by = place.model_type.empty() ? std::string{} : around;
        }
        place.objects.push_back(*inner);
    }
    return place;
}

void add_other_parts(const TextPlace& place, sim::ModelSpec& model, Findings& findings) {
    const std::int64_t text_width = model.parts.front().hidden;
    std::string prefix;
    for (std::size_t level = 0; level < place.objects.size(); ++level) {
        for (const PartRule& rule : other_parts) {
            const auto object = place.objects[level].find(rule.key);
            if (!object || !object->is_object()) {
                continue;
            }
            const std::string path = prefix + std::string(rule.key);
            const auto same_name = [&](const sim::Part& p) { return p.name == rule.name; };
            if (std::any_of(model.parts.begin(), model.parts.end(), same_name)) {
                continue;
            }
            std::optional<sim::Part> part;
            if (rule.role == PartRole::vision) {
                part = read_tower(*object, path + ".", model, findings);
            }
            const bool counted = part.has_value();
            sim::Part added = part.value_or(sim::Part{});
            added.final_norm = counted && added.final_norm;
            added.name = std::string(rule.name);
            added.role = rule.role;
            model.parts.push_back(added);
            if (!counted) {
                findings.assume(path, "0 parameters counted", "not described",
                                "the inside of this part is not known here; it is held by name "
                                "and missing from the total");
            }
            if (rule.role != PartRole::vision) {
                continue;
            }
            sim::Part projector;
            projector.name = "projector";
            projector.role = PartRole::projector;
            projector.final_norm = false;
            const auto n =
                counted && text_width <= largest_tower_size
                    ? projector_parameters(place.objects[level], added.hidden, text_width, findings)
                    : std::nullopt;
            projector.other_parameters = n.value_or(0);
            model.parts.push_back(projector);
            if (!n) {
                findings.assume(prefix + "projector", "0 parameters counted", "not described",
                                "the maps from vision to text are not known here; they are "
                                "missing from the total");
            }
        }
        if (level < place.keys.size()) {
            prefix += place.keys[level] + ".";
        }
    }
}

} // namespace shardplan::plan::hf
