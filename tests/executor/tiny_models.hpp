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
