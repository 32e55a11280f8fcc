#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/reproduce_notes.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

using sim::Assumption;
using sim::Result;
using sim::RunModel;

using Notes = std::vector<Assumption>;

/// Largest size accepted for one dimension, so that products of a few stay inside 64 bits.
constexpr std::int64_t largest_size = std::int64_t{1} << 31;

sim::Status check_sizes(const RunModel& m) {
    struct Size {
        const char* path;
        const std::optional<std::int64_t>* value;
        bool needed;
    };
    const bool moe = m.experts.value_or(0) > 0;
    const bool dense = !moe || m.first_dense_layers.value_or(0) > 0;
    const Size sizes[] = {
        {"model.layers", &m.layers, true},
        {"model.hidden", &m.hidden, true},
        {"model.heads", &m.heads, true},
        {"model.vocab", &m.vocab, true},
        {"model.seq_len", &m.seq_len, true},
        {"model.ffn_hidden", &m.ffn_hidden, dense},
        {"model.experts_per_token", &m.experts_per_token, moe},
        {"model.moe_ffn_hidden", &m.moe_ffn_hidden, moe},
        {"model.kv_heads", &m.kv_heads, false},
        {"model.head_dim", &m.head_dim, false},
    };
    for (const Size& size : sizes) {
        if (!*size.value && size.needed) {
            return missing(size.path);
        }
        if (*size.value && size.needed && (**size.value < 1 || **size.value > largest_size)) {
            return unusable(size.path,
                            std::string(size.path) + " is " + std::to_string(**size.value));
        }
    }
    // A hundred million tokens: no sample is longer, and its square still fits 64 bits with room.
    if (*m.seq_len > (std::int64_t{1} << 27)) {
        return unusable("model.seq_len", "model.seq_len is " + std::to_string(*m.seq_len));
    }
    if (m.hybrid) {
        return unusable("model.hybrid", "the model has blocks that a record cannot describe");
    }
    return sim::Done{};
}

Result<sim::Attention> attention_of(const RunModel& m, Notes& notes) {
    sim::Attention a;
    a.heads = *m.heads;
    const std::string kind = lower(m.attention);
    if (kind == "mla") {
        if (!m.kv_lora_rank || !m.qk_nope_head_dim || !m.qk_rope_head_dim || !m.v_head_dim) {
            return missing(!m.kv_lora_rank       ? "model.kv_lora_rank"
                           : !m.qk_nope_head_dim ? "model.qk_nope_head_dim"
                           : !m.qk_rope_head_dim ? "model.qk_rope_head_dim"
                                                 : "model.v_head_dim");
        }
        a.kind = sim::AttentionKind::mla;
        a.kv_heads = a.heads;
        a.q_rank = m.q_lora_rank.value_or(0);
        a.kv_rank = *m.kv_lora_rank;
        a.qk_head_dim = *m.qk_nope_head_dim + *m.qk_rope_head_dim;
        a.rope_dim = *m.qk_rope_head_dim;
        a.v_head_dim = *m.v_head_dim;
        return a;
    }
    if (!m.kv_heads && kind == "gqa") {
        return missing("model.kv_heads");
    }
    a.kv_heads = m.kv_heads.value_or(a.heads);
    if (!m.kv_heads) {
        note(notes, "model.kv_heads", std::to_string(a.heads), "as many as heads");
    }
    a.kind = a.kv_heads == a.heads ? sim::AttentionKind::mha : sim::AttentionKind::gqa;
    if (!m.head_dim && *m.hidden % a.heads != 0) {
        return missing("model.head_dim");
    }
    a.qk_head_dim = m.head_dim.value_or(*m.hidden / a.heads);
    a.v_head_dim = a.qk_head_dim;
    return a;
}

/// What the words of a record say about every block.
struct BlockTexts {
    bool gated = false;
    sim::Activation activation = sim::Activation::gelu;
    bool attention_bias = false;
    bool all_bias = false;
};

BlockTexts texts_of(const RunModel& m, Notes& notes) {
    BlockTexts out;
    const std::string activation = lower(m.activation);
    const bool names_gate = has_word(activation, "glu");
    out.gated = m.gated_mlp.value_or(names_gate);
    if (!m.gated_mlp) {
        note(notes, "model.gated_mlp", out.gated ? "true" : "false", "from the activation");
    }
    if (has_word(activation, "squared") || activation == "relu2") {
        out.activation = sim::Activation::squared_relu;
    } else if (activation == "relu") {
        out.activation = sim::Activation::relu;
    } else if (activation == "swiglu" || activation == "silu") {
        out.activation = sim::Activation::silu;
    } else if (activation.empty()) {
        out.activation = out.gated ? sim::Activation::silu : sim::Activation::gelu;
        note(notes, "model.activation", std::string(name_of(out.activation)), "from gated_mlp");
    }
    const std::string biases = lower(m.biases);
    out.all_bias = biases == "all";
    out.attention_bias = out.all_bias || biases == "attn";
    if (!m.biases) {
        note(notes, "model.biases", "none", "default");
    }
    return out;
}

/// Adds a block to the trunk; neighbours of one kind are one run.
void add_block(sim::ModelSpec& model, sim::Part& trunk, const sim::BlockKind& kind) {
    auto found = std::find_if(model.block_kinds.begin(), model.block_kinds.end(),
                              [&](const sim::BlockKind& known) { return known.name == kind.name; });
    if (found == model.block_kinds.end()) {
        found = model.block_kinds.insert(found, kind);
    }
    const auto index = static_cast<std::int64_t>(found - model.block_kinds.begin());
    if (!trunk.runs.empty() && trunk.runs.back().kind == index) {
        ++trunk.runs.back().count;
    } else {
        trunk.runs.push_back({index, 1});
    }
}

void add_blocks(const RunModel& m, const BlockTexts& texts, const sim::BlockKind& base,
                sim::ModelSpec& model, sim::Part& trunk) {
    const std::int64_t window = m.window.value_or(0);
    const bool moe = m.experts.value_or(0) > 0;
    const std::int64_t dense_first = moe ? m.first_dense_layers.value_or(0) : *m.layers;
    for (std::int64_t i = 0; i < *m.layers; ++i) {
        sim::BlockKind kind = base;
        kind.ffn.gated = texts.gated;
        kind.ffn.activation = texts.activation;
        kind.ffn.bias = texts.all_bias;
        if (i < dense_first) {
            kind.name = "dense";
            kind.ffn.kind = sim::FfnKind::dense;
            kind.ffn.width = *m.ffn_hidden;
        } else {
            kind.name = "moe";
            kind.ffn.kind = sim::FfnKind::moe;
            kind.ffn.experts = *m.experts;
            kind.ffn.top_k = *m.experts_per_token;
            kind.ffn.expert_width = *m.moe_ffn_hidden;
            kind.ffn.shared_width = m.shared_expert_ffn.value_or(0);
        }
        if (window > 0 && i % 2 == 0) {
            kind.attention.window = window;
            kind.name += "_sliding";
        }
        add_block(model, trunk, kind);
    }
}

sim::Embedding embedding_of(const RunModel& m, std::vector<sim::BlockKind>& kinds, Notes& notes) {
    sim::Embedding e;
    e.vocab = *m.vocab;
    e.tied = m.tied_embeddings.value_or(false);
    if (!m.tied_embeddings) {
        note(notes, "model.tied_embeddings", "false", "default");
    }
    const std::string positions = lower(m.positions);
    if (positions == "learned") {
        e.positions = sim::Positions::learned;
        e.position_rows = std::max(m.max_positions.value_or(0), *m.seq_len);
    } else if (positions == "alibi") {
        e.positions = sim::Positions::alibi;
    } else {
        e.positions = sim::Positions::rope;
        if (positions != "rope") {
            note(notes, "model.positions", "rope", "default");
        }
        for (sim::BlockKind& kind : kinds) {
            if (kind.attention.kind != sim::AttentionKind::mla) {
                kind.attention.rope_dim = kind.attention.qk_head_dim;
            }
        }
    }
    return e;
}

/// Modules that predict further tokens: a projection of two hidden vectors, two norms, and a block
/// like the last one (DeepSeek-V3 report, section 2.2).
sim::Part mtp_part(const RunModel& m, const sim::Part& trunk) {
    sim::Part part;
    part.name = "mtp";
    part.role = sim::PartRole::mtp;
    part.hidden = trunk.hidden;
    part.runs = {{trunk.runs.back().kind, *m.mtp_layers}};
    part.norm_kind = trunk.norm_kind;
    part.norm_bias = trunk.norm_bias;
    const std::int64_t norm = trunk.hidden * (trunk.norm_bias ? 2 : 1);
    part.other_parameters = *m.mtp_layers * (2 * trunk.hidden * trunk.hidden + 2 * norm);
    return part;
}

/// Dropout where the record is silent: GPT models, which have learned positions, keep the default
/// of their software; later architectures are trained without.
double default_dropout(const RunModel& m, const sim::StackProfile& stack) {
    return lower(m.positions) == "learned" ? stack.default_dropout : 0.0;
}

double dropout_of(const std::optional<double>& stated, const char* path, double otherwise,
                  Notes& notes) {
    if (!stated) {
        note(notes, path, fmt::format("{:g}", otherwise), "default of the stack",
             "decides whether dropout masks are kept");
    }
    return std::min(stated.value_or(otherwise), 1.0);
}

} // namespace

Result<sim::ModelSpec> model_of(const sim::RunRecord& record, const sim::StackProfile& stack,
                                Notes& notes) {
    const RunModel& m = record.model;
    if (const auto sizes = check_sizes(m); !sizes) {
        return sizes.error();
    }
    if (*m.layers > 100000) {
        return unusable("model.layers", "model.layers is " + std::to_string(*m.layers));
    }
    const auto attention = attention_of(m, notes);
    if (!attention) {
        return attention.error();
    }
    const BlockTexts texts = texts_of(m, notes);

    sim::ModelSpec model;
    model.name = m.name.empty() ? "model of the record" : m.name;
    model.family = "custom";
    sim::Part trunk;
    trunk.name = "trunk";
    trunk.hidden = *m.hidden;
    trunk.norm_kind =
        has_word(lower(m.norm), "layernorm") ? sim::NormKind::layernorm : sim::NormKind::rmsnorm;
    if (!m.norm) {
        note(notes, "model.norm", "rmsnorm", "default");
    }
    trunk.norm_bias = trunk.norm_kind == sim::NormKind::layernorm;

    sim::BlockKind base;
    base.attention = *attention;
    base.attention.qkv_bias = texts.attention_bias;
    base.attention.out_bias = texts.all_bias;
    if (m.qk_norm.value_or(false)) {
        base.attention.qk_norm = sim::QkNorm::per_head;
    }
    base.norms.kind = trunk.norm_kind;
    base.norms.bias = trunk.norm_bias;
    add_blocks(m, texts, base, model, trunk);
    model.embedding = embedding_of(m, model.block_kinds, notes);
    model.parts.push_back(trunk);
    if (m.mtp_layers.value_or(0) > 0 && *m.mtp_layers <= largest_size) {
        model.parts.push_back(mtp_part(m, trunk));
    }
    model.max_positions = model.embedding.position_rows;

    const double otherwise = default_dropout(m, stack);
    model.attention_dropout =
        dropout_of(m.attention_dropout, "model.attention_dropout", otherwise, notes);
    model.hidden_dropout = dropout_of(m.hidden_dropout, "model.hidden_dropout", otherwise, notes);
    if (const auto whole = sim::check_model(model, "model"); !whole) {
        return unusable(whole.error().where, whole.error().what);
    }
    return model;
}

} // namespace shardplan::plan
