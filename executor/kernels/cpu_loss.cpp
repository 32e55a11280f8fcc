#include <limits>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

template <class Scalar>
void CpuKernels<Scalar>::loss_top(const LossShape& s, const Scalar* logits, Scalar* top) {
    pool_->ranges(s.rows, 1, s.rows * s.vocab, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            top[r] = s.vocab > 0 ? array(logits + r * s.vocab, s.vocab).maxCoeff()
                                 : -std::numeric_limits<Scalar>::infinity();
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::loss_sums(const LossShape& s, std::span<const Token> targets,
                                   const Scalar* top, Scalar* logits, Scalar* sums,
                                   Scalar* chosen) {
    pool_->ranges(s.rows, 1, 12 * s.rows * s.vocab, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            auto row = array(logits + r * s.vocab, s.vocab);
            const Index target = targets[static_cast<std::size_t>(r)] - s.first;
            chosen[r] = target >= 0 && target < s.vocab ? row[target] : Scalar(0);
            row = (row - top[r]).exp();
            sums[r] = row.sum();
        }
    });
}

template <class Scalar>
void CpuKernels<Scalar>::loss_gradient(const LossShape& s, std::span<const Token> targets,
                                       double factor, const Scalar* sums, Scalar* logits) {
    const auto scale = static_cast<Scalar>(factor);
    pool_->ranges(s.rows, 1, 2 * s.rows * s.vocab, [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r) {
            auto row = array(logits + r * s.vocab, s.vocab);
            row *= scale / sums[r];
            const Index target = targets[static_cast<std::size_t>(r)] - s.first;
            if (target >= 0 && target < s.vocab) row[target] -= scale;
        }
    });
}

#define SHARDPLAN_INSTANTIATE(S)                                                                   \
    template void CpuKernels<S>::loss_top(const LossShape&, const S*, S*);                         \
    template void CpuKernels<S>::loss_sums(const LossShape&, std::span<const Token>, const S*, S*, \
                                           S*, S*);                                                \
    template void CpuKernels<S>::loss_gradient(const LossShape&, std::span<const Token>, double,   \
                                               const S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
