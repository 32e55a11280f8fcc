#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace shardplan::test {

inline std::vector<double> random_values(std::size_t count, std::uint32_t seed,
                                         double deviation = 1.0) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0.0, deviation);
    std::vector<double> values(count);
    for (double& v : values)
        v = normal(engine);
    return values;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        sum += a[i] * b[i];
    return sum;
}

/// Compares a gradient with central differences of `loss` at about `places` places of `x`. Allowed:
/// 1e-6 of the gradient's largest value.
inline void expect_gradient(const char* name, double* x, const double* gradient, std::size_t count,
                            const std::function<double()>& loss, std::size_t places = 300) {
    double largest = 0.0;
    for (std::size_t i = 0; i < count; ++i)
        largest = std::max(largest, std::abs(gradient[i]));
    ASSERT_GT(largest, 0.0) << name;
    const std::size_t stride = std::max<std::size_t>(1, count / places);
    for (std::size_t i = 0; i < count; i += stride) {
        // fourth order: rounding (1e-16 / h) and remainder (h^4) both stay far below the bar;
        // small, so that no token changes its experts
        const double h = 1e-4 * std::max(1.0, std::abs(x[i]));
        const double kept = x[i];
        const auto at = [&](double step) {
            x[i] = kept + step;
            return loss();
        };
        const double difference =
            (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
        x[i] = kept;
        ASSERT_NEAR(gradient[i], difference, 1e-6 * largest) << name << ", element " << i;
    }
}

inline void expect_gradient(const char* name, std::vector<double>& x,
                            const std::vector<double>& gradient,
                            const std::function<double()>& loss) {
    ASSERT_EQ(x.size(), gradient.size());
    expect_gradient(name, x.data(), gradient.data(), x.size(), loss);
}

} // namespace shardplan::test
