#include "executor/model/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::exec {

/// Source of the exchanges: Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053), section 3.
template <class Scalar>
double CrossEntropy<Scalar>::run(const Scalar* x, const Scalar* head,
                                 std::span<const Token> targets, double factor, Scalar* dx,
                                 Scalar* dhead) const {
    const Index step = std::min(chunk, rows);
    const bool split = links->share().tp.parts > 1;
    Scratch<Scalar> logits(*arena, step * vocab);
    Scratch<Scalar> found(*arena, 3 * step); // maxima, sums, logits of the targets
    Scalar* top = found.data();
    double loss = 0.0;
    for (Index first_row = 0; first_row < rows; first_row += step) {
        const Index now = std::min(step, rows - first_row);
        const LossShape shape{now, vocab, first};
        const std::span<const Token> wanted =
            targets.subspan(static_cast<std::size_t>(first_row), static_cast<std::size_t>(now));
        const Scalar* in = x + first_row * hidden;
        Scalar* sums = top + now;
        Scalar* chosen = sums + now;
        kernels->product(ProductForm::nt, {now, vocab, hidden}, in, head, logits.data(), false);
        kernels->loss_top(shape, logits.data(), top);
        if (split) links->all_reduce(sim::Group::tp, top, now, ReduceOp::max);
        kernels->loss_sums(shape, wanted, top, logits.data(), sums, chosen);
        if (split) links->all_reduce(sim::Group::tp, sums, 2 * now);
        for (Index r = 0; r < now; ++r) {
            loss += static_cast<double>(top[r]) + std::log(static_cast<double>(sums[r])) -
                    static_cast<double>(chosen[r]);
        }
        if (dx == nullptr) continue;
        kernels->loss_gradient(shape, wanted, factor, sums, logits.data());
        kernels->product(ProductForm::nn, {now, hidden, vocab}, logits.data(), head,
                         dx + first_row * hidden, false);
        kernels->product(ProductForm::tn, {vocab, hidden, now}, logits.data(), in, dhead, true);
    }
    return loss;
}

template struct CrossEntropy<float>;
template struct CrossEntropy<double>;

} // namespace shardplan::exec
