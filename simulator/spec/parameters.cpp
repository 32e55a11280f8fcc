#include "simulator/spec/parameters.hpp"

#include <algorithm>
#include <limits>

namespace shardplan::sim {

namespace {

/// A count that stays at the largest integer instead of wrapping around. Sizes come from files; a
/// product too large must be recognisable as such (see check_model), not become a small number.
class Count {
public:
    Count(std::int64_t n) : n_(n) {} // NOLINT(google-explicit-constructor): reads as arithmetic

    [[nodiscard]] std::int64_t value() const { return n_; }

    friend Count operator+(Count a, Count b) {
        std::int64_t sum = 0;
        return __builtin_add_overflow(a.n_, b.n_, &sum) ? largest() : Count(sum);
    }
    friend Count operator*(Count a, Count b) {
        std::int64_t product = 0;
        return __builtin_mul_overflow(a.n_, b.n_, &product) ? largest() : Count(product);
    }

private:
    static Count largest() { return {std::numeric_limits<std::int64_t>::max()}; }

    std::int64_t n_;
};

Count when(bool condition, Count n) { return condition ? n : Count(0); }

/// Parameters of `n` norms of `width` elements.
Count norm_parameters(std::int64_t n, std::int64_t width, bool affine, bool bias) {
    return Count(n) * width * (affine ? (bias ? 2 : 1) : 0);
}

/// Source: Vaswani et al. 2017 (arXiv 1706.03762) with separate key-value heads as in Ainslie et
/// al. 2023 (arXiv 2305.13245).
void count_plain_attention(const Attention& a, Count hidden, BlockParameters& out) {
    const Count q_width = Count(a.heads) * a.qk_head_dim * (a.output_gate ? 2 : 1);
    const Count k_width = Count(a.kv_heads) * a.qk_head_dim;
    const Count v_width = Count(a.kv_heads) * a.v_head_dim;
    const Count qkv_width = q_width + k_width + v_width;
    out.attention_matrices = (hidden * (qkv_width + Count(a.heads) * a.v_head_dim)).value();
    out.attention_bias = (when(a.qkv_bias, qkv_width) + when(a.sinks, a.heads)).value();
    Count replicated = when(a.out_bias, hidden);
    if (a.qk_norm == QkNorm::per_head) {
        replicated = replicated + Count(2) * a.qk_head_dim;
    } else if (a.qk_norm == QkNorm::full_projection) {
        replicated = replicated + Count(a.heads) * a.qk_head_dim + k_width;
    }
    out.attention_replicated = replicated.value();
}

/// Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; biases sit on the down-projections as in
/// the transformers class DeepseekV3Attention.
void count_latent_attention(const Attention& a, Count hidden, BlockParameters& out) {
    const Count q_width = Count(a.heads) * a.qk_head_dim;
    const Count kv_down = Count(a.kv_rank) + a.rope_dim;
    const Count kv_up = Count(a.heads) * (Count(a.qk_head_dim) + -a.rope_dim + a.v_head_dim);
    const Count q_in = a.q_rank > 0 ? Count(a.q_rank) : hidden;
    out.attention_matrices =
        (q_in * q_width + Count(a.kv_rank) * kv_up + Count(a.heads) * a.v_head_dim * hidden)
            .value();
    out.attention_bias = when(a.sinks, a.heads).value();
    out.attention_replicated = (hidden * a.q_rank + a.q_rank + hidden * kv_down + a.kv_rank +
                                when(a.qkv_bias, kv_down + a.q_rank) + when(a.out_bias, hidden))
                                   .value();
}

/// Parameters of one routed expert, matrices and biases.
Count expert_parameters(const Ffn& f, Count hidden) {
    return hidden * f.expert_width * (f.gated ? 3 : 2) +
           when(f.bias, Count(f.expert_width) * (f.gated ? 2 : 1) + hidden);
}

void count_ffn(const Ffn& f, Count hidden, BlockParameters& out) {
    const std::int64_t matrices = f.gated ? 3 : 2;
    if (f.kind == FfnKind::linear) {
        out.opaque = (Count(out.opaque) + hidden * hidden + when(f.bias, hidden)).value();
        return;
    }
    if (f.kind == FfnKind::none) {
        return;
    }
    const std::int64_t dense_width = f.kind == FfnKind::dense ? f.width : f.shared_width;
    out.ffn_matrices = (hidden * dense_width * matrices).value();
    if (f.bias && dense_width > 0) {
        out.ffn_bias_split = (Count(dense_width) * (matrices - 1)).value();
        out.ffn_bias_replicated = hidden.value();
    }
    if (f.kind == FfnKind::moe) {
        out.router = (hidden * f.experts + when(f.router_bias, f.experts) +
                      when(f.router_correction, f.experts) + when(f.shared_gate, hidden))
                         .value();
        out.expert_matrices = (Count(f.experts) * (hidden * f.expert_width * matrices)).value();
        if (f.bias) {
            out.expert_bias =
                (Count(f.experts) * (Count(f.expert_width) * (matrices - 1) + hidden)).value();
        }
    }
}

/// Blocks, final norm and the rest of a part.
Count part_parameters(const ModelSpec& model, const Part& part) {
    Count total =
        Count(part.other_parameters) +
        norm_parameters(part.final_norm ? 1 : 0, part.hidden, part.norm_affine, part.norm_bias);
    for (const Run& run : part.runs) {
        const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
        total = total + Count(run.count) * block_parameters(kind, part.hidden).total();
    }
    return total;
}

/// Routed experts of a part that a token is not sent to.
Count idle_expert_parameters(const ModelSpec& model, const Part& part) {
    Count idle = 0;
    for (const Run& run : part.runs) {
        const Ffn& ffn = model.block_kinds[static_cast<std::size_t>(run.kind)].ffn;
        if (ffn.kind == FfnKind::moe) {
            idle = idle + Count(run.count) * std::max<std::int64_t>(0, ffn.experts - ffn.top_k) *
                              expert_parameters(ffn, part.hidden);
        }
    }
    return idle;
}

/// Input table and untied head.
Count table_parameters(const Embedding& e, std::int64_t hidden) {
    const std::int64_t width = e.projection_width > 0 ? e.projection_width : hidden;
    return Count(e.vocab) * width * (e.tied ? 1 : 2);
}

/// Everything between tokens and trunk, and between trunk and logits.
Count embedding_parameters(const Embedding& e, const Part& trunk) {
    const Count projections = when(e.projection_width > 0 && e.projection_width != trunk.hidden,
                                   Count(2) * e.projection_width * trunk.hidden);
    return table_parameters(e, trunk.hidden) + projections + Count(e.position_rows) * trunk.hidden +
           norm_parameters(e.norm ? 1 : 0, trunk.hidden, trunk.norm_affine, trunk.norm_bias) +
           when(e.head_bias, e.vocab);
}

} // namespace

std::int64_t BlockParameters::total() const {
    return (Count(attention_matrices) + attention_replicated + attention_bias + ffn_matrices +
            ffn_bias_split + ffn_bias_replicated + router + expert_matrices + expert_bias + norms +
            opaque)
        .value();
}

BlockParameters block_parameters(const BlockKind& kind, std::int64_t hidden) {
    BlockParameters out;
    const Attention& a = kind.attention;
    switch (a.kind) {
        case AttentionKind::mha:
        case AttentionKind::gqa:
            count_plain_attention(a, hidden, out);
            break;
        case AttentionKind::mla:
            count_latent_attention(a, hidden, out);
            break;
        case AttentionKind::linear:
        case AttentionKind::ssm:
        case AttentionKind::none:
            break;
    }
    out.opaque = a.opaque_parameters;
    count_ffn(kind.ffn, hidden, out);
    const Norms& n = kind.norms;
    const int norms =
        int{n.pre_attention} + int{n.post_attention} + int{n.pre_ffn} + int{n.post_ffn};
    out.norms = norm_parameters(norms, hidden, n.affine, n.bias).value();
    return out;
}

ParameterCounts count_parameters(const ModelSpec& model) {
    ParameterCounts out;
    Count total = 0;
    Count idle = 0;
    Count mtp = 0;
    std::vector<std::int64_t> blocks_of_kind(model.block_kinds.size(), 0);
    std::vector<std::int64_t> width_of_kind(model.block_kinds.size(), 0);
    const Part* trunk = trunk_of(model);
    for (const Part& part : model.parts) {
        Count in_part = part_parameters(model, part);
        if (&part == trunk) {
            in_part = in_part + embedding_parameters(model.embedding, part);
            out.embedding = table_parameters(model.embedding, part.hidden).value();
        }
        if (part.role == PartRole::mtp) {
            mtp = mtp + in_part;
        } else {
            total = total + in_part;
            idle = idle + idle_expert_parameters(model, part);
        }
        out.parts.push_back({part.name, part.role, in_part.value()});
        for (const Run& run : part.runs) {
            blocks_of_kind[static_cast<std::size_t>(run.kind)] += run.count;
            width_of_kind[static_cast<std::size_t>(run.kind)] = part.hidden;
        }
    }
    for (std::size_t k = 0; k < model.block_kinds.size(); ++k) {
        const BlockKind& kind = model.block_kinds[k];
        out.block_kinds.push_back(
            {kind.name, block_parameters(kind, width_of_kind[k]).total(), blocks_of_kind[k]});
    }
    out.total = total.value();
    out.active = total.value() - std::min(idle.value(), total.value());
    out.mtp = mtp.value();
    return out;
}

std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int64_t tp) {
    const std::int64_t step = multiple * tp;
    return step <= 0 ? vocab : (vocab + step - 1) / step * step;
}

std::int64_t prediction_modules(const ModelSpec& model) {
    std::int64_t modules = 0;
    for (const Part& part : model.parts) {
        if (part.role == PartRole::mtp) modules += block_count(part);
    }
    return modules;
}

} // namespace shardplan::sim
