#include <cmath>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/drawn.hpp"
#include "executor/kernels/eigen.hpp"

/// Operators over rows whose columns lie on several ranks, and over values that are dropped.
namespace shardplan::exec {

template <class Scalar>
void CpuKernels<Scalar>::split_norm_forward(const NormShape& s, Index whole, const Scalar* squares,
                                            const Scalar* x, const Scalar* scale, Scalar* y,
                                            Scalar* stats) {
    pool_->ranges(s.rows, 1, 2 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const Scalar mean = squares[r] / static_cast<Scalar>(whole);
            stats[r] = Scalar(1) / std::sqrt(mean + static_cast<Scalar>(s.epsilon));
            array(y + r * s.width, s.width) =
                array(x + r * s.width, s.width) * stats[r] * array(scale, s.width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::split_norm_sums(const NormShape& s, const Scalar* dy, const Scalar* x,
                                         const Scalar* scale, const Scalar* stats, Scalar* sums) {
    pool_->ranges(s.rows, 1, 2 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const auto g = array(dy + r * s.width, s.width) * array(scale, s.width);
            sums[r] = (g * array(x + r * s.width, s.width)).sum() * stats[r];
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::split_norm_backward(const NormShape& s, Index whole, const Scalar* sums,
                                             const Scalar* dy, const Scalar* x, const Scalar* scale,
                                             const Scalar* stats, Scalar* dx, Scalar* dscale) {
    pool_->ranges(s.rows, 1, 4 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const Scalar along = sums[r] / static_cast<Scalar>(whole);
            const auto normed = array(x + r * s.width, s.width) * stats[r];
            const auto g = array(dy + r * s.width, s.width) * array(scale, s.width);
            array(dx + r * s.width, s.width) += (g - normed * along) * stats[r];
        }
    });
    constexpr Index columns = 64;
    pool_->ranges(s.width, columns, 2 * s.rows * s.width, [&](Index begin, Index end) {
        auto sum = array(dscale + begin, end - begin);
        for (Index r = 0; r < s.rows; ++r) {
            sum += array(dy + r * s.width + begin, end - begin) *
                   array(x + r * s.width + begin, end - begin) * stats[r];
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::drop(const DropShape& s, Scalar* x, std::uint8_t* mask) {
    pool_->ranges(s.rows, 1, 8 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const std::size_t key =
                sim::hash_mix(s.dropout.draw, static_cast<std::uint64_t>(s.places[r]));
            for (Index i = 0; i < s.width; ++i) {
                const auto factor = kept<Scalar>(s.dropout, key, static_cast<std::uint64_t>(i));
                x[r * s.width + i] *= factor;
                mask[r * s.width + i] = factor > 0 ? 1 : 0;
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::drop_backward(Index count, double rate, const std::uint8_t* mask,
                                       const Scalar* dy, Scalar* dx) {
    const auto factor = static_cast<Scalar>(1.0 / (1.0 - rate));
    pool_->ranges(count, 1, count, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
            dx[i] = mask[i] != 0 ? dy[i] * factor : Scalar(0);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::sigmoid(Index count, Scalar* x) {
    auto values = array(x, count);
    values = Scalar(1) / (Scalar(1) + (-values).exp());
}

template <class Scalar>
void CpuKernels<Scalar>::sigmoid_backward(Index count, const Scalar* y, const Scalar* dy,
                                          Scalar* dx) {
    const auto out = array(y, count);
    array(dx, count) = array(dy, count) * out * (Scalar(1) - out);
}

#define SHARDPLAN_INSTANTIATE(S)                                                                  \
    template void CpuKernels<S>::split_norm_forward(const NormShape&, Index, const S*, const S*,  \
                                                    const S*, S*, S*);                            \
    template void CpuKernels<S>::split_norm_sums(const NormShape&, const S*, const S*, const S*,  \
                                                 const S*, S*);                                   \
    template void CpuKernels<S>::split_norm_backward(const NormShape&, Index, const S*, const S*, \
                                                     const S*, const S*, const S*, S*, S*);       \
    template void CpuKernels<S>::drop(const DropShape&, S*, std::uint8_t*);                       \
    template void CpuKernels<S>::drop_backward(Index, double, const std::uint8_t*, const S*, S*); \
    template void CpuKernels<S>::sigmoid(Index, S*);                                              \
    template void CpuKernels<S>::sigmoid_backward(Index, const S*, const S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
