#include "executor/comm/scalar.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::exec {

namespace {

/// What elements are added in.
template <class T>
struct Wide {
    using type = T;
    static T widen(T value) { return value; }
    static T narrow(T value) { return value; }
};
template <>
struct Wide<Bf16> {
    using type = float;
    static float widen(Bf16 value) { return to_float(value); }
    static Bf16 narrow(float value) { return to_bf16(value); }
};

template <ReduceOp op, class T>
T join(T a, T b) {
    if constexpr (op == ReduceOp::max) {
        if constexpr (std::is_floating_point_v<T>) {
            return a > b || std::isnan(a) ? a : b;
        } else {
            return a > b ? a : b;
        }
    } else if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>; // wraps, where signed overflow is undefined
        return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
        return a + b;
    }
}

template <ReduceOp op, class T>
void combine_as(std::span<std::byte> out_bytes, const std::byte* a_bytes,
                const std::byte* b_bytes) {
    using W = Wide<T>;
    auto* out = reinterpret_cast<T*>(out_bytes.data());
    const auto* a = reinterpret_cast<const T*>(a_bytes);
    const auto* b = reinterpret_cast<const T*>(b_bytes);
    const std::size_t count = out_bytes.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = W::narrow(join<op>(W::widen(a[i]), W::widen(b[i])));
    }
}

template <ReduceOp op, class T>
void fold_as(std::span<std::byte> out_bytes, const std::vector<const std::byte*>& parts) {
    using W = Wide<T>;
    constexpr std::size_t block = 256; // elements whose running result stays in the first cache
    std::array<typename W::type, block> sum;
    auto* out = reinterpret_cast<T*>(out_bytes.data());
    const std::size_t count = out_bytes.size() / sizeof(T);
    for (std::size_t first = 0; first < count; first += block) {
        const std::size_t width = std::min(block, count - first);
        const auto* part = reinterpret_cast<const T*>(parts.front()) + first;
        for (std::size_t i = 0; i < width; ++i) {
            sum[i] = W::widen(part[i]);
        }
        for (std::size_t k = 1; k < parts.size(); ++k) {
            part = reinterpret_cast<const T*>(parts[k]) + first;
            for (std::size_t i = 0; i < width; ++i) {
                sum[i] = join<op>(sum[i], W::widen(part[i]));
            }
        }
        for (std::size_t i = 0; i < width; ++i) {
            out[first + i] = W::narrow(sum[i]);
        }
    }
}

/// Calls `f` with a value of the element type and the operation as a constant.
template <class F>
void dispatch(Reduction how, F&& f) {
    const auto with = [&]<class T>(T element) {
        if (how.op == ReduceOp::sum) {
            f(element, std::integral_constant<ReduceOp, ReduceOp::sum>{});
        } else {
            f(element, std::integral_constant<ReduceOp, ReduceOp::max>{});
        }
    };
    switch (how.scalar) {
        case Scalar::fp64:
            return with(double{});
        case Scalar::fp32:
            return with(float{});
        case Scalar::bf16:
            return with(Bf16{});
        case Scalar::int32:
            return with(std::int32_t{});
        case Scalar::int64:
            return with(std::int64_t{});
        case Scalar::byte:
            return with(std::uint8_t{});
    }
}

} // namespace

void combine(Reduction how, std::span<std::byte> out, std::span<const std::byte> a,
             std::span<const std::byte> b) {
    dispatch(how,
             [&]<class T, class Op>(T, Op) { combine_as<Op::value, T>(out, a.data(), b.data()); });
}

void fold(Reduction how, std::span<std::byte> out, const std::vector<const std::byte*>& parts) {
    dispatch(how, [&]<class T, class Op>(T, Op) { fold_as<Op::value, T>(out, parts); });
}

} // namespace shardplan::exec
