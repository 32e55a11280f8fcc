#include "executor/optimizer/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace shardplan::exec {

namespace {

constexpr std::size_t not_finite = ExactSum::digits - 1;
constexpr std::int64_t digit_mask = 0xFFFFFFFF;
/// A digit takes 2^30 additions of less than 2^33 each.
constexpr std::int64_t most_added = std::int64_t{1} << 29;

} // namespace

template <class Scalar>
void ExactSum::add_squares(std::span<const Scalar> values) {
    for (const Scalar x : values) {
        const double square = static_cast<double>(x) * static_cast<double>(x);
        const auto bits = std::bit_cast<std::uint64_t>(square);
        const std::uint64_t exponent = bits >> 52U;
        if (exponent >= 0x7FF) { // the sign of a square that is not a number may be set
            ++digits_[not_finite];
            continue;
        }
        const std::uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
        const std::uint64_t whole = exponent == 0 ? fraction : fraction | (std::uint64_t{1} << 52U);
        const std::uint64_t place = exponent == 0 ? 0 : exponent - 1; // above 2^-1074
        const std::uint64_t shift = place % 32;
        const std::uint64_t low = (whole & 0xFFFFFFFF) << shift;
        const std::uint64_t high = (whole >> 32U) << shift;
        std::int64_t* digit = digits_.data() + place / 32;
        digit[0] += static_cast<std::int64_t>(low & 0xFFFFFFFF);
        digit[1] += static_cast<std::int64_t>((low >> 32U) + (high & 0xFFFFFFFF));
        digit[2] += static_cast<std::int64_t>(high >> 32U);
        if (++added_ >= most_added) carry();
    }
}

void ExactSum::carry() {
    std::int64_t over = 0;
    for (std::size_t i = 0; i < not_finite; ++i) {
        const std::int64_t digit = digits_[i] + over;
        digits_[i] = digit & digit_mask;
        over = digit >> 32;
    }
    added_ = 0;
}

std::span<std::int64_t, ExactSum::digits> ExactSum::parts() {
    carry();
    return digits_;
}

double ExactSum::value() {
    if (digits_[not_finite] != 0) return std::numeric_limits<double>::infinity();
    carry();
    // From the highest digit down: three of them hold all bits of the result and more.
    std::size_t top = not_finite;
    while (top > 0 && digits_[top - 1] == 0)
        --top;
    double sum = 0.0;
    for (std::size_t n = 0; n < 3 && n < top; ++n) {
        const std::size_t i = top - 1 - n;
        sum += std::ldexp(static_cast<double>(digits_[i]), static_cast<int>(i) * 32 - 1074);
    }
    return sum;
}

template void ExactSum::add_squares<float>(std::span<const float>);
template void ExactSum::add_squares<double>(std::span<const double>);

} // namespace shardplan::exec
