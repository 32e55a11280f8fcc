#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace shardplan::exec {

/// A sum of squares without rounding: the same whatever is added in which order and on which rank.
/// A number is cut into digits of 32 bits at fixed places, and digits are added as integers.
/// Source: Neal 2015 (arXiv 1505.05571), small superaccumulators.
class ExactSum {
public:
    /// Digits from 2^-1074 up, with room for what sums carry; the last one counts what is not
    /// finite.
    static constexpr std::size_t digits = 69;

    /// The squares, each rounded to a double.
    template <class Scalar>
    void add_squares(std::span<const Scalar> values);

    /// To be added up over ranks, as integers: each less than 2^32.
    [[nodiscard]] std::span<std::int64_t, digits> parts();
    /// Rounded at the end.
    [[nodiscard]] double value();

private:
    void carry();

    std::array<std::int64_t, digits> digits_{};
    std::int64_t added_ = 0; ///< since the last `carry`
};

} // namespace shardplan::exec
