#include <algorithm>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

/// Exponentials and hyperbolic tangents are Eigen's vectorised polynomials.
namespace shardplan::exec {

namespace {

/// Elements of a row that are worked on at a time: intermediate values stay in the first cache.
constexpr Index block = 512;

template <class Scalar>
using Block = Eigen::Array<Scalar, Eigen::Dynamic, 1, 0, block, 1>;

/// GELU by the hyperbolic tangent: x / 2 * (1 + tanh(a (x + b x^3))).
/// Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), a = sqrt(2 / pi).
template <class Scalar>
constexpr Scalar gelu_a = static_cast<Scalar>(0.7978845608028654);
template <class Scalar>
constexpr Scalar gelu_b = static_cast<Scalar>(0.044715);

template <class Scalar, class X>
Block<Scalar> value(sim::Activation kind, const X& x) {
    switch (kind) {
        case sim::Activation::gelu: {
            const Block<Scalar> u = gelu_a<Scalar> * (x + gelu_b<Scalar> * x.cube());
            return Scalar(0.5) * x * (Scalar(1) + u.tanh());
        }
        case sim::Activation::relu:
            return x.max(Scalar(0));
        case sim::Activation::squared_relu:
            return x.max(Scalar(0)).square();
        case sim::Activation::silu:
            break;
    }
    return x / (Scalar(1) + (-x).exp());
}

template <class Scalar, class X>
Block<Scalar> derivative(sim::Activation kind, const X& x) {
    switch (kind) {
        case sim::Activation::gelu: {
            const Block<Scalar> u = gelu_a<Scalar> * (x + gelu_b<Scalar> * x.cube());
            const Block<Scalar> t = u.tanh();
            return Scalar(0.5) * (Scalar(1) + t) +
                   Scalar(0.5) * x * (Scalar(1) - t.square()) * gelu_a<Scalar> *
                       (Scalar(1) + Scalar(3) * gelu_b<Scalar> * x.square());
        }
        case sim::Activation::relu:
            return (x > Scalar(0)).template cast<Scalar>();
        case sim::Activation::squared_relu:
            return Scalar(2) * x.max(Scalar(0));
        case sim::Activation::silu:
            break;
    }
    const Block<Scalar> s = (Scalar(1) + (-x).exp()).inverse();
    return s * (Scalar(1) + x * (Scalar(1) - s));
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::activation_forward(const ActivationShape& s, const Scalar* x, Scalar* y) {
    const Index in_width = s.gated ? 2 * s.width : s.width;
    pool_->ranges(s.rows, 1, 16 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            for (Index at = 0; at < s.width; at += block) {
                const Index n = std::min(block, s.width - at);
                const Scalar* in = x + r * in_width + at;
                auto out = array(y + r * s.width + at, n);
                out = value<Scalar>(s.kind, array(in, n));
                if (s.gated) out *= array(in + s.width, n);
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::activation_backward(const ActivationShape& s, const Scalar* x,
                                             const Scalar* dy, Scalar* dx) {
    const Index in_width = s.gated ? 2 * s.width : s.width;
    pool_->ranges(s.rows, 1, 24 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            for (Index at = 0; at < s.width; at += block) {
                const Index n = std::min(block, s.width - at);
                const Scalar* in = x + r * in_width + at;
                const auto g = array(dy + r * s.width + at, n);
                auto out = array(dx + r * in_width + at, n);
                out = derivative<Scalar>(s.kind, array(in, n)) * g;
                if (!s.gated) continue;
                out *= array(in + s.width, n);
                array(dx + r * in_width + s.width + at, n) =
                    value<Scalar>(s.kind, array(in, n)) * g;
            }
        }
    });
}

#define SHARDPLAN_INSTANTIATE(S)                                                                 \
    template void CpuKernels<S>::activation_forward(const ActivationShape&, const S*, S*);       \
    template void CpuKernels<S>::activation_backward(const ActivationShape&, const S*, const S*, \
                                                     S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
