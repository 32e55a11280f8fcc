#include <algorithm>
#include <cmath>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

/// Operators over the rows of one matrix: sums, norms, rotation, table lookup.
namespace shardplan::exec {

namespace {

/// Columns that one thread sums: whole cache lines.
constexpr Index column_step = 64;

template <class Scalar>
struct RowStatistics {
    Scalar mean = 0;
    Scalar inverse = 0; ///< reciprocal deviation
};
template <class Scalar>
RowStatistics<Scalar> statistics_of(const NormShape& s, const Scalar* stats, Index row) {
    const Scalar* kept = stats + row * s.statistics();
    if (s.kind == sim::NormKind::layernorm) return {kept[0], kept[1]};
    return {Scalar(0), kept[0]};
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::add_rows(Index rows, Index width, const Scalar* x, const Scalar* bias,
                                  Scalar* y) {
    pool_->ranges(rows, 1, rows * width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            auto out = array(y + r * width, width);
            if (x != nullptr && bias != nullptr) {
                out = array(x + r * width, width) + array(bias, width);
            } else if (x != nullptr) {
                out = array(x + r * width, width);
            } else if (bias != nullptr) {
                out = array(bias, width);
            } else {
                out.setZero();
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::sum_rows(Index rows, Index width, const Scalar* dy,
                                  Scalar* bias_gradient) {
    pool_->ranges(width, column_step, rows * width, [&](Index begin, Index end) {
        auto sum = array(bias_gradient + begin, end - begin);
        for (Index r = 0; r < rows; ++r) {
            sum += array(dy + r * width + begin, end - begin);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::add(Index count, const Scalar* x, Scalar* y) {
    pool_->ranges(count, column_step, count, [&](Index begin, Index end) {
        array(y + begin, end - begin) += array(x + begin, end - begin);
    });
}

template <class Scalar>
void CpuKernels<Scalar>::scale(Index count, Scalar factor, Scalar* x) {
    pool_->ranges(count, column_step, count,
                  [&](Index begin, Index end) { array(x + begin, end - begin) *= factor; });
}

template <class Scalar>
void CpuKernels<Scalar>::fill(Index count, Scalar value, Scalar* x) {
    pool_->ranges(count, column_step, count, [&](Index begin, Index end) {
        array(x + begin, end - begin).setConstant(value);
    });
}

template <class Scalar>
void CpuKernels<Scalar>::norm_forward(const NormShape& s, const Scalar* x, const Scalar* scale,
                                      const Scalar* shift, Scalar* y, Scalar* stats) {
    const auto width = static_cast<Scalar>(s.width);
    pool_->ranges(s.rows, 1, 4 * s.rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const auto in = array(x + r * s.width, s.width);
            auto out = array(y + r * s.width, s.width);
            const Scalar mean = s.kind == sim::NormKind::layernorm ? in.sum() / width : Scalar(0);
            const Scalar square = (in - mean).square().sum() / width;
            const Scalar inverse = Scalar(1) / std::sqrt(square + static_cast<Scalar>(s.epsilon));
            Scalar* kept = stats + r * s.statistics();
            if (s.kind == sim::NormKind::layernorm) *kept++ = mean;
            *kept = inverse;
            out = (in - mean) * inverse;
            if (scale != nullptr) out *= array(scale, s.width);
            if (shift != nullptr) out += array(shift, s.width);
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::norm_backward(const NormShape& s, const Scalar* dy, const Scalar* x,
                                       const Scalar* scale, const Scalar* stats, Scalar* dx,
                                       Scalar* dscale, Scalar* dshift) {
    const auto width = static_cast<Scalar>(s.width);
    pool_->ranges(s.rows, 1, 8 * s.rows * s.width, [&](Index begin, Index end) {
        Eigen::Array<Scalar, Eigen::Dynamic, 1> normed(s.width);
        Eigen::Array<Scalar, Eigen::Dynamic, 1> g(s.width);
        for (Index r = begin; r < end; ++r) {
            const RowStatistics<Scalar> row = statistics_of(s, stats, r);
            const Scalar inverse = row.inverse;
            normed = (array(x + r * s.width, s.width) - row.mean) * inverse;
            g = array(dy + r * s.width, s.width);
            if (scale != nullptr) g *= array(scale, s.width);
            const Scalar along = (g * normed).sum() / width;
            const Scalar mean = s.kind == sim::NormKind::layernorm ? g.sum() / width : Scalar(0);
            array(dx + r * s.width, s.width) += (g - mean - normed * along) * inverse;
        }
    });
    if (dscale == nullptr && dshift == nullptr) return;
    pool_->ranges(s.width, column_step, 4 * s.rows * s.width, [&](Index begin, Index end) {
        const Index columns = end - begin;
        for (Index r = 0; r < s.rows; ++r) {
            const auto g = array(dy + r * s.width + begin, columns);
            const RowStatistics<Scalar> row = statistics_of(s, stats, r);
            if (dscale != nullptr) {
                array(dscale + begin, columns) +=
                    g * ((array(x + r * s.width + begin, columns) - row.mean) * row.inverse);
            }
            if (dshift != nullptr) array(dshift + begin, columns) += g;
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::set_angles(const RotaryShape& s) {
    Angles& a = angles_;
    const Index length = s.positions == nullptr
                             ? s.length
                             : 1 + *std::max_element(s.positions, s.positions + s.length);
    const bool known = length <= a.length && s.rotated == a.rotated && s.base == a.base;
    if (known) return;
    const Index half = s.rotated / 2;
    a.cosine.reset(length * half);
    a.sine.reset(length * half);
    a.length = length;
    a.rotated = s.rotated;
    a.base = s.base;
    pool_->ranges(length, 1, 64 * length * half, [&](Index begin, Index end) {
        for (Index position = begin; position < end; ++position) {
            for (Index i = 0; i < half; ++i) {
                const double exponent =
                    -2.0 * static_cast<double>(i) / static_cast<double>(s.rotated);
                const double angle = static_cast<double>(position) * std::pow(s.base, exponent);
                a.cosine[position * half + i] = static_cast<Scalar>(std::cos(angle));
                a.sine[position * half + i] = static_cast<Scalar>(std::sin(angle));
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::rotate(const RotaryShape& s, bool inverse, Scalar* x) {
    const Index half = s.rotated / 2;
    const Scalar sign = inverse ? Scalar(-1) : Scalar(1);
    set_angles(s);
    pool_->ranges(s.rows, 1, 4 * s.rows * s.heads * s.rotated, [&](Index begin, Index end) {
        Eigen::Array<Scalar, Eigen::Dynamic, 1> first(half);
        for (Index row = begin; row < end; ++row) {
            const Index place = row % s.length;
            const Index position = s.positions != nullptr ? s.positions[place] : place;
            const auto cosine = array(angles_.cosine.data() + position * half, half);
            const auto sine = array(angles_.sine.data() + position * half, half);
            for (Index head = 0; head < s.heads; ++head) {
                Scalar* at = x + row * s.stride + head * s.head_dim;
                auto low = array(at, half);
                auto high = array(at + half, half);
                first = low;
                low = first * cosine - sign * (high * sine);
                high = high * cosine + sign * (first * sine);
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::embed(const EmbedShape& s, std::span<const Token> tokens,
                               const Scalar* table, Scalar* y, bool accumulate) {
    const auto rows = static_cast<Index>(tokens.size());
    pool_->ranges(rows, 1, rows * s.width, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            const Index at = tokens[static_cast<std::size_t>(r)] - s.first;
            const bool here = at >= 0 && at < s.count;
            auto out = array(y + r * s.width, s.width);
            if (here && accumulate) {
                out += array(table + at * s.width, s.width);
            } else if (here) {
                out = array(table + at * s.width, s.width);
            } else if (!accumulate) {
                out.setZero();
            }
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::embed_backward(const EmbedShape& s, std::span<const Token> tokens,
                                        const Scalar* dy, Scalar* dtable) {
    const auto rows = static_cast<Index>(tokens.size());
    // by columns: a token that occurs twice is added in the order of the rows
    pool_->ranges(s.width, column_step, 2 * rows * s.width, [&](Index begin, Index end) {
        const Index columns = end - begin;
        for (Index r = 0; r < rows; ++r) {
            const Index at = tokens[static_cast<std::size_t>(r)] - s.first;
            if (at < 0 || at >= s.count) continue;
            array(dtable + at * s.width + begin, columns) +=
                array(dy + r * s.width + begin, columns);
        }
    });
}

#define SHARDPLAN_INSTANTIATE(S)                                                                  \
    template void CpuKernels<S>::add_rows(Index, Index, const S*, const S*, S*);                  \
    template void CpuKernels<S>::sum_rows(Index, Index, const S*, S*);                            \
    template void CpuKernels<S>::add(Index, const S*, S*);                                        \
    template void CpuKernels<S>::scale(Index, S, S*);                                             \
    template void CpuKernels<S>::fill(Index, S, S*);                                              \
    template void CpuKernels<S>::norm_forward(const NormShape&, const S*, const S*, const S*, S*, \
                                              S*);                                                \
    template void CpuKernels<S>::norm_backward(const NormShape&, const S*, const S*, const S*,    \
                                               const S*, S*, S*, S*);                             \
    template void CpuKernels<S>::rotate(const RotaryShape&, bool, S*);                            \
    template void CpuKernels<S>::embed(const EmbedShape&, std::span<const Token>, const S*, S*,   \
                                       bool);                                                     \
    template void CpuKernels<S>::embed_backward(const EmbedShape&, std::span<const Token>,        \
                                                const S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
