#pragma once

#include <compare>

namespace shardplan::sim {

/// A physical amount: one double in base units (bytes, seconds, flops) with the exponents of its
/// unit in its type. Multiplying adds exponents, so `Bytes / Bandwidth` *is* `Seconds` and a ratio
/// of equals *is* a plain double; bytes + seconds does not compile. A double holds every integer up
/// to 2^53, so byte counts up to 9 PB stay exact.
template <int ByteExp, int SecondExp, int FlopExp>
class Quantity {
public:
    constexpr Quantity() = default;
    /// From base units (bytes, seconds, flops and their products).
    explicit constexpr Quantity(double base) : base_(base) {}

    /// The amount in base units.
    [[nodiscard]] constexpr double value() const { return base_; }

    constexpr Quantity& operator+=(Quantity other) {
        base_ += other.base_;
        return *this;
    }
    constexpr Quantity& operator-=(Quantity other) {
        base_ -= other.base_;
        return *this;
    }
    constexpr Quantity& operator*=(double factor) {
        base_ *= factor;
        return *this;
    }
    constexpr Quantity& operator/=(double divisor) {
        base_ /= divisor;
        return *this;
    }

    friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
    friend constexpr Quantity operator-(Quantity a) { return Quantity(-a.base_); }
    friend constexpr Quantity operator*(Quantity a, double factor) { return a *= factor; }
    friend constexpr Quantity operator*(double factor, Quantity a) { return a *= factor; }
    friend constexpr Quantity operator/(Quantity a, double divisor) { return a /= divisor; }
    friend constexpr auto operator<=>(Quantity, Quantity) = default;

private:
    double base_ = 0.0;
};

namespace detail {
/// Exponents that all cancel leave a plain double.
template <int B, int S, int F>
constexpr auto make_quantity(double base) {
    if constexpr (B == 0 && S == 0 && F == 0) {
        return base;
    } else {
        return Quantity<B, S, F>(base);
    }
}
} // namespace detail

template <int B1, int S1, int F1, int B2, int S2, int F2>
constexpr auto operator*(Quantity<B1, S1, F1> a, Quantity<B2, S2, F2> b) {
    return detail::make_quantity<B1 + B2, S1 + S2, F1 + F2>(a.value() * b.value());
}

template <int B1, int S1, int F1, int B2, int S2, int F2>
constexpr auto operator/(Quantity<B1, S1, F1> a, Quantity<B2, S2, F2> b) {
    return detail::make_quantity<B1 - B2, S1 - S2, F1 - F2>(a.value() / b.value());
}

template <int B, int S, int F>
constexpr auto operator/(double a, Quantity<B, S, F> b) {
    return Quantity<-B, -S, -F>(a / b.value());
}

using Bytes = Quantity<1, 0, 0>;
using Seconds = Quantity<0, 1, 0>;
using Flops = Quantity<0, 0, 1>;
/// Bytes per second, always of one direction.
using Bandwidth = Quantity<1, -1, 0>;
/// Floating point operations per second.
using FlopRate = Quantity<0, -1, 1>;
/// Flops per byte.
using Intensity = Quantity<-1, 0, 1>;

inline namespace literals {
constexpr Bytes operator""_B(long double v) { return Bytes(static_cast<double>(v)); }
constexpr Bytes operator""_B(unsigned long long v) { return Bytes(static_cast<double>(v)); }
constexpr Bytes operator""_KiB(long double v) { return Bytes(static_cast<double>(v) * 0x1p10); }
constexpr Bytes operator""_MiB(long double v) { return Bytes(static_cast<double>(v) * 0x1p20); }
constexpr Bytes operator""_GiB(long double v) { return Bytes(static_cast<double>(v) * 0x1p30); }
constexpr Bandwidth operator""_GBps(long double v) {
    return Bandwidth(static_cast<double>(v) * 1e9);
}
constexpr Bandwidth operator""_Gbps(long double v) {
    return Bandwidth(static_cast<double>(v) * 1e9 / 8.0);
}
constexpr FlopRate operator""_TFLOPs(long double v) {
    return FlopRate(static_cast<double>(v) * 1e12);
}
constexpr Seconds operator""_s(long double v) { return Seconds(static_cast<double>(v)); }
constexpr Seconds operator""_ms(long double v) { return Seconds(static_cast<double>(v) * 1e-3); }
constexpr Seconds operator""_us(long double v) { return Seconds(static_cast<double>(v) * 1e-6); }
} // namespace literals

} // namespace shardplan::sim
