#include "executor/model/block.hpp"

/// The routed half of a block.
namespace shardplan::exec {

/// From the normed vectors to what each expert gives for each of its tokens.
template <class Scalar>
void Block<Scalar>::experts_inner(BlockState<Scalar>& s) const {
    const RouterShape shape = router_shape();
    const ActivationShape active = activation_shape();
    const Storage storage = work_.options->storage;
    const Index choices = shape.rows * shape.top_k;
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    s.expert.resize(static_cast<std::size_t>(choices));
    s.place.resize(static_cast<std::size_t>(choices));
    s.offsets.resize(static_cast<std::size_t>(shape.experts + 1));
    const Reading<Scalar> normed = s.ffn_normed.read();
    {
        Scratch<Scalar> logits(arena, shape.rows * shape.experts);
        linear_forward(*p_.router, std::nullopt, normed, nullptr, logits.data());
        // routing decides by small differences: never rounded
        Scalar* p = s.probabilities.write(arena, Storage::scalar, shape.rows * shape.experts);
        Scalar* w = s.weights.write(arena, Storage::scalar, choices);
        s.balance = run.route(shape, logits.data(), p, w, s.routing());
    }
    run.dispatch(shape, hidden_, s.routing(), normed,
                 s.sorted.write(arena, storage, choices * hidden_));
    s.sorted.seal();
    const Index up_width = active.width * (active.gated ? 2 : 1);
    run.grouped_product(ProductForm::nt, s.offsets, {0, up_width, hidden_}, s.sorted.read(),
                        weights(p_.up), s.up.write(arena, storage, choices * up_width), false);
    s.up.seal();
    run.activation_forward(active, s.up.read(),
                           s.activated.write(arena, storage, choices * active.width));
    s.activated.seal();
    run.grouped_product(ProductForm::nt, s.offsets, {0, hidden_, active.width}, s.activated.read(),
                        weights(p_.down), s.expert_out.write(arena, storage, choices * hidden_),
                        false);
    s.expert_out.seal();
}

template <class Scalar>
void Block<Scalar>::experts_backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor,
                                     DeferredWeights<Scalar>* deferred) const {
    const RouterShape shape = router_shape();
    const ActivationShape active = activation_shape();
    const Index choices = shape.rows * shape.top_k;
    const Index up_width = active.width * (active.gated ? 2 : 1);
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    Scratch<Scalar> dweights(arena, choices);
    Scratch<Scalar> drows(arena, choices * hidden_); // of the experts' outputs, then their inputs
    run.combine_backward(shape, hidden_, s.routing(), s.weights.read(), s.expert_out.read(),
                         gradient, dweights.data(), drows.data());
    {
        Scratch<Scalar> dactivated(arena, choices * active.width);
        Scratch<Scalar> dup(arena, choices * up_width);
        run.grouped_product(ProductForm::nn, s.offsets, {0, active.width, hidden_}, drows.data(),
                            weights(p_.down), dactivated.data(), false);
        finish_linear_backward(p_.down, std::nullopt, s.offsets, s.activated,
                               {drows.data(), static_cast<std::size_t>(choices * hidden_)},
                               deferred);
        run.activation_backward(active, s.up.read(), dactivated.data(), dup.data());
        run.grouped_product(ProductForm::nn, s.offsets, {0, hidden_, up_width}, dup.data(),
                            weights(p_.up), drows.data(), false);
        finish_linear_backward(p_.up, std::nullopt, s.offsets, s.sorted,
                               {dup.data(), static_cast<std::size_t>(choices * up_width)},
                               deferred);
    }
    Scratch<Scalar> dlogits(arena, shape.rows * shape.experts);
    run.route_backward(shape, s.probabilities.read(), s.weights.read(), s.routing(),
                       dweights.data(), balance_factor, dlogits.data());
    Scratch<Scalar> dnormed(arena, tokens_ * hidden_);
    linear_backward(*p_.router, std::nullopt, s.ffn_normed, dlogits.data(), dnormed.data(),
                    deferred);
    run.dispatch_backward(shape, hidden_, s.routing(), drows.data(), dnormed.data());
    norm_backward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, dnormed.data(), gradient);
}

#define SHARDPLAN_INSTANTIATE(S)                                 \
    template void Block<S>::experts_inner(BlockState<S>&) const; \
    template void Block<S>::experts_backward(BlockState<S>&, S*, double, DeferredWeights<S>*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
