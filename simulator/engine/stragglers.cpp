#include "simulator/engine/stragglers.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::sim {

namespace {

/// Nobody computes in less than this share of the mean.
constexpr double least_factor = 0.1;

/// SplitMix64: well mixed bits from a counter (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

/// Uniform in (0, 1).
double uniform(std::uint64_t seed, std::int64_t stage, std::uint64_t rank) {
    const std::uint64_t bits = mixed(mixed(mixed(seed) ^ static_cast<std::uint64_t>(stage)) ^ rank);
    return (static_cast<double>(bits >> 11U) + 0.5) * 0x1p-53;
}

double lower_quantile(double p) {
    constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                            1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
    constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                            6.680131188771972e+01, -1.328068155288572e+01};
    constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                            -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
    constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                            3.754408661907416e+00};
    constexpr double low = 0.02425;
    double x = 0.0;
    if (p < low) {
        const double q = std::sqrt(-2.0 * std::log(p));
        x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
            ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0);
    } else {
        const double q = p - 0.5;
        const double r = q * q;
        x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
            (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0);
    }
    const double e = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
    const double u = e * std::sqrt(2.0 * 3.14159265358979323846) * std::exp(0.5 * x * x);
    return x - u / (1.0 + 0.5 * x * u);
}

} // namespace

double normal_upper_quantile(double above) {
    return above <= 0.5 ? -lower_quantile(above) : lower_quantile(1.0 - above);
}

double Stragglers::factor(std::int64_t stage, std::int64_t rank) const {
    if (sigma <= 0.0) return 1.0;
    const double u = uniform(seed, stage, static_cast<std::uint64_t>(rank) + 1);
    return std::max(least_factor, 1.0 + sigma * normal_upper_quantile(u));
}

double Stragglers::slowest(std::int64_t stage, std::int64_t ranks) const {
    if (sigma <= 0.0) return 1.0;
    const double u = uniform(seed, stage, 0);
    // 1 - u^(1/n) without losing it beside 1
    const double above = -std::expm1(std::log(u) / static_cast<double>(ranks));
    return std::max(least_factor, 1.0 + sigma * normal_upper_quantile(above));
}

} // namespace shardplan::sim
