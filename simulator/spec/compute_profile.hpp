#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// What one generation of fused attention kernels reaches on an architecture.
///
/// A (query, key) pair costs 2 (qk + v) flops forward and 2 (3 qk + 2 v) backward, and one
/// exponential each; a block of queries works on `edge` keys more than it needs. Heads of more than
/// `widest` elements leave room for fewer rows beside them, and reach less. Source: Dao 2023
/// (arXiv 2307.08691), section 3; Shah et al. 2024 (arXiv 2407.08608), section 3.
struct AttentionRate {
    std::int64_t widest = 256;    ///< elements of a head, mean of keys and values
    Constant forward_efficiency;  ///< of the dense 16-bit peak, matrix work of the forward pass
    Constant backward_efficiency; ///< the same, backward
    Constant exponential;         ///< flops of matrix work that take as long as one exponential
    Constant edge;                ///< keys
    Constant wide_forward;        ///< of forward_efficiency, heads wider than `widest`
    Constant wide_backward;       ///< of backward_efficiency

    friend bool operator==(const AttentionRate&, const AttentionRate&) = default;
};

/// Bytes/s that memory-bound operators get through, by what they compute: on a processor the
/// instructions of an exponential or a sum take longer than the bytes they work on. Bytes as the
/// operators of a block count them: every operand once.
struct OperatorRates {
    Constant norm_forward;
    Constant norm_backward;
    Constant activation_forward; ///< GELU
    Constant activation_backward;
    Constant gate_forward; ///< a gated activation: SiLU and product
    Constant gate_backward;
    Constant rope;
    Constant loss;   ///< softmax and its gradient
    Constant sums;   ///< biases, residuals, tables of tokens
    Constant update; ///< gradients zeroed and summed up, the optimizer's step

    friend bool operator==(const OperatorRates&, const OperatorRates&) = default;
};

/// What the libraries of an architecture reach, whatever the software stack, as Constants. One data
/// file per architecture ("hopper", "ampere"); a device file overrides what differs for the product
/// (power limit). A Constant without a source is not stated: then nothing is lost.
struct ComputeProfile {
    std::string name;
    std::string note;
    std::int64_t tile_m = 128;  ///< rows of the output that one compute unit works on at a time
    std::int64_t tile_n = 128;  ///< its columns
    Constant matrix_efficiency; ///< of the dense peak, large 16-bit products, sustained
    Constant narrow_matrix_efficiency; ///< the same, formats of 8 bits and less
    Constant matrix_ramp;       ///< elements of k a tile takes as long as before its first product
    Constant kernel_time;       ///< seconds one kernel takes beside its work
    Constant memory_efficiency; ///< of the sheet bandwidth, large element-wise kernels
    Constant gather_efficiency; ///< the same, kernels that sort rows (tokens to experts and back)
    /// Clock under lasting load over that of the product its attention rates were measured on.
    Constant attention_clock;
    Constant attention_tail; ///< of the longest block of queries, while units run dry at the end
    AttentionRate flash_1;
    AttentionRate flash_2;
    AttentionRate flash_3;
    AttentionRate cudnn;
    std::optional<OperatorRates> operators; ///< none: memory alone bounds them

    friend bool operator==(const ComputeProfile&, const ComputeProfile&) = default;
};

/// The value, or `otherwise` where nobody states one.
inline double value_or(const Constant& constant, double otherwise) {
    return constant.source.empty() ? otherwise : constant.value;
}

void describe(FieldVisitor& v, AttentionRate& x);
void describe(FieldVisitor& v, OperatorRates& x);
void describe(FieldVisitor& v, ComputeProfile& x);

} // namespace shardplan::sim
