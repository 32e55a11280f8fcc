#include "executor/model/block.hpp"

#include <algorithm>

namespace shardplan::exec {

template <class Scalar>
Block<Scalar>::Block(Workplace<Scalar> work, const sim::BlockKind& kind, Index hidden,
                     const BlockParameters& parameters, Recompute recompute)
    : work_(work),
      kind_(kind),
      p_(parameters),
      recompute_(recompute),
      hidden_(hidden),
      tokens_(work.options->tokens()),
      q_width_(kind.attention.heads * kind.attention.qk_head_dim),
      kv_width_(kind.attention.kv_heads * kind.attention.qk_head_dim),
      qkv_width_(q_width_ + 2 * kv_width_) {}

// ---- Shapes ------------------------------------------------------------------------------------

template <class Scalar>
NormShape Block<Scalar>::norm_shape() const {
    return {kind_.norms.kind, tokens_, hidden_, work_.options->norm_epsilon};
}

template <class Scalar>
AttentionShape Block<Scalar>::attention_shape() const {
    const sim::Attention& a = kind_.attention;
    return {work_.options->micro_batch,
            work_.options->sequence,
            a.heads,
            a.kv_heads,
            a.qk_head_dim,
            qkv_width_};
}

template <class Scalar>
RotaryShape Block<Scalar>::rotary_shape(Index heads) const {
    const sim::Attention& a = kind_.attention;
    return {tokens_,    work_.options->sequence,   heads, a.qk_head_dim, a.rope_dim,
            qkv_width_, work_.options->rotary_base};
}

template <class Scalar>
ActivationShape Block<Scalar>::activation_shape() const {
    const sim::Ffn& f = kind_.ffn;
    return {f.activation, f.gated, routes() ? tokens_ * f.top_k : tokens_,
            routes() ? f.expert_width : f.width};
}

template <class Scalar>
RouterShape Block<Scalar>::router_shape() const {
    return {tokens_, kind_.ffn.experts, kind_.ffn.top_k, work_.options->balance};
}

template <class Scalar>
Reading<Scalar> Block<Scalar>::weights(Index i) const {
    return work_.parameters->read(*work_.arena, i);
}

// ---- Operators ---------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::linear_forward(Index weight, Number bias, const Scalar* x,
                                   const Scalar* residual, Scalar* y) const {
    const Parameter& w = work_.parameters->table()[weight];
    Kernels<Scalar>& run = *work_.kernels;
    // bias and residual are where the product's sums begin, which saves a pass for each
    const bool begun = bias.has_value() || residual != nullptr;
    if (bias) {
        run.add_rows(tokens_, w.rows, residual, weights(*bias), y);
    } else if (begun) {
        run.add_rows(tokens_, w.rows, residual, nullptr, y);
    }
    run.product(ProductForm::nt, {tokens_, w.rows, w.columns}, x, weights(weight), y, begun);
}

template <class Scalar>
void Block<Scalar>::weight_gradient(Index weight, Number bias, const std::vector<Index>& offsets,
                                    const Scalar* x, const Scalar* dy) const {
    const Parameter& w = work_.parameters->table()[weight];
    Kernels<Scalar>& run = *work_.kernels;
    Scalar* gradient = work_.parameters->gradient(weight);
    if (!offsets.empty()) {
        const Index rows = w.rows / (static_cast<Index>(offsets.size()) - 1);
        run.grouped_product(ProductForm::tn, offsets, {rows, w.columns, 0}, dy, x, gradient, true);
        return;
    }
    run.product(ProductForm::tn, {w.rows, w.columns, tokens_}, dy, x, gradient, true);
    if (bias) run.sum_rows(tokens_, w.rows, dy, work_.parameters->gradient(*bias));
}

template <class Scalar>
void Block<Scalar>::linear_backward(Index weight, Number bias, Tensor<Scalar>& x, const Scalar* dy,
                                    Scalar* dx, DeferredWeights<Scalar>* deferred) const {
    const Parameter& w = work_.parameters->table()[weight];
    work_.kernels->product(ProductForm::nn, {tokens_, w.columns, w.rows}, dy, weights(weight), dx,
                           false);
    finish_linear_backward(weight, bias, {}, x, {dy, static_cast<std::size_t>(tokens_ * w.rows)},
                           deferred);
}

template <class Scalar>
void Block<Scalar>::finish_linear_backward(Index weight, Number bias,
                                           const std::vector<Index>& offsets, Tensor<Scalar>& x,
                                           std::span<const Scalar> dy,
                                           DeferredWeights<Scalar>* deferred) const {
    if (deferred == nullptr) {
        weight_gradient(weight, bias, offsets, x.read(), dy.data());
        x.release();
        return;
    }
    Scratch<Scalar> kept(*work_.arena, static_cast<Index>(dy.size()));
    std::copy(dy.begin(), dy.end(), kept.data());
    deferred->push_back({weight, bias, offsets, std::move(x), std::move(kept)});
}

template <class Scalar>
void Block<Scalar>::weight_gradients(DeferredWeights<Scalar>& deferred) const {
    for (WeightWork<Scalar>& w : deferred) {
        weight_gradient(w.weight, w.bias, w.offsets, w.x.read(), w.dy.data());
    }
    deferred.clear();
}

template <class Scalar>
void Block<Scalar>::norm_forward(Number scale, Number shift, const Tensor<Scalar>& x,
                                 Tensor<Scalar>& stats, Tensor<Scalar>& y) const {
    Scalar* s = stats.write(*work_.arena, Storage::scalar, 2 * tokens_);
    Scalar* out = y.write(*work_.arena, work_.options->storage, tokens_ * hidden_);
    work_.kernels->norm_forward(norm_shape(), x.read(),
                                scale ? weights(*scale) : Reading<Scalar>(nullptr),
                                shift ? weights(*shift) : Reading<Scalar>(nullptr), out, s);
    y.seal();
}

template <class Scalar>
void Block<Scalar>::norm_backward(Number scale, Number shift, const Tensor<Scalar>& x,
                                  const Tensor<Scalar>& stats, const Scalar* dy, Scalar* dx) const {
    Parameters<Scalar>& parameters = *work_.parameters;
    work_.kernels->norm_backward(norm_shape(), dy, x.read(),
                                 scale ? weights(*scale) : Reading<Scalar>(nullptr), stats.read(),
                                 dx, scale ? parameters.gradient(*scale) : nullptr,
                                 shift ? parameters.gradient(*shift) : nullptr);
}

// ---- Forward -----------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::attend(BlockState<Scalar>& s) const {
    const AttentionShape shape = attention_shape();
    const Reading<Scalar> q = s.qkv.read();
    Scalar* out = s.attended.write(*work_.arena, work_.options->storage, tokens_ * q_width_);
    Scalar* lse = s.lse.write(*work_.arena, Storage::scalar, tokens_ * shape.heads);
    work_.kernels->attention_forward(shape, q, q + q_width_, q + q_width_ + kv_width_, out, lse);
    s.attended.seal();
}

/// From the block's input to `middle`.
template <class Scalar>
void Block<Scalar>::attention_half(BlockState<Scalar>& s) const {
    const sim::Attention& a = kind_.attention;
    norm_forward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                 s.attention_normed);
    Scalar* qkv = s.qkv.write(*work_.arena, work_.options->storage, tokens_ * qkv_width_);
    linear_forward(p_.qkv, p_.qkv_bias, s.attention_normed.read(), nullptr, qkv);
    if (a.rope_dim > 0) {
        // queries and keys lie side by side
        work_.kernels->rotate(rotary_shape(a.heads + a.kv_heads), false, qkv);
    }
    s.qkv.seal();
    attend(s);
    Scalar* middle = s.middle.write(*work_.arena, work_.options->storage, tokens_ * hidden_);
    linear_forward(p_.attention_out, p_.attention_out_bias, s.attended.read(), s.input.read(),
                   middle);
    s.middle.seal();
}

/// From `middle` to the input of the last map.
template <class Scalar>
void Block<Scalar>::ffn_inner(BlockState<Scalar>& s) const {
    norm_forward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, s.ffn_normed);
    if (routes()) {
        experts_inner(s);
        return;
    }
    const ActivationShape shape = activation_shape();
    const Index up_width = shape.width * (shape.gated ? 2 : 1);
    Scalar* up = s.up.write(*work_.arena, work_.options->storage, tokens_ * up_width);
    linear_forward(p_.up, p_.up_bias, s.ffn_normed.read(), nullptr, up);
    s.up.seal();
    Scalar* activated =
        s.activated.write(*work_.arena, work_.options->storage, tokens_ * shape.width);
    work_.kernels->activation_forward(shape, s.up.read(), activated);
    s.activated.seal();
}

template <class Scalar>
void Block<Scalar>::forward(BlockState<Scalar>& s, Tensor<Scalar>& output, bool keep) const {
    attention_half(s);
    if (keep && recompute_ == Recompute::selective) {
        s.attended.release();
        s.lse.release();
    }
    ffn_inner(s);
    Scalar* out = output.write(*work_.arena, work_.options->storage, tokens_ * hidden_);
    if (routes()) {
        work_.kernels->add_rows(tokens_, hidden_, s.middle.read(), nullptr, out);
        work_.kernels->combine(router_shape(), hidden_, s.routing(), s.weights.read(),
                               s.expert_out.read(), out);
    } else {
        linear_forward(p_.down, p_.down_bias, s.activated.read(), s.middle.read(), out);
    }
    output.seal();
    if (!keep || recompute_ == Recompute::full) release_inner(s);
}

template <class Scalar>
void Block<Scalar>::release_inner(BlockState<Scalar>& s) const {
    for (Tensor<Scalar>* t : {&s.attention_stats, &s.attention_normed, &s.qkv, &s.attended, &s.lse,
                              &s.middle, &s.ffn_stats, &s.ffn_normed, &s.up, &s.activated,
                              &s.probabilities, &s.weights, &s.sorted, &s.expert_out}) {
        t->release();
    }
}

// ---- Backward ----------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::ffn_backward(BlockState<Scalar>& s, Scalar* gradient,
                                 DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = activation_shape();
    Scratch<Scalar> dup(*work_.arena, tokens_ * shape.width * (shape.gated ? 2 : 1));
    {
        Scratch<Scalar> dactivated(*work_.arena, tokens_ * shape.width);
        linear_backward(p_.down, p_.down_bias, s.activated, gradient, dactivated.data(), deferred);
        work_.kernels->activation_backward(shape, s.up.read(), dactivated.data(), dup.data());
        s.up.release();
    }
    Scratch<Scalar> dnormed(*work_.arena, tokens_ * hidden_);
    linear_backward(p_.up, p_.up_bias, s.ffn_normed, dup.data(), dnormed.data(), deferred);
    norm_backward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, dnormed.data(), gradient);
}

template <class Scalar>
void Block<Scalar>::attention_backward(BlockState<Scalar>& s, Scalar* gradient,
                                       DeferredWeights<Scalar>* deferred) const {
    const sim::Attention& a = kind_.attention;
    Scratch<Scalar> dqkv(*work_.arena, tokens_ * qkv_width_);
    {
        Scratch<Scalar> dattended(*work_.arena, tokens_ * q_width_);
        // the values are needed once more after the map that took them in
        Tensor<Scalar>& out = s.attended;
        const Parameter& w = work_.parameters->table()[p_.attention_out];
        work_.kernels->product(ProductForm::nn, {tokens_, w.columns, w.rows}, gradient,
                               weights(p_.attention_out), dattended.data(), false);
        const Reading<Scalar> q = s.qkv.read();
        Scalar* dq = dqkv.data();
        work_.kernels->attention_backward(
            attention_shape(), q, q + q_width_, q + q_width_ + kv_width_, out.read(), s.lse.read(),
            dattended.data(), dq, dq + q_width_, dq + q_width_ + kv_width_);
        finish_linear_backward(p_.attention_out, p_.attention_out_bias, {}, out,
                               {gradient, static_cast<std::size_t>(tokens_ * w.rows)}, deferred);
    }
    s.qkv.release();
    if (a.rope_dim > 0) {
        work_.kernels->rotate(rotary_shape(a.heads + a.kv_heads), true, dqkv.data());
    }
    Scratch<Scalar> dnormed(*work_.arena, tokens_ * hidden_);
    linear_backward(p_.qkv, p_.qkv_bias, s.attention_normed, dqkv.data(), dnormed.data(), deferred);
    norm_backward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                  dnormed.data(), gradient);
}

template <class Scalar>
void Block<Scalar>::backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor,
                             DeferredWeights<Scalar>* deferred) const {
    if (recompute_ == Recompute::full) {
        attention_half(s);
        ffn_inner(s);
    } else if (recompute_ == Recompute::selective) {
        attend(s);
    }
    if (routes()) {
        experts_backward(s, gradient, balance_factor, deferred);
    } else {
        ffn_backward(s, gradient, deferred);
    }
    attention_backward(s, gradient, deferred);
    release_inner(s);
    s.input.release();
}

template class Block<float>;
template class Block<double>;

} // namespace shardplan::exec
