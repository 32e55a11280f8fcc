#include "simulator/memory/rank_parameters.hpp"

#include <algorithm>

#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

/// Trained elements of LoRA factors on one rank. A column-parallel map splits its outer factor, a
/// row-parallel one its inner factor. Source: Hu et al. 2021 (arXiv 2106.09685): two factors of
/// `rank` per adapted matrix.
double column_adapter(double rank, double in, double out, double split) {
    return rank * (in + out / split);
}
double row_adapter(double rank, double in, double out, double split) {
    return rank * (in / split + out);
}

RankParameters adapters_of(const BlockKind& kind, double hidden, const Method& method,
                           const Layout& layout) {
    const double r = as_double(method.rank);
    const double tp = layout.tp;
    RankParameters out;
    const Attention& a = kind.attention;
    if (a.kind == AttentionKind::mha || a.kind == AttentionKind::gqa) {
        const double q = as_double(a.heads * a.qk_head_dim);
        const double k = as_double(a.kv_heads * a.qk_head_dim);
        const double v = as_double(a.kv_heads * a.v_head_dim);
        out.dense += column_adapter(r, hidden, q, tp) + column_adapter(r, hidden, k, tp) +
                     column_adapter(r, hidden, v, tp) +
                     row_adapter(r, as_double(a.heads * a.v_head_dim), hidden, tp);
    } else if (a.kind == AttentionKind::mla) {
        const double q_in = a.q_rank > 0 ? as_double(a.q_rank) : hidden;
        out.dense +=
            column_adapter(r, q_in, as_double(a.heads * a.qk_head_dim), tp) +
            column_adapter(r, hidden, as_double(a.kv_rank + a.rope_dim), 1.0) +
            column_adapter(r, as_double(a.kv_rank),
                           as_double(a.heads * (a.qk_head_dim - a.rope_dim + a.v_head_dim)), tp) +
            row_adapter(r, as_double(a.heads * a.v_head_dim), hidden, tp);
        if (a.q_rank > 0) {
            out.dense += column_adapter(r, hidden, as_double(a.q_rank), 1.0);
        }
    }
    if (method.targets == LoraTargets::attention) {
        return out;
    }
    const Ffn& f = kind.ffn;
    const double inner = f.gated ? 2.0 : 1.0;
    const std::int64_t dense_width = f.kind == FfnKind::dense ? f.width : f.shared_width;
    if (dense_width > 0) {
        out.dense += inner * column_adapter(r, hidden, as_double(dense_width), tp) +
                     row_adapter(r, as_double(dense_width), hidden, tp);
    }
    if (f.kind == FfnKind::moe) {
        const double etp = as_double(etp_of(layout));
        out.expert += as_double(f.experts) / layout.ep *
                      (inner * column_adapter(r, hidden, as_double(f.expert_width), etp) +
                       row_adapter(r, as_double(f.expert_width), hidden, etp));
    }
    return out;
}

/// Base weights under LoRA are frozen; the rest of the model is not trained either.
RankParameters freeze(const RankParameters& all, double matrices) {
    RankParameters out;
    out.frozen = all.trained();
    out.frozen_matrix = matrices;
    return out;
}

} // namespace

RankParameters block_on_rank(const BlockKind& kind, std::int64_t hidden, const Resolved& resolved,
                             const Layout& layout) {
    const BlockParameters p = block_parameters(kind, hidden);
    const Attention& a = kind.attention;
    const double tp = layout.tp;
    double attention = as_double(p.attention_matrices + p.attention_bias) / tp;
    const bool heads_split = a.kind == AttentionKind::mha || a.kind == AttentionKind::gqa;
    if (heads_split && a.kv_heads > 0 && tp > as_double(a.kv_heads)) {
        // Every rank keeps at least one whole KV head.
        const double kv_width = as_double(a.qk_head_dim + a.v_head_dim);
        const double kv_in = as_double(hidden) + (a.qkv_bias ? 1.0 : 0.0);
        attention += kv_in * kv_width * (1.0 - as_double(a.kv_heads) / tp);
    }
    const double etp = as_double(etp_of(layout));
    const double matrices = attention + as_double(p.ffn_matrices) / tp;
    const double experts = as_double(p.expert_matrices) / layout.ep / etp;
    RankParameters out;
    out.dense =
        matrices +
        as_double(p.attention_replicated + p.ffn_bias_replicated + p.router + p.norms + p.opaque) +
        as_double(p.ffn_bias_split) / tp;
    out.expert = experts;
    if (kind.ffn.kind == FfnKind::moe && kind.ffn.bias) {
        // of the last map whole on every rank that splits the expert
        const double inner = as_double(kind.ffn.expert_width) * (kind.ffn.gated ? 2.0 : 1.0);
        out.expert += as_double(kind.ffn.experts) / layout.ep * (inner / etp + as_double(hidden));
    }
    if (resolved.method.kind == MethodKind::full) {
        return out;
    }
    RankParameters lora = freeze(out, matrices + experts);
    lora += adapters_of(kind, as_double(hidden), resolved.method, layout);
    return lora;
}

namespace {

double table_width(const ModelSpec& model) {
    const std::int64_t projected = model.embedding.projection_width;
    return as_double(projected > 0 ? projected : trunk_of(model)->hidden);
}

/// Elements of one padded table on a rank.
double table_on_rank(const ModelSpec& model, const Resolved& resolved, const Layout& layout) {
    const Embedding& e = model.embedding;
    const std::int64_t rows = resolved.vocab_multiple > 0
                                  ? padded_vocab(e.vocab, resolved.vocab_multiple, layout.tp)
                                  : e.vocab;
    return as_double(rows) / layout.tp * table_width(model);
}

} // namespace

RankParameters embedding_on_rank(const ModelSpec& model, const Resolved& resolved,
                                 const Layout& layout) {
    const Part& trunk = *trunk_of(model);
    const Embedding& e = model.embedding;
    RankParameters out;
    out.dense = table_on_rank(model, resolved, layout) +
                as_double(e.position_rows) * as_double(trunk.hidden);
    if (e.norm) {
        out.dense += as_double(trunk.hidden) * (trunk.norm_bias ? 2.0 : 1.0);
    }
    if (e.projection_width > 0 && e.projection_width != trunk.hidden) {
        out.dense += as_double(e.projection_width) * as_double(trunk.hidden);
    }
    return resolved.method.kind == MethodKind::full ? out : freeze(out, 0.0);
}

RankParameters head_on_rank(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                            bool with_embedding) {
    const Part& trunk = *trunk_of(model);
    const Embedding& e = model.embedding;
    RankParameters out;
    if (trunk.final_norm && trunk.norm_affine) {
        out.dense += as_double(trunk.hidden) * (trunk.norm_bias ? 2.0 : 1.0);
    }
    if (!(e.tied && with_embedding)) {
        out.dense += table_on_rank(model, resolved, layout);
    }
    if (e.head_bias) {
        out.dense += table_on_rank(model, resolved, layout) / table_width(model);
    }
    if (e.projection_width > 0 && e.projection_width != trunk.hidden) {
        out.dense += as_double(e.projection_width) * as_double(trunk.hidden);
    }
    return resolved.method.kind == MethodKind::full ? out : freeze(out, 0.0);
}

RankParameters prediction_joints_on_rank(const ModelSpec& model, const Resolved& resolved,
                                         const Layout& layout, bool with_embedding) {
    RankParameters sum;
    for (const Part& part : model.parts) {
        if (part.role != PartRole::mtp) {
            continue;
        }
        RankParameters rest;
        rest.dense = as_double(part.other_parameters) / layout.tp;
        if (part.final_norm && part.norm_affine) {
            rest.dense += as_double(part.hidden) * (part.norm_bias ? 2.0 : 1.0);
        }
        if (!with_embedding) {
            rest.dense += table_on_rank(model, resolved, layout);
        }
        sum += resolved.method.kind == MethodKind::full ? rest : freeze(rest, 0.0);
    }
    return sum;
}

RankParameters prediction_modules_on_rank(const ModelSpec& model, const Resolved& resolved,
                                          const Layout& layout, bool with_embedding) {
    RankParameters sum;
    for (const Part& part : model.parts) {
        if (part.role != PartRole::mtp) {
            continue;
        }
        for (const Run& run : part.runs) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
            sum +=
                static_cast<double>(run.count) * block_on_rank(kind, part.hidden, resolved, layout);
        }
    }
    sum += prediction_joints_on_rank(model, resolved, layout, with_embedding);
    return sum;
}

RankParameters stage_on_rank(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                             const Stage& stage) {
    const Part& trunk = *trunk_of(model);
    RankParameters sum;
    if (stage.has_embedding) {
        sum += embedding_on_rank(model, resolved, layout);
    }
    for (const Stage::Slice& slice : stage.chunks) {
        for (const KindCount& kc : kinds_in(trunk, slice)) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(kc.kind)];
            sum +=
                static_cast<double>(kc.count) * block_on_rank(kind, trunk.hidden, resolved, layout);
        }
    }
    if (stage.has_head) {
        sum += head_on_rank(model, resolved, layout, stage.has_embedding);
        sum += prediction_modules_on_rank(model, resolved, layout, stage.has_embedding);
    }
    return sum;
}

ShardDegrees shard_degrees(const Layout& layout) {
    const double all = static_cast<double>(layout.dp) * layout.cp;
    const std::int64_t experts =
        std::max<std::int64_t>(1, std::int64_t{layout.dp} * layout.cp * layout.tp /
                                      (std::int64_t{layout.ep} * etp_of(layout)));
    ShardDegrees out;
    out.dense = layout.shard_group > 0 ? layout.shard_group : all;
    // every rank that holds them keeps a piece of the same size
    std::int64_t parts = std::min(experts, static_cast<std::int64_t>(out.dense));
    while (experts % parts != 0)
        --parts;
    out.expert = static_cast<double>(parts);
    return out;
}

} // namespace shardplan::sim
