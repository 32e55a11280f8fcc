#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/model/parameters.hpp"
#include "simulator/spec/model.hpp"

/// Decoders small enough for double and differences, in the shapes of published ones. The script
/// data/pytorch_reference.py builds the same ones.
namespace shardplan::test {

constexpr exec::Index tiny_sequence = 12;
constexpr exec::Index tiny_batch = 2;

inline sim::ModelSpec tiny_decoder(sim::BlockKind block, bool tied) {
    sim::ModelSpec model;
    model.name = "tiny";
    sim::Part trunk;
    trunk.name = "text";
    trunk.hidden = 24;
    trunk.runs = {{0, 2}};
    trunk.norm_kind = block.norms.kind;
    trunk.norm_bias = block.norms.bias;
    model.parts = {trunk};
    model.block_kinds = {std::move(block)};
    model.embedding.vocab = 50;
    model.embedding.tied = tied;
    return model;
}

/// LayerNorm, biases, learned positions, plain GELU, as many key heads as query heads.
inline sim::ModelSpec tiny_gpt2(bool tied = true) {
    sim::BlockKind block;
    block.name = "dense";
    block.attention.kind = sim::AttentionKind::mha;
    block.attention.heads = block.attention.kv_heads = 4;
    block.attention.qk_head_dim = block.attention.v_head_dim = 6;
    block.attention.qkv_bias = block.attention.out_bias = true;
    block.ffn.width = 96;
    block.ffn.bias = true;
    block.norms.kind = sim::NormKind::layernorm;
    block.norms.bias = true;
    sim::ModelSpec model = tiny_decoder(block, tied);
    model.embedding.positions = sim::Positions::learned;
    model.embedding.position_rows = tiny_sequence;
    return model;
}

/// RMSNorm, rotary positions, SwiGLU, two query heads for each key head.
inline sim::ModelSpec tiny_llama(bool tied = false) {
    sim::BlockKind block;
    block.name = "dense";
    block.attention.kind = sim::AttentionKind::gqa;
    block.attention.heads = 4;
    block.attention.kv_heads = 2;
    block.attention.qk_head_dim = block.attention.v_head_dim = 6;
    block.attention.rope_dim = 6;
    block.ffn.width = 40;
    block.ffn.gated = true;
    block.ffn.activation = sim::Activation::silu;
    return tiny_decoder(block, tied);
}

/// The same with four experts, of which a token uses two.
inline sim::ModelSpec tiny_mixtral(bool tied = false) {
    sim::ModelSpec model = tiny_llama(tied);
    sim::Ffn& ffn = model.block_kinds[0].ffn;
    ffn.kind = sim::FfnKind::moe;
    ffn.width = 0;
    ffn.experts = 4;
    ffn.top_k = 2;
    ffn.expert_width = 20;
    return model;
}

/// A norm of each query and key head, and every second block with a window of five tokens.
inline sim::ModelSpec tiny_qwen3() {
    sim::ModelSpec model = tiny_llama();
    model.block_kinds[0].attention.qk_norm = sim::QkNorm::per_head;
    sim::BlockKind sliding = model.block_kinds[0];
    sliding.name = "sliding";
    sliding.attention.window = 5;
    model.block_kinds.push_back(sliding);
    model.parts[0].runs = {{1, 1}, {0, 1}};
    return model;
}

/// A norm over all queries and one over all keys; norms behind the halves of a block, none in
/// front.
inline sim::ModelSpec tiny_olmo2() {
    sim::ModelSpec model = tiny_llama();
    sim::BlockKind& block = model.block_kinds[0];
    block.attention.qk_norm = sim::QkNorm::full_projection;
    block.norms.pre_attention = block.norms.pre_ffn = false;
    block.norms.post_attention = block.norms.post_ffn = true;
    return model;
}

/// Experts beside which a shared one is weighted by a gate; norms in front and behind.
inline sim::ModelSpec tiny_qwen2_moe() {
    sim::ModelSpec model = tiny_mixtral();
    sim::BlockKind& block = model.block_kinds[0];
    block.ffn.shared_width = 16;
    block.ffn.shared_gate = true;
    block.ffn.router_bias = true;
    block.attention.qkv_bias = true;
    block.norms.post_attention = block.norms.post_ffn = true;
    return model;
}

/// Queries, keys and values from compressed vectors, values narrower than keys; the first block
/// dense, in the others experts with a shared one.
inline sim::ModelSpec tiny_deepseek(exec::Index q_rank = 10) {
    sim::ModelSpec model = tiny_mixtral();
    sim::Attention& attention = model.block_kinds[0].attention;
    attention.kind = sim::AttentionKind::mla;
    attention.kv_heads = attention.heads;
    attention.qk_head_dim = 8;
    attention.v_head_dim = 6;
    attention.rope_dim = 4;
    attention.q_rank = q_rank;
    attention.kv_rank = 12;
    model.block_kinds[0].ffn.shared_width = 8;
    sim::BlockKind dense = model.block_kinds[0];
    dense.name = "first";
    dense.ffn = tiny_llama().block_kinds[0].ffn;
    model.block_kinds.push_back(dense);
    model.parts[0].runs = {{1, 1}, {0, 1}};
    return model;
}

/// Scores that fall with the distance, fewer key heads, values dropped everywhere.
inline sim::ModelSpec tiny_dropping() {
    sim::ModelSpec model = tiny_gpt2();
    model.embedding.positions = sim::Positions::alibi;
    model.embedding.position_rows = 0;
    model.block_kinds[0].attention.kind = sim::AttentionKind::gqa;
    model.block_kinds[0].attention.kv_heads = 2;
    model.attention_dropout = 0.2;
    model.hidden_dropout = 0.1;
    return model;
}

/// Halves of a block side by side, with one norm for both or one each; a bias of the output table.
inline sim::ModelSpec tiny_parallel(bool one_norm) {
    sim::ModelSpec model = tiny_gpt2(!one_norm);
    model.block_kinds[0].norms.parallel = true;
    model.block_kinds[0].norms.pre_ffn = !one_norm;
    model.block_kinds[0].attention.kind = sim::AttentionKind::gqa;
    model.block_kinds[0].attention.kv_heads = 2;
    model.block_kinds[0].attention.rope_dim = 4;
    model.embedding.positions = sim::Positions::rope;
    model.embedding.position_rows = 0;
    model.embedding.head_bias = true;
    return model;
}

/// A sink for each head, experts with biases, every block with a window; a norm behind the tables.
inline sim::ModelSpec tiny_gpt_oss() {
    sim::ModelSpec model = tiny_mixtral();
    model.block_kinds[0].attention.sinks = true;
    model.block_kinds[0].attention.window = 7;
    model.block_kinds[0].ffn.bias = true;
    model.embedding.norm = true;
    return model;
}

/// Values that a script in another language makes alike: waves, around one for scales of norms.
template <class Scalar>
void fill_with_waves(exec::Parameters<Scalar>& parameters) {
    const exec::ParameterTable& table = parameters.table();
    for (std::size_t p = 0; p < table.parameters.size(); ++p) {
        const exec::Parameter& at = table.parameters[p];
        const double middle = at.start == exec::Start::ones ? 1.0 : 0.0;
        for (exec::Index i = 0; i < at.count(); ++i) {
            const double angle = 1.7 * static_cast<double>(i) + static_cast<double>(p);
            parameters.values()[at.offset + i] =
                static_cast<Scalar>(middle + 0.2 * std::sin(angle * angle));
        }
    }
    parameters.changed();
}

/// Tokens of a step, and what follows each.
struct TinyBatch {
    std::vector<exec::Token> tokens, targets;
};
inline TinyBatch tiny_tokens(exec::Index step) {
    TinyBatch batch;
    for (exec::Index i = 0; i < tiny_sequence * tiny_batch; ++i) {
        batch.tokens.push_back(static_cast<exec::Token>((i * i + 7 * step) % 50));
        batch.targets.push_back(static_cast<exec::Token>((i * i + 2 * i + 7 * step + 1) % 50));
    }
    return batch;
}

} // namespace shardplan::test
