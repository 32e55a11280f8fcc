#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

namespace {

/// Turns a row of logits into its gradient, and returns its loss.
template <class Scalar>
double softmax_row(Scalar* logits, Index vocab, Token target, Scalar factor) {
    auto row = array(logits, vocab);
    const Scalar top = row.maxCoeff();
    const Scalar chosen = row[target];
    row = (row - top).exp();
    const Scalar sum = row.sum();
    row *= factor / sum;
    row[target] -= factor;
    return static_cast<double>(top) + std::log(static_cast<double>(sum)) -
           static_cast<double>(chosen);
}

} // namespace

template <class Scalar>
double CpuKernels<Scalar>::cross_entropy(const LossShape& s, const Scalar* x, const Scalar* head,
                                         std::span<const Token> targets, double factor, Scalar* dx,
                                         Scalar* dhead) {
    const Index chunk = std::min(s.chunk, s.rows);
    if (logits_.size() < chunk * s.vocab) logits_.reset(chunk * s.vocab);
    Scalar* logits = logits_.data();
    std::vector<double> losses(static_cast<std::size_t>(s.rows));
    for (Index first = 0; first < s.rows; first += chunk) {
        const Index rows = std::min(chunk, s.rows - first);
        const Scalar* in = x + first * s.hidden;
        this->product(ProductForm::nt, {rows, s.vocab, s.hidden}, in, head, logits, false);
        pool_->ranges(rows, 1, 16 * rows * s.vocab, [&](Index begin, Index end) {
            for (Index r = begin; r < end; ++r) {
                const auto at = static_cast<std::size_t>(first + r);
                losses[at] = softmax_row(logits + r * s.vocab, s.vocab, targets[at],
                                         static_cast<Scalar>(factor));
            }
        });
        if (dx == nullptr) continue;
        this->product(ProductForm::nn, {rows, s.hidden, s.vocab}, logits, head,
                      dx + first * s.hidden, false);
        this->product(ProductForm::tn, {s.vocab, s.hidden, rows}, logits, in, dhead, true);
    }
    double sum = 0.0;
    for (const double loss : losses) {
        sum += loss;
    }
    return sum;
}

#define SHARDPLAN_INSTANTIATE(S)                                                       \
    template double CpuKernels<S>::cross_entropy(const LossShape&, const S*, const S*, \
                                                 std::span<const Token>, double, S*, S*);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
