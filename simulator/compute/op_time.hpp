#pragma once

#include <array>
#include <cstdint>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/spec/stack.hpp"
#include "simulator/units/quantity.hpp"

namespace shardplan::sim {

/// What fused attention reaches, prepared once.
struct AttentionRates {
    double forward = 1.0;       ///< of the 16-bit peak
    double backward = 1.0;      ///< of the 16-bit peak
    std::int64_t widest = 256;  ///< elements of a head
    double wide_forward = 1.0;  ///< of `forward`, heads wider than that
    double wide_backward = 1.0; ///< of `backward`
    double exponential = 0.0;   ///< flops per (query, key) pair
    double edge = 0.0;          ///< keys per query
    double tail = 0.0;          ///< of the longest block of queries
};

/// Seconds per byte of memory-bound work in each pass.
struct SecondsPerByte {
    double forward = 0.0;
    double backward = 0.0;
};

/// What a device reaches under a stack, prepared once.
struct ComputeRates {
    using ByDtype = std::array<double, EnumNames<Dtype>::names.size()>;
    ByDtype peak{};   ///< flops/s, dense; 0 = no such unit
    ByDtype matrix{}; ///< flops/s of large products
    AttentionRates attention;
    double memory_rate = 0.0; ///< bytes/s of memory-bound kernels
    double gather_rate = 0.0; ///< bytes/s of kernels that sort rows
    double update_rate = 0.0; ///< bytes/s of the optimizer's step
    /// Of operators whose instructions bound them, by OpKind; of gated activations. 0: memory does.
    std::array<SecondsPerByte, EnumNames<OpKind>::names.size()> per_byte{};
    SecondsPerByte per_gated_byte;
    std::int64_t compute_units = 0; ///< 0 = not known: no quantization
    std::int64_t tile_m = 128;      ///< rows of the output a compute unit works on at a time
    std::int64_t tile_n = 128;      ///< its columns
    double ramp = 0.0;              ///< elements of k
    double kernel_time = 0.0;       ///< seconds of a kernel beside its work
    double launch = 0.0;            ///< seconds per kernel; 0 with CUDA graphs
    double kernels_per_block = 0.0;
    double passes = 1.0; ///< traffic of element-wise work over that of the operators alone
    bool fused_accumulation = false; ///< weight gradients are added inside the product
    double gradient_element = 4.0;   ///< bytes
};
ComputeRates compute_rates(const Device& device, const StackProfile& stack,
                           const Resolved& resolved);

/// The rates of a generation of fused attention kernels; of the second where scores are written
/// out.
const AttentionRate& rate_of(const ComputeProfile& compute, AttentionImpl impl);

/// Peak of a format. Formats without units of their own run as the next wider one does:
/// bf16 and fp16 as one another, then fp32; tf32 as fp32; 0 if nothing is known.
double peak_of(const Device& device, Dtype dtype);

/// Device time of one operator by what it is spent on, one pass, one micro-batch.
struct PassCost {
    double gemm = 0.0;
    double attention = 0.0;
    double elementwise = 0.0;
    double kernels = 0.0;

    [[nodiscard]] double device() const { return gemm + attention + elementwise; }
    PassCost& operator+=(const PassCost& o);
    friend PassCost operator*(double share, PassCost c);
    friend bool operator==(const PassCost&, const PassCost&) = default;
};

/// The two halves of the backward pass are kept apart for schedules that move the second one.
struct OpCost {
    PassCost forward;
    PassCost backward_input;
    PassCost backward_weight;
};

/// Time of one operator. Products: the larger of tiles x waves x time of a tile and bytes moved
/// over memory bandwidth; fused attention: AttentionRate; memory-bound work: bytes over bandwidth.
/// Every kernel takes its kernel_time besides.
OpCost op_cost(const Op& op, const ComputeRates& rates);

/// Seconds of work, without kernel_time, of `count` products (m x k) (k x n), of which `at_once`
/// run side by side. `in` / `out`: bytes per operand element, and moved per output element.
double gemm_seconds(const ComputeRates& rates, Dtype dtype, const Gemm& gemm, std::int64_t at_once,
                    double in, double out);

} // namespace shardplan::sim
