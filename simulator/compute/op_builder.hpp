#pragma once

#include <cstdint>
#include <string_view>

#include "simulator/compute/op_list.hpp"

/// Private to the op_list files: what the operators of blocks, embedding and head have in common.
namespace shardplan::sim {

/// Which groups of memory-bound operators a stack runs as one kernel each, from its TensorRules.
struct Fusion {
    bool elementwise = false; ///< bias + activation, bias + dropout + add
    bool glu = false;         ///< both inputs of a gated product
    bool rope = false;
    bool norm = false;                  ///< root-mean-square norm (layer norm always is)
    bool gradient_accumulation = false; ///< weight gradients are added inside the product
    LossImpl loss = LossImpl::eager;
};
Fusion fusion_of(const StackProfile& stack);

/// Format of activations between products: 16 bits also where products run in 8 or 4.
Dtype activation_dtype(const Resolved& resolved);

/// Sizes every operator needs, per rank and micro-batch.
struct OpContext {
    const ModelSpec& model;
    const Resolved& resolved;
    const StackProfile& stack;
    const ShardingKey& key;
    Fusion fusion;
    std::int64_t hidden = 0;
    double tokens = 0.0;       ///< of a tensor-parallel group: micro-batch x sequence / cp
    double local_tokens = 0.0; ///< on one rank outside the split layers: / tp with sp
    Dtype activation = Dtype::bf16;
    double element = 2.0; ///< bytes of one activation element
};
OpContext op_context(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                     const ShardingKey& key, std::int64_t hidden);

/// Bytes moved to bring one 16-bit element into a format of `narrow` bytes, both orientations.
double cast_bytes(const OpContext& c, double narrow);

/// Products of experts that Transformer Engine runs side by side.
/// Source: transformer_engine/common/gemm, multi-stream cuBLAS.
constexpr std::int64_t te_streams = 4;

/// How a linear map is split over the tensor-parallel group.
enum class Split : std::uint8_t {
    column,     ///< output split; the input is whole (gathered under sp)
    row,        ///< input split; partial outputs are summed
    replicated, ///< every rank has the whole map, and under sp its own tokens
};

/// One linear map before splitting.
struct LinearShape {
    std::string_view name;
    std::string_view lora_down; ///< names of its adapter's operators; empty: never adapted
    std::string_view lora_up;
    Split split = Split::column;
    double in = 0.0;  ///< elements, whole
    double out = 0.0; ///< elements, whole
    double out_local =
        0.0; ///< elements on one rank if not out / tp (replicated KV heads); 0 = that
    bool bias = false;
    bool gathers_input = true; ///< false: another operator has gathered or reduces it
    bool gathers_again = true; ///< under sp, for the gradient of the weights
    bool reduces_output = true;
    bool attention = false; ///< belongs to the attention half (adapter targets)
    double maps = 1.0;  ///< maps of the input that run as one product; adapters have one pair each
    bool narrow = true; ///< false: stays in 16 bits where the others run in 8 or 4 (router, head)
};

/// Appends a linear map, and its adapter where the method asks for one.
void add_linear(const OpContext& c, const LinearShape& shape, OpList& out);
/// Appends a norm over `width` elements of each of `tokens`.
void add_norm(const OpContext& c, std::string_view name, NormKind kind, bool affine, bool bias,
              double tokens, double width, OpList& out);
/// Appends the sum with the residual stream (and dropout).
void add_residual(const OpContext& c, std::string_view name, OpList& out);
/// Appends rotary embedding of `width` elements of each token.
void add_rope(const OpContext& c, double width, OpList& out);
/// Appends the activation function between the maps of a position-wise network.
void add_activation(const OpContext& c, std::string_view name, const Ffn& ffn, double tokens,
                    double width, OpList& out);

/// Tokens of one rank's routed experts, for the busiest rank. The tokens of an expert group are
/// those of its ranks together, so their number per rank does not fall with ep.
struct RoutedTokens {
    double sent = 0.0; ///< (token, expert) pairs this rank routes
    double done = 0.0; ///< pairs its experts work on
};
RoutedTokens routed_tokens(const OpContext& c, const Ffn& f);
/// Whether tensor-parallel ranks, which have the same tokens, each send a part of them to experts
/// that are not split as the rest, and then gather what came back.
/// Source: DeepSpeed, moe/mappings.py (drop_tokens, gather_tokens).
bool shares_tokens(const OpContext& c);

void add_attention(const OpContext& c, const BlockKind& kind, OpList& out);
/// All but the routed experts: of those the router alone.
void add_ffn(const OpContext& c, const BlockKind& kind, OpList& out);
/// From the exchange of tokens to their return. Nothing before it reads how experts are split.
void add_routed_experts(const OpContext& c, const BlockKind& kind, OpList& out);

/// (query, key) pairs of one micro-batch that causal attention needs, all queries of the cp group.
/// With a window w: each query sees at most w keys.
double causal_pairs(const Resolved& resolved, std::int64_t micro_batch, std::int64_t window);

} // namespace shardplan::sim
