// Models with state-space or linear attention layers. Their insides are counted and held as opaque
// parameters; the planner refuses such layers by name.

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/import/hf_family.hpp"

namespace shardplan::plan::hf {

using sim::AttentionKind;
using sim::FfnKind;

namespace {

/// Below this every product of three sizes stays inside 64 bits.
constexpr std::int64_t largest_mixer_size = std::int64_t{1} << 18;

std::int64_t mixer_size(Reader& reader, std::string_view keys, std::int64_t class_default) {
    const std::int64_t size = reader.size(keys, class_default);
    if (size > largest_mixer_size) {
        reader.fail(first_key(keys), std::to_string(size) + " is beyond any model",
                    "at most " + std::to_string(largest_mixer_size));
        return 1;
    }
    return size;
}

/// Sizes of a Mamba-2 mixer (Dao and Gu 2024, arXiv 2405.21060).
struct Mamba2Sizes {
    std::int64_t hidden = 1;
    std::int64_t heads = 1;
    std::int64_t head_dim = 1;
    std::int64_t groups = 1;
    std::int64_t state = 1;
    std::int64_t kernel = 1;
    bool conv_bias = true;
    bool linear_bias = false;
};

/// in_proj (gate, inner, B, C, dt), conv1d, dt_bias, A_log, D, gated norm, out_proj.
std::int64_t mamba2_parameters(const Mamba2Sizes& m) {
    const std::int64_t inner = m.heads * m.head_dim;
    const std::int64_t conv = inner + 2 * m.groups * m.state;
    const std::int64_t in_width = inner + conv + m.heads;
    return m.hidden * in_width + conv * (m.kernel + (m.conv_bias ? 1 : 0)) + 3 * m.heads + inner +
           inner * m.hidden + (m.linear_bias ? in_width + m.hidden : 0);
}

/// Sizes of a Mamba-1 mixer (Gu and Dao 2023, arXiv 2312.00752); norms: Jamba's on dt, B and C.
std::int64_t mamba1_parameters(std::int64_t hidden, std::int64_t inner, std::int64_t state,
                               std::int64_t kernel, std::int64_t dt_rank, bool conv_bias,
                               bool linear_bias, bool norms) {
    return hidden * 2 * inner + inner * (kernel + (conv_bias ? 1 : 0)) +
           inner * (dt_rank + 2 * state) + dt_rank * inner + inner + inner * state + inner +
           inner * hidden + (linear_bias ? 2 * inner + hidden : 0) +
           (norms ? dt_rank + 2 * state : 0);
}

sim::Attention mixer(AttentionKind kind, std::int64_t parameters) {
    sim::Attention a;
    a.kind = kind;
    a.opaque_parameters = parameters;
    return a;
}

void only_attention(sim::BlockKind& kind) {
    kind.ffn = sim::Ffn{};
    kind.ffn.kind = FfnKind::none;
    kind.norms.pre_ffn = false;
}

void only_ffn(sim::BlockKind& kind) {
    kind.attention = sim::Attention{};
    kind.attention.kind = AttentionKind::none;
    kind.norms.pre_attention = false;
}

sim::Attention plain_attention(const Draft& draft) {
    sim::Attention a = draft.block.attention;
    a.kind = a.kv_heads == a.heads ? AttentionKind::mha : AttentionKind::gqa;
    return a;
}

/// `dt_rank`: a number, or "auto" for hidden / 16 rounded up.
std::int64_t dt_rank_of(Reader& reader, std::string_view key, std::int64_t hidden) {
    const auto written = reader.find(key);
    if (written && written->is_number()) {
        return mixer_size(reader, key, no_default);
    }
    return (hidden + 15) / 16;
}

std::int64_t bounded_hidden(Reader& reader, const Draft& draft) {
    if (draft.trunk.hidden > largest_mixer_size) {
        reader.fail("hidden_size", std::to_string(draft.trunk.hidden) + " is beyond any model",
                    "at most " + std::to_string(largest_mixer_size));
        return 1;
    }
    return draft.trunk.hidden;
}

bool has_findings(Reader& reader) {
    return reader.findings().error.has_value() || !reader.findings().missing.empty();
}

Mamba2Sizes read_nemotron_mixer(Reader& reader, const Draft& draft) {
    Mamba2Sizes m;
    m.hidden = bounded_hidden(reader, draft);
    m.heads = mixer_size(reader, "mamba_num_heads", 128);
    m.head_dim = mixer_size(reader, "mamba_head_dim", 64);
    m.groups = mixer_size(reader, "n_groups|mamba_n_groups", 8);
    m.state = mixer_size(reader, "ssm_state_size", 128);
    m.kernel = mixer_size(reader, "conv_kernel|mamba_d_conv", 4);
    m.conv_bias = reader.flag("use_conv_bias|mamba_conv_bias", true, "bias of the convolution");
    m.linear_bias = reader.flag("mamba_proj_bias|use_bias", false, "");
    return m;
}

sim::Ffn read_nemotron_moe(Reader& reader, const Draft& draft) {
    sim::Ffn moe = draft.block.ffn;
    moe.kind = FfnKind::moe;
    moe.width = 0;
    moe.experts = reader.size("n_routed_experts|num_experts", no_default);
    moe.top_k = reader.size("num_experts_per_tok", no_default);
    moe.expert_width = reader.size("moe_intermediate_size", no_default);
    const std::int64_t shared = reader.size_if("n_shared_experts", 0).value_or(1);
    moe.shared_width =
        shared == 0 ? 0 : reader.size("moe_shared_expert_intermediate_size", moe.expert_width);
    moe.router_correction = true;
    if (reader.has("moe_latent_size")) {
        reader.unsupported("moe_latent_size",
                           "experts that work on a compressed vector cannot be counted yet",
                           "describe the model in a Shardplan model file");
    }
    return moe;
}

/// The letters of the layers: M Mamba-2, * attention, - ffn, E experts.
std::string read_pattern(Reader& reader) {
    std::string pattern = reader.text("hybrid_override_pattern");
    if (!pattern.empty()) {
        return pattern;
    }
    const auto types = reader.texts("layers_block_type|layer_types");
    if (!types) {
        reader.findings().missing.push_back(reader.prefix() + "hybrid_override_pattern");
        return pattern;
    }
    for (const std::string& type : *types) {
        pattern += type == "mamba" ? 'M' : type == "attention" ? '*' : type == "mlp" ? '-' : '?';
        if (type == "moe") {
            pattern.back() = 'E';
        }
    }
    return pattern;
}

} // namespace

/// Nemotron-H and Nemotron 3 (arXiv 2504.03624): each layer is one thing only, behind one norm.
void read_nemotron_h(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    const std::string pattern = read_pattern(reader);
    const auto has_letter = [&](char c) { return pattern.find(c) != std::string::npos; };
    const std::size_t odd = pattern.find_first_not_of("M*-E");
    if (odd != std::string::npos) {
        reader.unsupported("hybrid_override_pattern",
                           std::string("layer ") + std::to_string(odd) + " is '" + pattern[odd] +
                               "', which is not known",
                           "M Mamba-2, * attention, - ffn, E experts");
        return;
    }
    constexpr std::size_t most_layers = 65536;
    const bool layers_stated = reader.has("num_hidden_layers");
    if (!layers_stated) { // the pattern says how many
        std::erase(reader.findings().omitted, "num_hidden_layers");
        std::erase_if(reader.findings().assumptions, [](const sim::Assumption& a) {
            return a.path.ends_with("num_hidden_layers");
        });
    }
    if ((layers_stated && draft.layers != static_cast<std::int64_t>(pattern.size())) ||
        pattern.size() > most_layers) {
        reader.fail("hybrid_override_pattern",
                    "has " + std::to_string(pattern.size()) + " letters for " +
                        std::to_string(draft.layers) + " layers",
                    "one letter per layer");
        return;
    }
    sim::BlockKind mamba = draft.block;
    sim::BlockKind attention = draft.block;
    sim::BlockKind ffn = draft.block;
    sim::BlockKind experts = draft.block;
    only_attention(mamba);
    only_attention(attention);
    only_ffn(ffn);
    only_ffn(experts);
    attention.attention = plain_attention(draft);
    if (has_letter('M')) {
        mamba.attention =
            mixer(AttentionKind::ssm, mamba2_parameters(read_nemotron_mixer(reader, draft)));
    }
    if (has_letter('-')) {
        constexpr std::int64_t class_default = 21504;
        ffn.ffn.width = reader.size("intermediate_size", class_default);
    }
    if (has_letter('E')) {
        experts.ffn = read_nemotron_moe(reader, draft);
    }
    if (has_findings(reader)) {
        return;
    }
    for (const char letter : pattern) {
        draft.add_layer(letter == 'M'   ? mamba
                        : letter == '*' ? attention
                        : letter == '-' ? ffn
                                        : experts);
    }
}

void read_mamba(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    const std::int64_t hidden = bounded_hidden(reader, draft);
    const std::int64_t expand = mixer_size(reader, "expand", 2);
    const std::int64_t inner =
        std::min(largest_mixer_size, reader.size_if("intermediate_size|d_inner")
                                         .value_or(std::min(largest_mixer_size, expand * hidden)));
    sim::BlockKind kind = draft.block;
    only_attention(kind);
    kind.attention =
        mixer(AttentionKind::ssm,
              mamba1_parameters(hidden, inner, mixer_size(reader, "state_size|d_state", 16),
                                mixer_size(reader, "conv_kernel|d_conv", 4),
                                dt_rank_of(reader, "time_step_rank|dt_rank", hidden),
                                reader.flag("use_conv_bias", true, ""),
                                reader.flag("use_bias", false, ""), false));
    for (std::int64_t i = 0; i < draft.layers && !has_findings(reader); ++i) {
        draft.add_layer(kind);
    }
}

void read_mamba2(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    Mamba2Sizes m;
    m.hidden = bounded_hidden(reader, draft);
    m.heads = mixer_size(reader, "num_heads", 128);
    m.head_dim = mixer_size(reader, "head_dim", 64);
    m.groups = mixer_size(reader, "n_groups", 8);
    m.state = mixer_size(reader, "state_size", 128);
    m.kernel = mixer_size(reader, "conv_kernel", 4);
    m.conv_bias = reader.flag("use_conv_bias", true, "");
    m.linear_bias = reader.flag("use_bias", false, "");
    sim::BlockKind kind = draft.block;
    only_attention(kind);
    kind.attention = mixer(AttentionKind::ssm, mamba2_parameters(m));
    for (std::int64_t i = 0; i < draft.layers && !has_findings(reader); ++i) {
        draft.add_layer(kind);
    }
}

/// Granite 4: Mamba-2 or attention by layer_types, then experts and a shared ffn.
void read_granite_hybrid(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    const auto types = reader.texts("layer_types|layers_block_type");
    if (!types || static_cast<std::int64_t>(types->size()) != draft.layers) {
        reader.fail(
            "layer_types",
            "one entry for each of the " + std::to_string(draft.layers) + " layers is needed",
            "\"mamba\" or \"attention\"");
        return;
    }
    Mamba2Sizes m;
    m.hidden = bounded_hidden(reader, draft);
    m.heads = mixer_size(reader, "mamba_n_heads", 128);
    const std::int64_t expand = mixer_size(reader, "mamba_expand", 2);
    const auto head_dim = reader.find("mamba_d_head");
    m.head_dim = head_dim && head_dim->is_number()
                     ? mixer_size(reader, "mamba_d_head", no_default)
                     : std::max<std::int64_t>(1, expand * m.hidden / m.heads);
    m.groups = mixer_size(reader, "mamba_n_groups", 1);
    m.state = mixer_size(reader, "mamba_d_state", 256);
    m.kernel = mixer_size(reader, "mamba_d_conv", 4);
    m.conv_bias = reader.flag("mamba_conv_bias", true, "");
    m.linear_bias = reader.flag("mamba_proj_bias", false, "");
    const std::int64_t shared = reader.size("shared_intermediate_size", no_default);
    sim::BlockKind attention = draft.block;
    attention.attention = plain_attention(draft);
    if (draft.moe.kind == FfnKind::moe) {
        attention.ffn = draft.moe;
        attention.ffn.shared_width = shared;
    } else {
        attention.ffn.width = shared;
    }
    if (reader.text("position_embedding_type") != "rope") {
        attention.attention.rope_dim = 0;
        draft.model.embedding.positions = sim::Positions::none;
    }
    sim::BlockKind mamba = attention;
    mamba.attention = mixer(AttentionKind::ssm, mamba2_parameters(m));
    for (std::size_t i = 0; i < types->size() && !has_findings(reader); ++i) {
        if ((*types)[i] != "mamba" && (*types)[i] != "attention" &&
            (*types)[i] != "full_attention") {
            reader.unsupported("layer_types", "layers of type '" + (*types)[i] + "' are not known",
                               "known: mamba, attention");
            return;
        }
        draft.add_layer((*types)[i] == "mamba" ? mamba : attention);
    }
}

/// Jamba (arXiv 2403.19887): attention and experts each in their own rhythm.
void read_jamba(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    const std::int64_t hidden = bounded_hidden(reader, draft);
    const std::int64_t inner =
        std::min(largest_mixer_size, mixer_size(reader, "mamba_expand", 2) * hidden);
    const std::int64_t parameters = mamba1_parameters(
        hidden, inner, mixer_size(reader, "mamba_d_state", 16),
        mixer_size(reader, "mamba_d_conv", 4), dt_rank_of(reader, "mamba_dt_rank", hidden),
        reader.flag("mamba_conv_bias", true, ""), reader.flag("mamba_proj_bias", false, ""), true);
    const std::int64_t attention_period = reader.size("attn_layer_period", 8);
    const std::int64_t attention_offset = reader.size_if("attn_layer_offset", 0).value_or(4);
    const std::int64_t expert_period = reader.size("expert_layer_period", 2);
    const std::int64_t expert_offset = reader.size_if("expert_layer_offset", 0).value_or(1);
    for (std::int64_t i = 0; i < draft.layers && !has_findings(reader); ++i) {
        sim::BlockKind kind = draft.block;
        kind.attention = i % attention_period == attention_offset
                             ? plain_attention(draft)
                             : mixer(AttentionKind::ssm, parameters);
        if (i % expert_period == expert_offset && draft.moe.kind == FfnKind::moe &&
            draft.moe.experts > 1) {
            kind.ffn = draft.moe;
        }
        draft.add_layer(kind);
    }
}

/// Qwen3-Next: gated delta-rule layers with a gated attention layer every fourth.
void read_qwen3_next(Reader& reader, const Family& /*family*/, Draft& draft) {
    draft.layers_done = true;
    const std::int64_t hidden = bounded_hidden(reader, draft);
    const std::int64_t value_heads = mixer_size(reader, "linear_num_value_heads", 32);
    const std::int64_t value_dim = mixer_size(reader, "linear_value_head_dim", 128);
    const std::int64_t keys =
        mixer_size(reader, "linear_num_key_heads", 16) *
        std::min<std::int64_t>(65536, mixer_size(reader, "linear_key_head_dim", 128));
    const std::int64_t values = value_heads * std::min<std::int64_t>(65536, value_dim);
    const std::int64_t kernel = mixer_size(reader, "linear_conv_kernel_dim", 4);
    const std::int64_t interval = reader.size_if("full_attention_interval").value_or(4);
    const auto types = reader.texts("layer_types");
    if (types && static_cast<std::int64_t>(types->size()) != draft.layers) {
        reader.fail("layer_types", "does not have one entry per layer", "one entry per layer");
    }
    if (has_findings(reader)) {
        return;
    }
    // in_proj_qkvz, in_proj_ba, conv1d, dt_bias and A_log, norm of one head, out_proj.
    const std::int64_t parameters = hidden * (2 * keys + 2 * values) + hidden * 2 * value_heads +
                                    (2 * keys + values) * std::min<std::int64_t>(kernel, 4096) +
                                    2 * value_heads + value_dim + values * hidden;
    sim::BlockKind full = draft.block;
    full.attention = plain_attention(draft);
    full.attention.output_gate = true;
    sim::BlockKind linear = draft.block;
    linear.attention = mixer(AttentionKind::linear, parameters);
    const std::int64_t step = reader.size_if("decoder_sparse_step").value_or(1);
    for (std::int64_t i = 0; i < draft.layers; ++i) {
        const bool attends = types ? (*types)[static_cast<std::size_t>(i)] == "full_attention"
                                   : (i + 1) % interval == 0;
        sim::BlockKind kind = attends ? full : linear;
        if (draft.moe.kind == FfnKind::moe && (i + 1) % step == 0) {
            kind.ffn = draft.moe;
        }
        draft.add_layer(kind);
    }
}

} // namespace shardplan::plan::hf
