#pragma once

#include <bit>
#include <cstdint>

namespace shardplan::exec {

/// A float without its lower 16 mantissa bits: storage only, arithmetic is done in float.
struct Bf16 {
    std::uint16_t bits = 0;

    friend bool operator==(Bf16, Bf16) = default;
};

/// Nearest value, ties to even; what is not a number stays so.
inline Bf16 to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    // A payload in the lower half alone would round to infinity.
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16U) & 1U);
    return {static_cast<std::uint16_t>(is_nan ? (bits >> 16U) | 0x40U : rounded >> 16U)};
}

/// Exact.
inline float to_float(Bf16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// Rounds `count` values to 16 bits, and back. Scalar: float or double.
template <class Scalar>
void pack(const Scalar* values, std::int64_t count, Bf16* out);
template <class Scalar>
void unpack(const Bf16* values, std::int64_t count, Scalar* out);

} // namespace shardplan::exec
