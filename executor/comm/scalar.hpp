#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "executor/kernels/bf16.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::exec {

/// Element types that messages carry.
enum class Scalar : std::uint8_t { fp64, fp32, bf16, int32, int64, byte };

/// How a reduction joins two elements. The maximum of floating-point numbers is not a number as
/// soon as one of them is not.
enum class ReduceOp : std::uint8_t { sum, max };

} // namespace shardplan::exec

namespace shardplan::sim {
template <>
struct EnumNames<exec::Scalar> {
    static constexpr std::array<std::string_view, 6> names = {"fp64",  "fp32",  "bf16",
                                                              "int32", "int64", "byte"};
};
template <>
struct EnumNames<exec::ReduceOp> {
    static constexpr std::array<std::string_view, 2> names = {"sum", "max"};
};
} // namespace shardplan::sim

namespace shardplan::exec {

/// Bytes of one element.
constexpr std::size_t bytes_of(Scalar scalar) {
    constexpr std::array<std::size_t, 6> sizes = {8, 4, 2, 4, 8, 1};
    return sizes[static_cast<std::size_t>(scalar)];
}

template <class T>
constexpr Scalar scalar_of() {
    using Element = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<Element, double>) {
        return Scalar::fp64;
    } else if constexpr (std::is_same_v<Element, float>) {
        return Scalar::fp32;
    } else if constexpr (std::is_same_v<Element, Bf16>) {
        return Scalar::bf16;
    } else if constexpr (std::is_same_v<Element, std::int32_t>) {
        return Scalar::int32;
    } else if constexpr (std::is_same_v<Element, std::int64_t>) {
        return Scalar::int64;
    } else {
        static_assert(sizeof(Element) == 1 && std::is_trivially_copyable_v<Element>,
                      "messages carry double, float, Bf16, 32 or 64 bit integers, or bytes");
        return Scalar::byte;
    }
}

/// Elements of one type that lie one after the other; `count` of them.
struct ConstView {
    const void* data = nullptr;
    std::int64_t count = 0;
    Scalar scalar = Scalar::byte;

    [[nodiscard]] std::span<const std::byte> bytes() const {
        return {static_cast<const std::byte*>(data),
                static_cast<std::size_t>(count) * bytes_of(scalar)};
    }
};
struct View {
    void* data = nullptr;
    std::int64_t count = 0;
    Scalar scalar = Scalar::byte;

    [[nodiscard]] std::span<std::byte> bytes() const {
        return {static_cast<std::byte*>(data), static_cast<std::size_t>(count) * bytes_of(scalar)};
    }
    operator ConstView() const { return {data, count, scalar}; } // NOLINT
};
template <class T>
View view(std::span<T> elements) {
    return {elements.data(), static_cast<std::int64_t>(elements.size()), scalar_of<T>()};
}
template <class T>
View view(std::vector<T>& elements) {
    return view(std::span<T>(elements));
}
template <class T>
ConstView const_view(std::span<const T> elements) {
    return {elements.data(), static_cast<std::int64_t>(elements.size()), scalar_of<T>()};
}
template <class T>
ConstView const_view(const std::vector<T>& elements) {
    return const_view(std::span<const T>(elements));
}

/// How elements are joined, and what they are.
struct Reduction {
    Scalar scalar = Scalar::fp32;
    ReduceOp op = ReduceOp::sum;
};

/// out[i] = a[i] op b[i]. bf16 is added in fp32 and rounded to the nearest, ties to even. Integer
/// sums wrap. All of the same size, a whole number of elements; `out` may be `a` or `b`.
void combine(Reduction how, std::span<std::byte> out, std::span<const std::byte> a,
             std::span<const std::byte> b);

/// out[i] = ((parts[0][i] op parts[1][i]) op parts[2][i]) ..., bf16 rounded once, at the end. `out`
/// may be one of the parts; there is at least one.
void fold(Reduction how, std::span<std::byte> out, const std::vector<const std::byte*>& parts);

} // namespace shardplan::exec
