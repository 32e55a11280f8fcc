#pragma once

#include <cstdint>

namespace shardplan::sim {

/// How much longer than the mean each rank computes in a step: 1 + sigma z, z standard normal, one
/// draw per rank. The same seed gives the same draws.
struct Stragglers {
    double sigma = 0.0;
    std::uint64_t seed = 0;

    /// Of one rank of a stage.
    [[nodiscard]] double factor(std::int64_t stage, std::int64_t rank) const;
    /// Of the slowest of `ranks` ranks of a stage: a draw of the largest of as many, which is the
    /// quantile at u^(1 / ranks) for u uniform (David and Nagaraja, Order Statistics, 2.1).
    [[nodiscard]] double slowest(std::int64_t stage, std::int64_t ranks) const;
};

/// The z with a share of `above` of a standard normal distribution above it, 0 < above < 1; error
/// below 1e-9. Source: Acklam's rational approximation with one step of Halley's method.
double normal_upper_quantile(double above);

} // namespace shardplan::sim
