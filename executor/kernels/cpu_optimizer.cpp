#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

namespace {

/// Exact, unlike Eigen's in single precision, so that shards of any length come to the same bits.
template <class Scalar>
void square_roots(const Scalar* x, Index count, Scalar* out) {
    for (Index i = 0; i < count; ++i) {
        out[i] = std::sqrt(x[i]);
    }
}

/// Elements whose squares are summed in one go; the sums of such blocks are added in order, so that
/// a norm does not depend on the number of threads.
constexpr Index sum_block = 1 << 14;

/// In lanes that are added at the end: the same bits whatever a processor's vectors hold.
template <class Scalar>
double squares(const Scalar* x, Index count) {
    constexpr Index lanes = 16;
    double sums[lanes] = {};
    const Index whole = count / lanes * lanes;
    for (Index i = 0; i < whole; i += lanes) {
        for (Index lane = 0; lane < lanes; ++lane) {
            const auto value = static_cast<double>(x[i + lane]);
            sums[lane] += value * value;
        }
    }
    for (Index i = whole; i < count; ++i) {
        const auto value = static_cast<double>(x[i]);
        sums[i - whole] += value * value;
    }
    double sum = 0.0;
    for (const double of_lane : sums) {
        sum += of_lane;
    }
    return sum;
}

} // namespace

template <class Scalar>
double CpuKernels<Scalar>::square_sum(Index count, const Scalar* x) {
    const Index blocks = (count + sum_block - 1) / sum_block;
    std::vector<double> sums(static_cast<std::size_t>(blocks));
    pool_->ranges(blocks, 1, count, [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b) {
            const Index first = b * sum_block;
            const Index n = std::min(sum_block, count - first);
            sums[static_cast<std::size_t>(b)] = squares(x + first, n);
        }
    });
    double sum = 0.0;
    for (const double s : sums) {
        sum += s;
    }
    return sum;
}

template <class Scalar>
void CpuKernels<Scalar>::adamw(const AdamWStep& s, Index count, Scalar factor,
                               const Scalar* gradient, Scalar* parameter, Scalar* first,
                               Scalar* second) {
    const auto step = static_cast<double>(s.step);
    const auto b1 = static_cast<Scalar>(s.beta1);
    const auto b2 = static_cast<Scalar>(s.beta2);
    const auto correction1 = static_cast<Scalar>(1.0 - std::pow(s.beta1, step));
    const auto correction2 = static_cast<Scalar>(std::sqrt(1.0 - std::pow(s.beta2, step)));
    const auto keep = static_cast<Scalar>(1.0 - s.rate * s.decay);
    const auto rate = static_cast<Scalar>(s.rate) / correction1;
    const auto epsilon = static_cast<Scalar>(s.epsilon);
    pool_->ranges(count, 64, 16 * count, [&](Index begin, Index end) {
        constexpr Index block = 1024;
        Eigen::Array<Scalar, Eigen::Dynamic, 1, 0, block, 1> g;
        Eigen::Array<Scalar, Eigen::Dynamic, 1, 0, block, 1> root(block);
        for (Index at = begin; at < end; at += block) {
            const Index n = std::min(block, end - at);
            g = array(gradient + at, n) * factor;
            auto p = array(parameter + at, n);
            auto m = array(first + at, n);
            auto v = array(second + at, n);
            m = b1 * m + (Scalar(1) - b1) * g;
            v = b2 * v + (Scalar(1) - b2) * g.square();
            square_roots(second + at, n, root.data());
            p = p * keep - rate * m / (root.head(n) / correction2 + epsilon);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::sgd(double rate, double momentum, double decay, Index count, Scalar factor,
                             const Scalar* gradient, Scalar* parameter, Scalar* velocity) {
    const auto lr = static_cast<Scalar>(rate);
    const auto mu = static_cast<Scalar>(momentum);
    const auto wd = static_cast<Scalar>(decay);
    pool_->ranges(count, 64, 8 * count, [&](Index begin, Index end) {
        const Index n = end - begin;
        auto p = array(parameter + begin, n);
        auto v = array(velocity + begin, n);
        v = mu * v + array(gradient + begin, n) * factor + wd * p;
        p -= lr * v;
    });
}

#define SHARDPLAN_INSTANTIATE(S)                                                          \
    template double CpuKernels<S>::square_sum(Index, const S*);                           \
    template void CpuKernels<S>::adamw(const AdamWStep&, Index, S, const S*, S*, S*, S*); \
    template void CpuKernels<S>::sgd(double, double, double, Index, S, const S*, S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
