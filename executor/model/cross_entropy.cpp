#include "executor/model/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

namespace shardplan::exec {

namespace {

/// Rows between whose three steps the logits stay in the second cache, where no exchange asks for
/// all of them at once.
constexpr Index cached_rows = 8;

} // namespace

/// Source of the exchanges: Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053), section 3.
template <class Scalar>
double CrossEntropy<Scalar>::softmax(Index rows_now, std::span<const Token> targets, double factor,
                                     bool differentiates, Scalar* logits, Scalar* found) const {
    const bool split = links->share().tp.parts > 1;
    const Index step = split ? rows_now : std::min(rows_now, cached_rows);
    double loss = 0.0;
    for (Index row = 0; row < rows_now; row += step) {
        const Index now = std::min(step, rows_now - row);
        const LossShape shape{now, vocab, first};
        const std::span<const Token> wanted =
            targets.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(now));
        Scalar* at = logits + row * vocab;
        Scalar* top = found;
        Scalar* sums = top + now;
        Scalar* chosen = sums + now;
        kernels->loss_top(shape, at, top);
        if (split) links->all_reduce(sim::Group::tp, top, now, Sent::exact, ReduceOp::max);
        kernels->loss_sums(shape, wanted, top, at, sums, chosen);
        if (split) links->all_reduce(sim::Group::tp, sums, 2 * now, Sent::exact);
        for (Index r = 0; r < now; ++r) {
            loss += static_cast<double>(top[r]) + std::log(static_cast<double>(sums[r])) -
                    static_cast<double>(chosen[r]);
        }
        if (differentiates) kernels->loss_gradient(shape, wanted, factor, sums, at);
    }
    return loss;
}

template <class Scalar>
double CrossEntropy<Scalar>::run(const Scalar* x, const Head& head, std::span<const Token> targets,
                                 double factor, Scalar* dx) const {
    const Index step = std::min(chunk, rows);
    Scratch<Scalar> logits(*arena, step * vocab);
    Scratch<Scalar> found(*arena, 3 * step); // maxima, sums, logits of the targets
    double loss = 0.0;
    for (Index row = 0; row < rows; row += step) {
        const Index now = std::min(step, rows - row);
        const Scalar* in = x + row * hidden;
        const bool begun = head.bias != nullptr;
        if (begun) kernels->add_rows(now, vocab, nullptr, head.bias, logits.data());
        kernels->product(ProductForm::nt, {now, vocab, hidden}, in, head.values, logits.data(),
                         begun);
        loss += softmax(
            now, targets.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(now)),
            factor, dx != nullptr, logits.data(), found.data());
        if (dx == nullptr) continue;
        kernels->product(ProductForm::nn, {now, hidden, vocab}, logits.data(), head.values,
                         dx + row * hidden, false);
        kernels->product(ProductForm::tn, {vocab, hidden, now}, logits.data(), in, head.gradient,
                         true);
        if (begun) kernels->sum_rows(now, vocab, logits.data(), head.bias_gradient);
    }
    return loss;
}

template struct CrossEntropy<float>;
template struct CrossEntropy<double>;

} // namespace shardplan::exec
