#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "planner/import/hf_family.hpp"

namespace shardplan::plan::hf {

namespace {

using sim::Activation;
using sim::AttentionKind;
using sim::FfnKind;

constexpr std::int64_t most_layers = 65536;
constexpr std::int64_t most_shared_experts = 65536;

const SizeKeys usual_keys;

bool read_flag(Reader& reader, const FlagRule& rule, std::string_view note) {
    return rule.key.empty() ? rule.otherwise : reader.flag(rule.key, rule.otherwise, note);
}

std::int64_t read_ffn_width(Reader& reader, const SizeKeys& keys, std::int64_t class_default,
                            std::int64_t hidden) {
    if (class_default >= 0) {
        return reader.size(keys.ffn, class_default);
    }
    if (const auto stated = reader.size_if(keys.ffn)) {
        return *stated;
    }
    const std::int64_t width = -class_default * hidden;
    reader.derived(first_key(keys.ffn), width,
                   std::to_string(-class_default) + " times the hidden width");
    return width;
}

std::int64_t read_kv_heads(Reader& reader, const SizeKeys& keys, std::int64_t class_default,
                           std::int64_t heads) {
    if (class_default < 0) {
        return heads;
    }
    if (const auto stated = reader.size_if(keys.kv_heads)) {
        return *stated;
    }
    // The class takes its own default for an absent key, and as many as heads for null.
    const auto written = reader.object().find(first_key(keys.kv_heads));
    if (class_default > 0 && !written) {
        if (heads % class_default == 0) {
            return reader.size(keys.kv_heads, class_default);
        }
        reader.derived(first_key(keys.kv_heads), heads,
                       "as many as query heads, since the class default " +
                           std::to_string(class_default) + " does not divide them");
        return heads;
    }
    reader.derived(first_key(keys.kv_heads), heads, "equal to the number of query heads");
    return heads;
}

std::int64_t read_head_dim(Reader& reader, const SizeKeys& keys, std::int64_t class_default,
                           std::int64_t hidden, std::int64_t heads) {
    if (class_default > 0) {
        return reader.size(keys.head_dim, class_default);
    }
    if (const auto stated = reader.size_if(keys.head_dim)) {
        return *stated;
    }
    if (hidden % heads != 0 && reader.findings().missing.empty()) {
        reader.fail(first_key(keys.head_dim),
                    "the file states no head size, and " + std::to_string(hidden) +
                        " hidden elements do not divide into " + std::to_string(heads) + " heads",
                    "state head_dim");
        return 1;
    }
    return std::max<std::int64_t>(1, hidden / heads);
}

void set_norms(sim::Norms& norms, const Family& family) {
    norms.kind = family.norm;
    norms.bias = family.norm_bias;
    norms.affine = family.norm_affine;
    const NormShape shape = family.norm_shape;
    norms.pre_attention = shape != NormShape::after;
    norms.pre_ffn = shape != NormShape::after && shape != NormShape::parallel_one;
    norms.post_attention = shape == NormShape::after || shape == NormShape::sandwich;
    norms.post_ffn = norms.post_attention;
    norms.parallel = shape == NormShape::parallel_one || shape == NormShape::parallel_two;
}

std::optional<Activation> activation_of(const std::string& name) {
    if (name == "silu" || name == "swish" || name == "swiglu") {
        return Activation::silu;
    }
    if (name.rfind("gelu", 0) == 0 || name == "quick_gelu") {
        return Activation::gelu;
    }
    if (name == "relu") {
        return Activation::relu;
    }
    if (name == "relu2" || name == "squared_relu") {
        return Activation::squared_relu;
    }
    return std::nullopt;
}

Activation read_activation(Reader& reader, Activation class_default) {
    const std::string_view keys =
        "hidden_act|hidden_activation|activation_function|mlp_hidden_act|ffn_act_fn.name|"
        "ffn_config.ffn_act_fn.name|activation";
    const std::string name = reader.text(keys);
    if (name.empty()) {
        return class_default;
    }
    if (const auto known = activation_of(name)) {
        return *known;
    }
    reader.findings().assume(reader.prefix() + std::string(first_key(keys)),
                             std::string(sim::name_of(class_default)), reader.origin(),
                             "the function '" + name + "' is not known; the counts do not change");
    return class_default;
}

/// Rotated elements of a head, as the rotary keys of old and new files say.
std::int64_t read_rope_dim(Reader& reader, const Family& family, std::int64_t head_dim) {
    if (family.positions != sim::Positions::rope) {
        return 0;
    }
    if (const auto stated = reader.size_if("rotary_dim")) {
        return std::min(*stated, head_dim);
    }
    const double share = reader.real(
        "partial_rotary_factor|rope_parameters.partial_rotary_factor|rotary_pct|"
        "rotary_percent|rope_percent",
        family.rotary, 0.0, 1.0);
    const auto rotated = static_cast<std::int64_t>(share * static_cast<double>(head_dim));
    return rotated / 2 * 2;
}

void read_attention(Reader& reader, const Family& family, const SizeKeys& keys, std::int64_t hidden,
                    sim::Attention& a) {
    a.heads = reader.size(keys.heads, family.sizes.heads);
    a.kv_heads = read_kv_heads(reader, keys, family.sizes.kv_heads, a.heads);
    a.qk_head_dim = read_head_dim(reader, keys, family.sizes.head_dim, hidden, a.heads);
    a.v_head_dim = a.qk_head_dim;
    a.rope_dim = read_rope_dim(reader, family, a.qk_head_dim);
    a.qkv_bias = read_flag(reader, family.qkv_bias, "biases on q, k and v");
    a.out_bias = family.out_bias.key == family.qkv_bias.key && !family.out_bias.key.empty()
                     ? a.qkv_bias
                     : read_flag(reader, family.out_bias, "bias on the output projection");
    a.sinks = family.sinks;
    if (family.qk_norm != sim::QkNorm::none &&
        read_flag(reader, family.qk_norm_when, "norms on queries and keys")) {
        a.qk_norm = family.qk_norm;
    }
}

void read_shared_experts(Reader& reader, const MoeRule& rule, sim::Ffn& moe) {
    switch (rule.shared_form) {
        case SharedExperts::none:
            return;
        case SharedExperts::same_width:
            moe.shared_width = moe.expert_width;
            break;
        case SharedExperts::width_key:
            moe.shared_width = reader.size_if(rule.shared, 0).value_or(rule.shared_default);
            break;
        case SharedExperts::count_key: {
            const std::int64_t shared =
                reader.size_if(rule.shared, 0).value_or(rule.shared_default);
            if (shared > most_shared_experts) {
                reader.fail(first_key(rule.shared),
                            std::to_string(shared) + " shared experts are too many",
                            "the number of shared experts, not their width");
                return;
            }
            moe.shared_width = shared * moe.expert_width;
            break;
        }
    }
    moe.shared_gate = rule.shared_gate && moe.shared_width > 0;
}

void read_moe(Reader& reader, const Family& family, Draft& draft) {
    draft.moe.kind = FfnKind::none;
    if (family.moe == nullptr) {
        return;
    }
    const MoeRule& rule = *family.moe;
    const auto stated = reader.size_if(rule.experts, 0);
    if (rule.optional && stated.value_or(0) == 0) {
        return;
    }
    sim::Ffn moe;
    moe.kind = FfnKind::moe;
    moe.gated = draft.block.ffn.gated;
    moe.activation = draft.block.ffn.activation;
    moe.bias = draft.block.ffn.bias;
    moe.experts = stated ? *stated : reader.size(rule.experts, rule.experts_default);
    moe.top_k = reader.size(rule.top_k, rule.top_k_default);
    moe.expert_width =
        rule.width.empty() ? draft.block.ffn.width : reader.size(rule.width, rule.width_default);
    moe.router_bias = rule.router_bias;
    moe.router_correction = rule.router_correction;
    if (moe.top_k > moe.experts) {
        reader.fail(first_key(rule.top_k),
                    "a token cannot be sent to " + std::to_string(moe.top_k) + " of " +
                        std::to_string(moe.experts) + " experts",
                    "at most the number of experts");
    }
    read_shared_experts(reader, rule, moe);
    draft.moe = moe;
}

/// Whether layer `i` is a mixture of experts.
class MoeLayout {
public:
    MoeLayout(Reader& reader, const Family& family, const Draft& draft)
        : active_(draft.moe.kind == FfnKind::moe),
          form_(family.moe == nullptr ? MoeLayers::all : family.moe->layers) {
        if (!active_) {
            return;
        }
        if (form_ == MoeLayers::sparse_step) {
            step_ = reader.size_if("decoder_sparse_step").value_or(1);
            listed_ = reader.integers("mlp_only_layers").value_or(std::vector<std::int64_t>{});
        } else if (form_ == MoeLayers::after_first) {
            first_ = reader.size_if("first_k_dense_replace|moe_layer_start_index", 0).value_or(0);
            read_frequency(reader, draft.layers);
        } else if (form_ == MoeLayers::interleaved) {
            if (const auto layers = reader.integers("moe_layers")) {
                listed_ = *layers;
                has_list_ = true;
            }
            step_ = reader.size_if("interleave_moe_layer_step").value_or(1);
        }
        std::sort(listed_.begin(), listed_.end());
    }

    [[nodiscard]] bool at(std::int64_t i) const {
        if (!active_) {
            return false;
        }
        const bool listed = std::binary_search(listed_.begin(), listed_.end(), i);
        switch (form_) {
            case MoeLayers::all:
                return true;
            case MoeLayers::sparse_step:
                return (i + 1) % step_ == 0 && !listed;
            case MoeLayers::after_first:
                return i >= first_ &&
                       (per_layer_.empty() ? i % step_ == 0
                                           : per_layer_[static_cast<std::size_t>(i)] != 0);
            case MoeLayers::interleaved:
                return has_list_ ? listed : (i + 1) % step_ == 0;
        }
        return false;
    }

private:
    /// `moe_layer_freq`: a number, or one 0 or 1 per layer.
    void read_frequency(Reader& reader, std::int64_t layers) {
        const auto frequency = reader.find("moe_layer_freq");
        if (!frequency || !frequency->is_array()) {
            step_ = reader.size_if("moe_layer_freq").value_or(1);
            return;
        }
        per_layer_ = reader.integers("moe_layer_freq").value_or(std::vector<std::int64_t>{});
        if (static_cast<std::int64_t>(per_layer_.size()) != layers) {
            reader.fail("moe_layer_freq",
                        "has " + std::to_string(per_layer_.size()) + " entries for " +
                            std::to_string(layers) + " layers",
                        "one entry per layer");
            per_layer_.assign(static_cast<std::size_t>(layers), 0);
        }
    }

    bool active_;
    MoeLayers form_;
    std::int64_t step_ = 1;
    std::int64_t first_ = 0;
    bool has_list_ = false;
    std::vector<std::int64_t> listed_;
    std::vector<std::int64_t> per_layer_;
};

/// Window of layer `i` in tokens; 0: the whole sequence.
class WindowLayout {
public:
    WindowLayout(Reader& reader, const Family& family, const Draft& draft)
        : rule_(family.window), pattern_(family.window_pattern) {
        if (rule_ == WindowRule::none) {
            return;
        }
        const std::string_view key = rule_ == WindowRule::chunked
                                         ? "attention_chunk_size|sliding_window"
                                         : "sliding_window|attn_config.sliding_window_size";
        if (rule_ == WindowRule::upper_if_asked) {
            first_ = reader.size_if("max_window_layers", 0).value_or(draft.layers);
            if (!reader.flag("use_sliding_window", false, "")) {
                return;
            }
        }
        // Written as null: no window; absent: the class default.
        const bool written_null = reader.object().find(first_key(key)).has_value();
        if (const auto stated = reader.size_if(key, 0)) {
            window_ = *stated;
        } else if (!written_null && family.window_default > 0) {
            window_ = family.window_default;
            reader.findings().assume(reader.prefix() + std::string(first_key(key)),
                                     std::to_string(window_), reader.origin(),
                                     "tokens of the past that a sliding layer sees");
        }
        if (rule_ == WindowRule::pattern) {
            pattern_ =
                reader.size_if("sliding_window_pattern|_sliding_window_pattern").value_or(pattern_);
        }
        read_types(reader, draft.layers);
    }

    [[nodiscard]] std::int64_t at(std::int64_t i) const {
        if (!types_.empty()) {
            return types_[static_cast<std::size_t>(i)] == "full_attention" ? 0 : window_;
        }
        switch (rule_) {
            case WindowRule::none:
                return 0;
            case WindowRule::all:
                return window_;
            case WindowRule::even:
                return i % 2 == 0 ? window_ : 0;
            case WindowRule::pattern:
                return (i + 1) % pattern_ != 0 ? window_ : 0;
            case WindowRule::upper_if_asked:
                return i >= first_ ? window_ : 0;
            case WindowRule::chunked:
                return (i + 1) % 4 != 0 ? window_ : 0;
        }
        return 0;
    }

private:
    void read_types(Reader& reader, std::int64_t layers) {
        const auto types = reader.texts("layer_types");
        if (!types) {
            return;
        }
        if (static_cast<std::int64_t>(types->size()) != layers) {
            reader.fail("layer_types",
                        "has " + std::to_string(types->size()) + " entries for " +
                            std::to_string(layers) + " layers",
                        "one entry per layer");
            return;
        }
        for (const std::string& type : *types) {
            if (type != "full_attention" && type != "sliding_attention" &&
                type != "chunked_attention") {
                reader.unsupported("layer_types", "layers of type '" + type + "' are not known",
                                   "known: full_attention, sliding_attention, chunked_attention");
                return;
            }
        }
        types_ = *types;
    }

    WindowRule rule_;
    std::int64_t window_ = 0;
    std::int64_t first_ = 0;
    std::int64_t pattern_ = 0;
    std::vector<std::string> types_;
};

void lay_out_layers(Reader& reader, const Family& family, Draft& draft) {
    const MoeLayout moe(reader, family, draft);
    const WindowLayout window(reader, family, draft);
    if (reader.findings().error) {
        return;
    }
    for (std::int64_t i = 0; i < draft.layers; ++i) {
        sim::BlockKind kind = draft.block;
        kind.attention.window = window.at(i);
        if (moe.at(i)) {
            kind.ffn = draft.moe;
        }
        draft.add_layer(kind);
    }
}

void read_embedding(Reader& reader, const Family& family, const SizeKeys& keys, Draft& draft) {
    sim::Embedding& e = draft.model.embedding;
    e.vocab = reader.size(keys.vocab, family.sizes.vocab);
    e.positions = family.positions;
    if (family.sizes.positions > 0) {
        draft.model.max_positions = reader.size(keys.positions, family.sizes.positions);
    } else {
        draft.model.max_positions = reader.size_if(keys.positions).value_or(0);
    }
    if (e.positions == sim::Positions::learned) {
        e.position_rows = draft.model.max_positions;
    }
}

void read_dropout(Reader& reader, const Family& family, Draft& draft) {
    draft.model.attention_dropout = reader.real(
        "attention_dropout|attn_pdrop|attn_config.attn_pdrop", family.dropout, 0.0, 0.999);
    draft.model.hidden_dropout =
        reader.real("hidden_dropout|resid_pdrop|dropout|residual_dropout|resid_dropout",
                    family.dropout, 0.0, 0.999);
}

} // namespace

void Draft::add_layer(const sim::BlockKind& kind) {
    std::size_t k = 0;
    while (k < model.block_kinds.size() && !(model.block_kinds[k] == kind)) {
        ++k;
    }
    if (k == model.block_kinds.size()) {
        model.block_kinds.push_back(kind);
    }
    const auto index = static_cast<std::int64_t>(k);
    if (trunk.runs.empty() || trunk.runs.back().kind != index) {
        trunk.runs.push_back({index, 0});
    }
    ++trunk.runs.back().count;
}

void read_trunk(Reader& reader, const Family& family, Draft& draft) {
    const SizeKeys& keys = family.keys == nullptr ? usual_keys : *family.keys;
    draft.trunk.name = "trunk";
    draft.trunk.role = sim::PartRole::trunk;
    draft.trunk.norm_kind = family.norm;
    draft.trunk.norm_bias = family.norm_bias;
    draft.trunk.norm_affine = family.norm_affine;
    draft.trunk.hidden = reader.size(keys.hidden, family.sizes.hidden);
    sim::Ffn& ffn = draft.block.ffn;
    ffn.gated = family.gated;
    ffn.activation = read_activation(reader, family.activation);
    ffn.width =
        family.has_ffn ? read_ffn_width(reader, keys, family.sizes.ffn, draft.trunk.hidden) : 0;
    draft.layers = reader.size(keys.layers, family.sizes.layers);
    if (draft.layers > most_layers) {
        reader.fail(first_key(keys.layers), std::to_string(draft.layers) + " layers are too many",
                    "at most " + std::to_string(most_layers));
    }
    if (family.has_attention) {
        read_attention(reader, family, keys, draft.trunk.hidden, draft.block.attention);
    }
    read_embedding(reader, family, keys, draft);
    ffn.bias = read_flag(reader, family.ffn_bias, "biases in the ffn");
    set_norms(draft.block.norms, family);
    draft.model.embedding.tied =
        read_flag(reader, family.tied, "whether the output table is the token table");
    read_dropout(reader, family, draft);
    read_moe(reader, family, draft);
    if (family.adjust != nullptr) {
        family.adjust(reader, family, draft);
    }
    if (reader.findings().error || !reader.findings().missing.empty()) {
        return;
    }
    sim::Attention& a = draft.block.attention;
    if (a.kind == AttentionKind::mha && a.kv_heads != a.heads) {
        a.kind = AttentionKind::gqa;
    }
    if (!draft.layers_done) {
        lay_out_layers(reader, family, draft);
    }
}

} // namespace shardplan::plan::hf
