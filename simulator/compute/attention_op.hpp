#pragma once

#include <cstdint>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/stack.hpp"

namespace shardplan::sim {

/// How scores that are written to memory become probabilities. One kernel in all where `fused`
/// (Megatron's scaled masked softmax); otherwise passes of a framework's own operators.
struct SoftmaxPasses {
    enum class Mask : std::uint8_t {
        none,
        filled, ///< masked scores are overwritten, and their gradients
        summed, ///< a matrix of zeros and large negative numbers is added
    };
    bool fused = true;
    bool scales = false;       ///< scaled by a pass of its own, not inside the product
    bool in_32_bits = false;   ///< converted before and after
    bool copies_heads = false; ///< tokens come first in what the products read
    Mask mask = Mask::none;
};

/// The score products of attention on one rank, whatever made the queries, keys and values.
struct AttentionShape {
    Dtype dtype = Dtype::bf16;
    std::int64_t queries = 0; ///< of one sequence
    std::int64_t keys = 0;    ///< of one sequence
    std::int64_t qk = 0;      ///< elements of a head of queries and keys
    std::int64_t v = 0;       ///< of values
    double heads = 0.0;       ///< of one rank
    std::int64_t sequences = 1;
    std::int64_t window = 0; ///< keys a query sees at most; 0: all
    double pairs = 0.0;      ///< (query, key) pairs the mask leaves in all sequences, one head
    double all_pairs = 0.0;  ///< pairs without a mask
    double io_bytes = 0.0;   ///< queries, keys, values and output together
    AttentionImpl impl = AttentionImpl::flash_2;
    SoftmaxPasses softmax; ///< where `impl` writes scores
    bool dropout = false;
};

/// The operator of these products: flops, traffic, kernels. Fused kernels: two products per (query,
/// key) pair forward and five backward (Dao 2023, arXiv 2307.08691), inputs and outputs moved once.
/// Written-out scores: no use is made of the mask, and every pass over the scores is counted.
Op attention_op(const AttentionShape& shape);

} // namespace shardplan::sim
