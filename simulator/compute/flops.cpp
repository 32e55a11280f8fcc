#include "simulator/compute/flops.hpp"

#include <algorithm>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

/// Parameters of a block that one token is multiplied with.
double multiplied_parameters(const BlockKind& kind, std::int64_t hidden) {
    const Attention& a = kind.attention;
    const BlockParameters p = block_parameters(kind, hidden);
    double n = static_cast<double>(p.attention_matrices) + static_cast<double>(p.ffn_matrices) +
               static_cast<double>(p.opaque);
    if (a.kind == AttentionKind::mla) {
        n += static_cast<double>(hidden) * static_cast<double>(a.q_rank + a.kv_rank + a.rope_dim);
    }
    if (kind.ffn.kind == FfnKind::moe && kind.ffn.experts > 0) {
        n += static_cast<double>(hidden) * static_cast<double>(kind.ffn.experts);
        n += static_cast<double>(p.expert_matrices) * static_cast<double>(kind.ffn.top_k) /
             static_cast<double>(kind.ffn.experts);
    }
    return n;
}

/// Forward flops of the score products of one sample in one block, causality not used.
double attention_flops(const Attention& a, const Resolved& r) {
    if (a.heads == 0) return 0.0;
    const auto s = static_cast<double>(r.sequence);
    double pairs = r.sequence_mean_square > 0.0 ? r.sequence_mean_square : s * s;
    if (a.window > 0) pairs = std::min(pairs, s * static_cast<double>(a.window));
    return 2.0 * pairs * static_cast<double>(a.heads) *
           static_cast<double>(a.qk_head_dim + a.v_head_dim);
}

/// Sums `of_kind` over the blocks of the trunk and of the modules that predict further tokens.
template <class F>
double over_blocks(const ModelSpec& model, F of_kind) {
    const Part* trunk = trunk_of(model);
    double sum = 0.0;
    for (const Part& part : model.parts) {
        if (&part != trunk && part.role != PartRole::mtp) continue;
        for (const Run& run : part.runs) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
            sum += static_cast<double>(run.count) * of_kind(kind, part.hidden);
        }
    }
    return sum;
}

} // namespace

Flops selective_forward_flops_per_step(const ModelSpec& model, const Resolved& r,
                                       const StackProfile& stack) {
    const auto again = [&](const BlockKind& kind, std::int64_t hidden) {
        double sum = 0.0;
        for (const Op& op : block_ops(kind, hidden, model, r, stack, ShardingKey{})) {
            const double flops = op.kind == OpKind::attention ? attention_flops(kind.attention, r)
                                                              : op.flops_forward;
            sum += op.selective_share * flops;
        }
        return sum;
    };
    return Flops(static_cast<double>(r.global_batch) * over_blocks(model, again));
}

namespace {

/// Forward flops of the blocks' products with weights.
Flops products_per_step(const ModelSpec& model, const Resolved& r) {
    const double tokens = static_cast<double>(r.global_batch) * static_cast<double>(r.sequence);
    return Flops(2.0 * tokens * over_blocks(model, multiplied_parameters));
}

} // namespace

Flops block_forward_flops_per_step(const ModelSpec& model, const Resolved& r) {
    const auto scores = [&](const BlockKind& kind, std::int64_t) {
        return attention_flops(kind.attention, r);
    };
    return products_per_step(model, r) +
           Flops(static_cast<double>(r.global_batch) * over_blocks(model, scores));
}

Flops model_flops_per_step(const ModelSpec& model, const Resolved& r) {
    const Part* trunk = trunk_of(model);
    if (trunk == nullptr) return {};
    const double tokens = static_cast<double>(r.global_batch) * static_cast<double>(r.sequence);
    const Embedding& e = model.embedding;
    const std::int64_t width = e.projection_width > 0 ? e.projection_width : trunk->hidden;
    const double head = static_cast<double>(e.vocab) * static_cast<double>(width);
    // a module joins two vectors of the hidden width by one map, and has a head of its own
    const auto modules = static_cast<double>(prediction_modules(model));
    const auto hidden = static_cast<double>(trunk->hidden);
    const double ends = head + modules * (2.0 * hidden * hidden + head);
    const Flops forward = block_forward_flops_per_step(model, r) + Flops(2.0 * tokens * ends);
    if (r.method.kind == MethodKind::full) return 3.0 * forward;
    // Frozen weights need no gradient: their products run forward and for the input only.
    const Flops scores = block_forward_flops_per_step(model, r) - products_per_step(model, r);
    return 2.0 * (forward - scores) + 3.0 * scores;
}

} // namespace shardplan::sim
