#include <algorithm>
#include <utility>

#include "executor/model/block.hpp"

/// Blocks whose halves lie side by side: output = input + attention + network, which read the same
/// normed input, or each its own norm of the same. Sources: GPT-J (Wang and Komatsuzaki 2021),
/// Falcon (arXiv 2311.16867), GPT-NeoX (arXiv 2204.06745). As in Megatron Core both halves are
/// added up before the tensor-parallel ranks' sum, which is then one for both.
namespace shardplan::exec {

template <class Scalar>
void Block<Scalar>::parallel_inner(BlockState<Scalar>& s, Scalar* sum) const {
    const Index count = rows_.own * hidden_;
    const bool first = tp_.part == 0 && !work_.links->share().sp;
    const Storage storage = work_.options->storage;
    Arena& arena = *work_.arena;
    if (kind_.norms.pre_attention) {
        norm_forward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                     s.attention_normed);
    }
    Reading<Scalar> both(nullptr);
    if (!kind_.norms.pre_ffn) {
        both = gathered_rows(*work_.links, arena, attention_input(s), count);
    }
    project(s, both);
    attend(s);
    if (sum != nullptr) {
        linear(p_.attention_out, first ? p_.attention_out_bias : std::nullopt, rows_.all,
               s.attended.read(), first ? s.input.read() : Reading<Scalar>(nullptr), sum);
        if (recompute_ == Recompute::selective) release_attended(s);
    }
    const ActivationShape shape = activation_shape(rows_.all);
    Scalar* up = nullptr;
    const Index up_width = shape.width * (shape.gated ? 2 : 1);
    if (kind_.norms.pre_ffn) {
        norm_forward(p_.ffn_scale, p_.ffn_shift, s.input, s.ffn_stats, s.ffn_normed);
        up = s.up.write(arena, storage, rows_.all * up_width);
        map_forward(up_map(), s.ffn_normed, up);
    } else {
        up = s.up.write(arena, storage, rows_.all * up_width);
        linear(p_.up, p_.up_bias, rows_.all, both, nullptr, up);
        both = Reading<Scalar>(nullptr);
    }
    s.up.seal();
    work_.kernels->activation_forward(shape, s.up.read(),
                                      s.activated.write(arena, storage, rows_.all * shape.width));
    s.activated.seal();
    if (sum == nullptr) return;
    work_.kernels->product(ProductForm::nt, {rows_.all, hidden_, shape.width}, s.activated.read(),
                           weights(p_.down), sum, true);
    if (first && p_.down_bias) {
        work_.kernels->add_rows(rows_.all, hidden_, sum, weights(*p_.down_bias), sum);
    }
}

template <class Scalar>
void Block<Scalar>::parallel_forward(BlockState<Scalar>& s, Tensor<Scalar>& output,
                                     bool keep) const {
    const Index count = rows_.own * hidden_;
    const bool sp = work_.links->share().sp;
    Scalar* out = output.write(*work_.arena, work_.options->storage, count);
    Scratch<Scalar> all;
    if (sp) all = Scratch<Scalar>(*work_.arena, rows_.all * hidden_);
    std::fill_n(out, count, Scalar(0)); // should something fail, nobody will use it
    if (!work_.links->failed()) parallel_inner(s, sp ? all.data() : out);
    if (!work_.links->failed() && sp) {
        work_.links->reduce_scatter(sim::Group::tp, all.data(), out, count);
        for (const Number bias : {p_.attention_out_bias, p_.down_bias}) {
            if (bias) work_.kernels->add_rows(rows_.own, hidden_, out, weights(*bias), out);
        }
        work_.kernels->add(count, s.input.read(), out);
    } else if (!work_.links->failed() && tp_.parts > 1) {
        work_.links->all_reduce(sim::Group::tp, out, count);
    }
    output.seal();
    if (!keep || recompute_ == Recompute::full) release_inner(s);
}

template <class Scalar>
void Block<Scalar>::parallel_backward(BlockState<Scalar>& s, Scalar* gradient,
                                      DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = activation_shape(rows_.all);
    Kernels<Scalar>& run = *work_.kernels;
    Arena& arena = *work_.arena;
    Scratch<Scalar> gathered = gathered_gradient(gradient); // once for both halves
    const Scalar* dy = gathered.held() ? gathered.data() : gradient;
    Scratch<Scalar> dactivated(arena, rows_.all * shape.width);
    run.product(ProductForm::nn, {rows_.all, shape.width, hidden_}, dy, weights(p_.down),
                dactivated.data(), false);
    finish_rows(down_map(), s.activated, {}, dy, deferred);
    settle(s.activated, deferred);
    Scratch<Scalar> dup(arena, rows_.all * shape.width * (shape.gated ? 2 : 1));
    run.activation_backward(shape, s.up.read(), dactivated.data(), dup.data());
    s.up.release();
    dactivated.release();
    if (recompute_ == Recompute::selective) attend(s);
    Scratch<Scalar> dattended(arena, rows_.all * out_width_);
    run.product(ProductForm::nn, {rows_.all, out_width_, hidden_}, dy, weights(p_.attention_out),
                dattended.data(), false);
    finish_rows(attention_out_map(), s.attended, std::move(gathered), dy, deferred);
    Scratch<Scalar> dqkv = attended_backward(s, std::move(dattended), deferred);
    Scratch<Scalar> dinput(arena, rows_.own * hidden_);
    if (kind_.norms.pre_ffn) {
        map_backward(up_map(), s.ffn_normed, std::move(dup), dinput.data(), deferred);
        input_backward(Half::ffn, s, dinput.data(), gradient);
        project_backward(s, std::move(dqkv), dinput.data(), deferred);
    } else {
        turn_back(s, dqkv.data());
        both_maps_backward(std::move(dqkv), std::move(dup), attention_input(s), dinput.data(),
                           deferred);
    }
    input_backward(Half::attention, s, dinput.data(), gradient);
}

#define SHARDPLAN_INSTANTIATE(S)                                                      \
    template void Block<S>::parallel_inner(BlockState<S>&, S*) const;                 \
    template void Block<S>::parallel_forward(BlockState<S>&, Tensor<S>&, bool) const; \
    template void Block<S>::parallel_backward(BlockState<S>&, S*, DeferredWeights<S>*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
