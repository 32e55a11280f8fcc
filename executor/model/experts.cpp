#include <algorithm>
#include <utility>

#include "executor/model/block.hpp"

/// The routed half of a block.
namespace shardplan::exec {

/// Of the rows that this rank sends.
template <class Scalar>
Routing Block<Scalar>::sent_routing(BlockState<Scalar>& s) const {
    return {s.expert.data() + sent_first_ * kind_.ffn.top_k, s.place.data(), s.offsets.data()};
}

/// experts * sum over experts of (share of the choices) * (mean probability), over the rows of all
/// ranks. Source: Switch Transformer (Fedus et al. 2021, arXiv 2101.03961), with the choices
/// divided by rows * top_k as in Megatron Core's moe_utils.py.
template <class Scalar>
void Block<Scalar>::balance_load(BlockState<Scalar>& s, std::vector<double>& sums) const {
    const Index experts = kind_.ffn.experts;
    const RankShare& share = work_.links->share();
    if (share.sp) work_.links->all_reduce(sim::Group::tp, sums.data(), 2 * experts, Sent::exact);
    if (share.cp.parts > 1)
        work_.links->all_reduce(sim::Group::cp, sums.data(), 2 * experts, Sent::exact);
    const auto tokens = static_cast<double>(work_.options->tokens());
    s.balance = 0.0;
    s.slopes.clear();
    for (Index e = 0; e < experts; ++e) {
        const double chosen = sums[static_cast<std::size_t>(experts + e)];
        const double slope = work_.options->balance * static_cast<double>(experts) * chosen /
                             (tokens * static_cast<double>(kind_.ffn.top_k)) / tokens;
        s.balance += slope * sums[static_cast<std::size_t>(e)];
        s.slopes.push_back(slope);
    }
}

template <class Scalar>
void Block<Scalar>::gather_sent(Index width, Scalar* values, Sent as) const {
    work_.links->all_gather(sim::Group::tp, values + tp_.part * sent_step_ * width,
                            sent_step_ * width, values, as);
}

/// From the normed vectors to the input of the experts' last map.
template <class Scalar>
void Block<Scalar>::experts_inner(BlockState<Scalar>& s) const {
    const RouterShape shape = router_shape(rows_.own);
    const RouterShape sent = router_shape(sent_rows_);
    const Storage storage = work_.options->storage;
    const Index choices = sent.rows * sent.top_k;
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    s.expert.resize(static_cast<std::size_t>(shape.rows * shape.top_k));
    s.place.resize(static_cast<std::size_t>(choices));
    s.offsets.resize(static_cast<std::size_t>(shape.experts + 1));
    {
        Scratch<Scalar> logits(arena, shape.rows * shape.experts);
        map_forward(router_map(), ffn_input(s), logits.data());
        // routing decides by small differences: never rounded
        Scalar* p = s.probabilities.write(arena, Storage::scalar, shape.rows * shape.experts);
        Scalar* w = s.weights.write(arena, Storage::scalar, shape.rows * shape.top_k);
        std::vector<double> sums(static_cast<std::size_t>(2 * shape.experts));
        run.route(shape, logits.data(), p, w, s.expert.data(), sums.data());
        balance_load(s, sums);
    }
    run.sort_choices(sent, sent_routing(s));
    s.way = exchange_.way(s.offsets);
    Scalar* sorted = s.sorted.write(arena, storage, s.way.rows * hidden_);
    {
        const Reading<Scalar> normed = ffn_input(s).read();
        const Scalar* x = normed + sent_first_ * hidden_;
        Scratch<Scalar> going;
        if (exchange_.moves()) going = Scratch<Scalar>(arena, choices * hidden_);
        Scalar* dispatched = exchange_.moves() ? going.data() : sorted;
        run.dispatch(sent, hidden_, sent_routing(s), x, dispatched);
        if (exchange_.moves()) exchange_.to_experts(s.way, hidden_, dispatched, sorted);
    }
    s.sorted.seal();
    const ActivationShape active = activation_shape(s.way.rows);
    const Index up_width = active.width * (active.gated ? 2 : 1);
    Scalar* up = s.up.write(arena, storage, active.rows * up_width);
    if (p_.up_bias) put_expert_bias(*p_.up_bias, s.way.offsets, up);
    run.grouped_product(ProductForm::nt, s.way.offsets, {0, up_width, hidden_}, s.sorted.read(),
                        weights(p_.up), up, p_.up_bias.has_value());
    s.up.seal();
    run.activation_forward(active, s.up.read(),
                           s.activated.write(arena, storage, active.rows * active.width));
    s.activated.seal();
}

template <class Scalar>
void Block<Scalar>::put_expert_bias(Index bias, const std::vector<Index>& offsets,
                                    Scalar* rows) const {
    const Index experts = static_cast<Index>(offsets.size()) - 1;
    const Index width = work_.parameters->table()[bias].rows / experts;
    const Reading<Scalar> values = weights(bias);
    for (Index e = 0; e < experts; ++e) {
        const Index first = offsets[static_cast<std::size_t>(e)];
        work_.kernels->add_rows(offsets[static_cast<std::size_t>(e + 1)] - first, width, nullptr,
                                values + e * width, rows + first * width);
    }
}

template <class Scalar>
void Block<Scalar>::weight_bias_gradient(const ExpertWay& way, const Scalar* dy,
                                         Scalar* dfactors) const {
    // it is added by the first of the ranks that split the expert
    if (!p_.down_bias || work_.links->share().etp.part > 0) return;
    Scratch<Scalar> bias(*work_.arena, way.rows * hidden_);
    Scratch<Scalar> products(*work_.arena, way.rows);
    put_expert_bias(*p_.down_bias, way.offsets, bias.data());
    work_.kernels->row_products(way.rows, hidden_, dy, bias.data(), products.data());
    work_.kernels->add(way.rows, products.data(), dfactors);
}

/// What each expert gives for each of the rows that this rank has sent, in their order.
template <class Scalar>
Scratch<Scalar> Block<Scalar>::expert_outputs(BlockState<Scalar>& s) const {
    const Index sent = sent_rows_ * kind_.ffn.top_k;
    Scratch<Scalar> computed(*work_.arena, s.way.rows * hidden_);
    const bool begun = p_.down_bias && work_.links->share().etp.part == 0;
    if (begun) put_expert_bias(*p_.down_bias, s.way.offsets, computed.data());
    work_.kernels->grouped_product(ProductForm::nt, s.way.offsets, {0, hidden_, ffn_width_},
                                   s.activated.read(), weights(p_.down), computed.data(), begun);
    if (!exchange_.moves()) return computed;
    Scratch<Scalar> back(*work_.arena, sent * hidden_);
    exchange_.from_experts(s.way, hidden_, std::move(computed), back.data());
    return back;
}

template <class Scalar>
void Block<Scalar>::experts_output(BlockState<Scalar>& s, const Tensor<Scalar>* residual,
                                   Scalar* output) const {
    Kernels<Scalar>& run = *work_.kernels;
    const Scratch<Scalar> given = expert_outputs(s);
    const Reading<Scalar> begin = residual != nullptr ? residual->read() : Reading<Scalar>(nullptr);
    const Reading<Scalar> weights = s.weights.read();
    const Scalar* sent_weights = weights + sent_first_ * kind_.ffn.top_k;
    // residual, where it goes into the sum of the ranks once; then what the experts gave
    const auto join = [&](const Scalar* from, Scalar* y) {
        run.add_rows(sent_rows_, hidden_, from, nullptr, y);
        run.combine(router_shape(sent_rows_), hidden_, sent_routing(s), sent_weights, given.data(),
                    y);
    };
    if (shares_rows_) {
        Scratch<Scalar> all(*work_.arena, tp_.parts * sent_step_ * hidden_);
        join(residual != nullptr ? begin + sent_first_ * hidden_ : nullptr,
             all.data() + tp_.part * sent_step_ * hidden_);
        gather_sent(hidden_, all.data(), Sent::stored);
        std::copy_n(all.data(), rows_.own * hidden_, output);
        return;
    }
    join(sums_experts_ && tp_.part > 0 ? nullptr : static_cast<const Scalar*>(begin), output);
    if (sums_experts_) work_.links->all_reduce(sim::Group::etp, output, rows_.own * hidden_);
}

/// From the gradients of the rows of weighted outputs, `drows`, to those of what the experts got
/// and of the weights. These are found where the experts are: the gradient of a weight is that of
/// the activations times them, so that outputs need not be kept. Source: Megatron Core
/// (experts.py), which weights the activations themselves.
template <class Scalar>
void Block<Scalar>::expert_maps_backward(BlockState<Scalar>& s, Scratch<Scalar>& drows,
                                         Scalar* dweights,
                                         DeferredWeights<Scalar>* deferred) const {
    const ActivationShape active = activation_shape(s.way.rows);
    const Index up_width = active.width * (active.gated ? 2 : 1);
    const Index choices = sent_rows_ * kind_.ffn.top_k;
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    Scratch<Scalar> factors(arena, choices); // weights in the order of the sent rows
    {
        const Reading<Scalar> weights = s.weights.read();
        run.move_rows(choices, 1, s.place.data(), weights + sent_first_ * kind_.ffn.top_k,
                      factors.data());
    }
    Scratch<Scalar> come;
    Scratch<Scalar> come_factors;
    if (exchange_.moves()) {
        come = Scratch<Scalar>(arena, active.rows * hidden_);
        come_factors = Scratch<Scalar>(arena, active.rows);
        exchange_.to_experts(s.way, hidden_, drows.data(), come.data());
        exchange_.to_experts(s.way, 1, factors.data(), come_factors.data(), Sent::exact);
    }
    Scalar* dy = exchange_.moves() ? come.data() : drows.data();
    const Scalar* w = exchange_.moves() ? come_factors.data() : factors.data();
    Scratch<Scalar> dfactors(arena, active.rows);
    Scratch<Scalar> dactivated(arena, active.rows * active.width);
    run.grouped_product(ProductForm::nn, s.way.offsets, {0, active.width, hidden_}, dy,
                        weights(p_.down), dactivated.data(), false);
    run.row_products(active.rows, active.width, dactivated.data(), s.activated.read(),
                     dfactors.data());
    weight_bias_gradient(s.way, dy, dfactors.data());
    run.scale_rows(active.rows, active.width, w, dactivated.data());
    run.scale_rows(active.rows, hidden_, w, dy);
    finish_backward({p_.down, p_.down_bias}, s.way.offsets, s.activated,
                    {dy, static_cast<std::size_t>(active.rows * hidden_)}, deferred);
    settle(s.activated, deferred);
    Scratch<Scalar> dup(arena, active.rows * up_width);
    run.activation_backward(active, s.up.read(), dactivated.data(), dup.data());
    s.up.release();
    dactivated.release();
    run.grouped_product(ProductForm::nn, s.way.offsets, {0, hidden_, up_width}, dup.data(),
                        weights(p_.up), dy, false);
    finish_backward({p_.up, p_.up_bias}, s.way.offsets, s.sorted, std::move(dup), deferred);
    settle(s.sorted, deferred);
    const bool moves = exchange_.moves();
    if (moves) {
        exchange_.from_experts(s.way, hidden_, std::move(come), drows.data());
        exchange_.from_experts(s.way, 1, std::move(dfactors), factors.data(), Sent::exact);
    }
    std::fill_n(dweights, choices, Scalar(0));
    run.dispatch_backward({choices, 0, 1}, 1, sent_routing(s),
                          moves ? factors.data() : dfactors.data(), dweights);
}

/// Adds the gradients of sent rows to those of the normed vectors.
template <class Scalar>
void Block<Scalar>::dispatch_backward(BlockState<Scalar>& s, const Scalar* drows,
                                      Scalar* dnormed) const {
    const RouterShape sent = router_shape(sent_rows_);
    const Index count = rows_.own * hidden_;
    if (shares_rows_) {
        Scratch<Scalar> all(*work_.arena, tp_.parts * sent_step_ * hidden_);
        Scalar* own = all.data() + tp_.part * sent_step_ * hidden_;
        std::fill_n(own, sent_step_ * hidden_, Scalar(0));
        work_.kernels->dispatch_backward(sent, hidden_, sent_routing(s), drows, own);
        gather_sent(hidden_, all.data(), Sent::stored);
        work_.kernels->add(count, all.data(), dnormed);
        return;
    }
    // what is alike on all ranks goes into their sum once
    if (sums_experts_ && tp_.part > 0) std::fill_n(dnormed, count, Scalar(0));
    work_.kernels->dispatch_backward(sent, hidden_, sent_routing(s), drows, dnormed);
    if (sums_experts_) work_.links->all_reduce(sim::Group::etp, dnormed, count);
}

template <class Scalar>
void Block<Scalar>::experts_backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor,
                                     DeferredWeights<Scalar>* deferred) const {
    const RouterShape shape = router_shape(rows_.own);
    const RouterShape sent = router_shape(sent_rows_);
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    const Index all_rows = shares_rows_ ? tp_.parts * sent_step_ : shape.rows;
    Scratch<Scalar> dweights(arena, all_rows * shape.top_k);
    Scratch<Scalar> drows(arena, sent.rows * sent.top_k * hidden_);
    Reading<Scalar> dy = end_backward(Half::ffn, s, gradient);
    run.dispatch(sent, hidden_, sent_routing(s), dy + sent_first_ * hidden_, drows.data());
    if (!p_.shared_up) dy = Reading<Scalar>(nullptr);
    const Index first = shares_rows_ ? tp_.part * sent_step_ : 0;
    expert_maps_backward(s, drows, dweights.data() + first * shape.top_k, deferred);
    if (shares_rows_) gather_sent(shape.top_k, dweights.data(), Sent::exact);
    if (sums_experts_) {
        work_.links->all_reduce(sim::Group::etp, dweights.data(), shape.rows * shape.top_k,
                                Sent::exact);
    }
    std::vector<double> slopes = s.slopes;
    for (double& slope : slopes) {
        slope *= balance_factor;
    }
    Scratch<Scalar> dlogits(arena, shape.rows * shape.experts);
    run.route_backward(shape, s.probabilities.read(), s.weights.read(), s.expert.data(),
                       dweights.data(), slopes.data(), dlogits.data());
    s.probabilities.release();
    s.weights.release();
    dweights.release();
    Scratch<Scalar> dnormed(arena, rows_.own * hidden_);
    // shared experts read the same input, behind the router in the backward pass
    const std::size_t x_from = !p_.shared_up ? 0 : p_.shared_gate ? 3 : 2;
    map_backward(router_map(), ffn_input(s), std::move(dlogits), dnormed.data(), deferred, x_from);
    dispatch_backward(s, drows.data(), dnormed.data());
    drows.release();
    if (p_.shared_up) shared_backward(s, dy, dnormed.data(), deferred);
    input_backward(Half::ffn, s, dnormed.data(), gradient);
}

#define SHARDPLAN_INSTANTIATE(S)                                                         \
    template Routing Block<S>::sent_routing(BlockState<S>&) const;                       \
    template void Block<S>::balance_load(BlockState<S>&, std::vector<double>&) const;    \
    template void Block<S>::gather_sent(Index, S*, Sent) const;                          \
    template void Block<S>::experts_inner(BlockState<S>&) const;                         \
    template void Block<S>::experts_output(BlockState<S>&, const Tensor<S>*, S*) const;  \
    template Scratch<S> Block<S>::expert_outputs(BlockState<S>&) const;                  \
    template void Block<S>::expert_maps_backward(BlockState<S>&, Scratch<S>&, S*,        \
                                                 DeferredWeights<S>*) const;             \
    template void Block<S>::put_expert_bias(Index, const std::vector<Index>&, S*) const; \
    template void Block<S>::weight_bias_gradient(const ExpertWay&, const S*, S*) const;  \
    template void Block<S>::dispatch_backward(BlockState<S>&, const S*, S*) const;       \
    template void Block<S>::experts_backward(BlockState<S>&, S*, double, DeferredWeights<S>*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
