#pragma once

#include <array>
#include <cstdint>

#include "simulator/compute/op_list.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/spec/stack.hpp"
#include "simulator/units/quantity.hpp"

namespace shardplan::sim {

/// The piece of the output one compute unit works on at a time, and how many slices of `k` elements
/// it loads ahead before the first product can start. Structure of the vendor's kernels.
/// Source: CUTLASS default tile shapes per architecture; composable_kernel for CDNA.
struct TileShape {
    std::int64_t m = 128;
    std::int64_t n = 128;
    std::int64_t k = 32;
    std::int64_t ahead = 2;
};
TileShape tile_of(const Device& device);

/// What a device reaches under a stack, prepared once.
struct ComputeRates {
    std::array<double, EnumNames<Dtype>::names.size()> peak{}; ///< flops/s, dense; 0 = no such unit
    double gemm_efficiency = 1.0;
    double attention_efficiency = 1.0;
    double attention_share =
        1.0;                  ///< of the matrix units' peak that the kernel's instructions reach
    double memory_rate = 0.0; ///< bytes/s of memory-bound kernels
    std::int64_t compute_units = 0; ///< 0 = not known: no quantization
    TileShape tile;
    double launch = 0.0; ///< seconds per kernel; 0 with CUDA graphs
    double kernels_per_block = 0.0;
    bool fused_accumulation = false; ///< weight gradients are added inside the product
    double gradient_element = 4.0;   ///< bytes
};
ComputeRates compute_rates(const Device& device, const StackProfile& stack,
                           const Resolved& resolved);

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
/// over memory bandwidth; memory-bound work: bytes over bandwidth.
OpCost op_cost(const Op& op, const ComputeRates& rates);

/// Seconds of `count` products (m x k) (k x n), `together` as one kernel or one after another.
/// `in` / `out`: bytes per operand element, and moved per output element.
double gemm_seconds(const ComputeRates& rates, Dtype dtype, const Gemm& gemm, bool together,
                    double in, double out);

} // namespace shardplan::sim
