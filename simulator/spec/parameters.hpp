#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "simulator/spec/model.hpp"

namespace shardplan::sim {

/// How one group of parameters is split, which decides how many a rank holds.
struct BlockParameters {
    std::int64_t attention_matrices = 0; ///< split by tp (q, k, v, o and MLA up-projections)
    /// MLA down-projections with their norms, query-key norms, the bias of the output.
    std::int64_t attention_replicated = 0;
    std::int64_t attention_bias = 0; ///< biases of q, k, v and sinks, split by tp
    std::int64_t ffn_matrices = 0;   ///< dense or shared expert matrices, split by tp
    std::int64_t ffn_bias_split = 0; ///< biases of column-parallel maps
    std::int64_t ffn_bias_replicated = 0;
    std::int64_t router = 0;          ///< replicated over tp; correction bias included
    std::int64_t expert_matrices = 0; ///< all routed experts, split by ep x etp
    std::int64_t expert_bias = 0;
    std::int64_t norms = 0;  ///< replicated
    std::int64_t opaque = 0; ///< kinds whose inside is not described

    [[nodiscard]] std::int64_t total() const;
    friend bool operator==(const BlockParameters&, const BlockParameters&) = default;
};

/// Parameters of one block in a part of width `hidden`.
BlockParameters block_parameters(const BlockKind& kind, std::int64_t hidden);

/// Exact counts. `total`: what is trained, tied tables once, learned positions with all rows,
/// router correction biases, without MTP modules and buffers. `active`: total less the routed
/// experts a token is not sent to. `embedding`: input table and untied head.
struct ParameterCounts {
    struct OfPart {
        std::string name;
        PartRole role = PartRole::trunk;
        std::int64_t total = 0; ///< trunk: with embedding and head
        friend bool operator==(const OfPart&, const OfPart&) = default;
    };
    struct OfKind {
        std::string name;
        std::int64_t per_block = 0;
        std::int64_t blocks = 0;
        friend bool operator==(const OfKind&, const OfKind&) = default;
    };
    std::int64_t total = 0;
    std::int64_t active = 0;
    std::int64_t embedding = 0;
    std::int64_t mtp = 0;
    std::vector<OfPart> parts;
    std::vector<OfKind> block_kinds;

    friend bool operator==(const ParameterCounts&, const ParameterCounts&) = default;
};

ParameterCounts count_parameters(const ModelSpec& model);

/// Rows of the token table after padding to a multiple of `multiple` x `tp`.
/// Source: Megatron-LM pads the vocabulary to make-vocab-size-divisible-by x tp.
std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int64_t tp);

/// Modules that predict further tokens, over all parts.
std::int64_t prediction_modules(const ModelSpec& model);

} // namespace shardplan::sim
