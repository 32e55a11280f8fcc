#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

namespace {

/// The best `top_k` of a row, best first, the lower number at equality.
template <class Scalar>
void choose(const Scalar* p, const RouterShape& s, std::int32_t* expert) {
    for (Index slot = 0; slot < s.top_k; ++slot) {
        std::int32_t best = -1;
        for (std::int32_t e = 0; e < s.experts; ++e) {
            const bool taken = std::find(expert, expert + slot, e) != expert + slot;
            if (!taken && (best < 0 || p[e] > p[best])) best = e;
        }
        expert[slot] = best;
    }
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::route(const RouterShape& s, const Scalar* logits, Scalar* probabilities,
                               Scalar* weights, std::int32_t* expert, double* sums) {
    pool_->ranges(s.rows, 1, 32 * s.rows * s.experts, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const auto in = array(logits + r * s.experts, s.experts);
            auto p = array(probabilities + r * s.experts, s.experts);
            p = (in - in.maxCoeff()).exp();
            p /= p.sum();
            std::int32_t* chosen = expert + r * s.top_k;
            choose(p.data(), s, chosen);
            Scalar sum = 0;
            for (Index slot = 0; slot < s.top_k; ++slot) {
                sum += p[chosen[slot]];
            }
            for (Index slot = 0; slot < s.top_k; ++slot) {
                weights[r * s.top_k + slot] = p[chosen[slot]] / sum;
            }
        }
    });
    std::fill_n(sums, 2 * s.experts, 0.0);
    for (Index r = 0; r < s.rows; ++r) {
        for (Index e = 0; e < s.experts; ++e) {
            sums[e] += static_cast<double>(probabilities[r * s.experts + e]);
        }
        for (Index slot = 0; slot < s.top_k; ++slot) {
            sums[s.experts + expert[r * s.top_k + slot]] += 1.0;
        }
    }
}

/// By expert, then by token, by counting.
template <class Scalar>
void CpuKernels<Scalar>::sort_choices(const RouterShape& s, const Routing& routing) {
    const Index choices = s.rows * s.top_k;
    std::fill_n(routing.offsets, s.experts + 1, Index{0});
    for (Index i = 0; i < choices; ++i) {
        ++routing.offsets[routing.expert[i] + 1];
    }
    for (Index e = 0; e < s.experts; ++e) {
        routing.offsets[e + 1] += routing.offsets[e];
    }
    std::vector<Index> next(routing.offsets, routing.offsets + s.experts);
    for (Index i = 0; i < choices; ++i) {
        routing.place[i] =
            static_cast<std::int32_t>(next[static_cast<std::size_t>(routing.expert[i])]++);
    }
}

template <class Scalar>
void CpuKernels<Scalar>::route_backward(const RouterShape& s, const Scalar* probabilities,
                                        const Scalar* weights, const std::int32_t* expert,
                                        const Scalar* dweights, const double* slopes,
                                        Scalar* dlogits) {
    const std::vector<Scalar> slope(slopes, slopes + s.experts);
    pool_->ranges(s.rows, 1, 16 * s.rows * s.experts, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const auto p = array(probabilities + r * s.experts, s.experts);
            const auto w = array(weights + r * s.top_k, s.top_k);
            const auto dw = array(dweights + r * s.top_k, s.top_k);
            auto d = array(dlogits + r * s.experts, s.experts);
            // softmax over all experts for the balance, over the chosen for the weights
            const auto dp = array(slope.data(), s.experts);
            d = p * (dp - (p * dp).sum());
            const Scalar along = (w * dw).sum();
            for (Index slot = 0; slot < s.top_k; ++slot) {
                d[expert[r * s.top_k + slot]] += w[slot] * (dw[slot] - along);
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::dispatch(const RouterShape& s, Index width, const Routing& routing,
                                  const Scalar* x, Scalar* sorted) {
    pool_->ranges(s.rows, 1, s.rows * s.top_k * width, [&](Index begin, Index end) {
        for (Index i = begin * s.top_k; i < end * s.top_k; ++i) {
            array(sorted + routing.place[i] * width, width) = array(x + i / s.top_k * width, width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::dispatch_backward(const RouterShape& s, Index width,
                                           const Routing& routing, const Scalar* dsorted,
                                           Scalar* dx) {
    pool_->ranges(s.rows, 1, s.rows * s.top_k * width, [&](Index begin, Index end) {
        for (Index i = begin * s.top_k; i < end * s.top_k; ++i) {
            array(dx + i / s.top_k * width, width) +=
                array(dsorted + routing.place[i] * width, width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::move_rows(Index rows, Index width, const std::int32_t* place,
                                   const Scalar* x, Scalar* y) {
    pool_->ranges(rows, 1, rows * width, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
            array(y + place[i] * width, width) = array(x + i * width, width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::combine(const RouterShape& s, Index width, const Routing& routing,
                                 const Scalar* weights, const Scalar* sorted, Scalar* y) {
    pool_->ranges(s.rows, 1, 2 * s.rows * s.top_k * width, [&](Index begin, Index end) {
        for (Index i = begin * s.top_k; i < end * s.top_k; ++i) {
            array(y + i / s.top_k * width, width) +=
                weights[i] * array(sorted + routing.place[i] * width, width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::row_products(Index rows, Index width, const Scalar* a, const Scalar* b,
                                      Scalar* products) {
    pool_->ranges(rows, 1, 2 * rows * width, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
            products[i] = (array(a + i * width, width) * array(b + i * width, width)).sum();
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::scale_rows(Index rows, Index width, const Scalar* factors, Scalar* x) {
    pool_->ranges(rows, 1, rows * width, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
            array(x + i * width, width) *= factors[i];
        }
    });
}

#define SHARDPLAN_INSTANTIATE(S)                                                                   \
    template void CpuKernels<S>::route(const RouterShape&, const S*, S*, S*, std::int32_t*,        \
                                       double*);                                                   \
    template void CpuKernels<S>::sort_choices(const RouterShape&, const Routing&);                 \
    template void CpuKernels<S>::route_backward(const RouterShape&, const S*, const S*,            \
                                                const std::int32_t*, const S*, const double*, S*); \
    template void CpuKernels<S>::dispatch(const RouterShape&, Index, const Routing&, const S*,     \
                                          S*);                                                     \
    template void CpuKernels<S>::dispatch_backward(const RouterShape&, Index, const Routing&,      \
                                                   const S*, S*);                                  \
    template void CpuKernels<S>::move_rows(Index, Index, const std::int32_t*, const S*, S*);       \
    template void CpuKernels<S>::combine(const RouterShape&, Index, const Routing&, const S*,      \
                                         const S*, S*);                                            \
    template void CpuKernels<S>::row_products(Index, Index, const S*, const S*, S*);               \
    template void CpuKernels<S>::scale_rows(Index, Index, const S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
