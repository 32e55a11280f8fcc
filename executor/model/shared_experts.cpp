#include <algorithm>
#include <utility>

#include "executor/model/block.hpp"

/// Experts that every token goes to, beside the routed ones: a network split as dense ones are. Its
/// output may be weighted by a gate of each token. Sources: DeepSeekMoE (arXiv 2401.06066); the
/// gate: Qwen2 (arXiv 2407.10671), Qwen2MoeSparseMoeBlock of the transformers library.
namespace shardplan::exec {

template <class Scalar>
void Block<Scalar>::shared_inner(BlockState<Scalar>& s, Scratch<Scalar>* beside) const {
    const ActivationShape shape = shared_shape();
    const Index up_width = shape.width * (shape.gated ? 2 : 1);
    const Storage storage = work_.options->storage;
    Arena& arena = *work_.arena;
    Kernels<Scalar>& run = *work_.kernels;
    map_forward(shared_up_map(), ffn_input(s),
                s.shared_up.write(arena, storage, shape.rows * up_width));
    s.shared_up.seal();
    run.activation_forward(shape, s.shared_up.read(),
                           s.shared_activated.write(arena, storage, shape.rows * shape.width));
    s.shared_activated.seal();
    if (beside != nullptr) {
        *beside = Scratch<Scalar>(arena, rows_.own * hidden_);
        sum_forward(shared_down_map(), s.shared_activated.read(), nullptr, beside->data());
    }
    if (!p_.shared_gate) return;
    Scalar* factor = s.shared_factor.write(arena, storage, rows_.own);
    map_forward(shared_gate_map(), ffn_input(s), factor);
    run.sigmoid(rows_.own, factor);
    s.shared_factor.seal();
    if (beside != nullptr) {
        run.scale_rows(rows_.own, hidden_, s.shared_factor.read(), beside->data());
    }
}

/// The gate weights the activations as well as the output: its gradient is that of the activations
/// times them, so that the output need not be kept. `dy_all` becomes the gradient of what the last
/// map gives, in `scaled`.
template <class Scalar>
void Block<Scalar>::shared_gate_backward(BlockState<Scalar>& s, const Scalar* dy_all,
                                         Scalar* dactivated, Scratch<Scalar>& scaled,
                                         Scalar* dinput, DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = shared_shape();
    Arena& arena = *work_.arena;
    Kernels<Scalar>& run = *work_.kernels;
    const bool gathered = work_.links->share().sp;
    Scratch<Scalar> dfactors(arena, shape.rows);
    run.row_products(shape.rows, shape.width, dactivated, s.shared_activated.read(),
                     dfactors.data());
    scaled = Scratch<Scalar>(arena, shape.rows * hidden_);
    if (p_.shared_down_bias && tp_.part == 0) {
        Scratch<Scalar> with_bias(arena, shape.rows);
        run.add_rows(shape.rows, hidden_, nullptr, weights(*p_.shared_down_bias), scaled.data());
        run.row_products(shape.rows, hidden_, dy_all, scaled.data(), with_bias.data());
        run.add(shape.rows, with_bias.data(), dfactors.data());
    }
    Scratch<Scalar> own(arena, rows_.own);
    if (gathered) {
        work_.links->reduce_scatter(sim::Group::tp, dfactors.data(), own.data(), rows_.own,
                                    Sent::exact);
    } else {
        if (tp_.parts > 1) {
            work_.links->all_reduce(sim::Group::tp, dfactors.data(), rows_.own, Sent::exact);
        }
        std::copy_n(dfactors.data(), rows_.own, own.data());
    }
    std::copy_n(dy_all, shape.rows * hidden_, scaled.data());
    {
        const Reading<Scalar> factors =
            gathered_rows(*work_.links, arena, s.shared_factor, rows_.own);
        run.scale_rows(shape.rows, shape.width, factors, dactivated);
        run.scale_rows(shape.rows, hidden_, factors, scaled.data());
        run.sigmoid_backward(rows_.own, s.shared_factor.read(), own.data(), own.data());
    }
    s.shared_factor.release();
    map_backward_added(shared_gate_map(), ffn_input(s), std::move(own), dinput, deferred, 2);
}

template <class Scalar>
void Block<Scalar>::shared_backward(BlockState<Scalar>& s, const Scalar* dy, Scalar* dinput,
                                    DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = shared_shape();
    Arena& arena = *work_.arena;
    Kernels<Scalar>& run = *work_.kernels;
    Scratch<Scalar> given = gathered_gradient(dy);
    const Scalar* all = given.held() ? given.data() : dy;
    Scratch<Scalar> dactivated(arena, shape.rows * shape.width);
    run.product(ProductForm::nn, {shape.rows, shape.width, hidden_}, all, weights(*p_.shared_down),
                dactivated.data(), false);
    if (p_.shared_gate) {
        Scratch<Scalar> scaled;
        shared_gate_backward(s, all, dactivated.data(), scaled, dinput, deferred);
        given = std::move(scaled);
    }
    finish_rows(shared_down_map(), s.shared_activated, std::move(given), dy, deferred);
    settle(s.shared_activated, deferred);
    Scratch<Scalar> dup(arena, shape.rows * shape.width * (shape.gated ? 2 : 1));
    run.activation_backward(shape, s.shared_up.read(), dactivated.data(), dup.data());
    s.shared_up.release();
    dactivated.release();
    map_backward_added(shared_up_map(), ffn_input(s), std::move(dup), dinput, deferred);
}

#define SHARDPLAN_INSTANTIATE(S)                                                               \
    template void Block<S>::shared_inner(BlockState<S>&, Scratch<S>*) const;                   \
    template void Block<S>::shared_backward(BlockState<S>&, const S*, S*, DeferredWeights<S>*) \
        const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
