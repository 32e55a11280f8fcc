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
void Block<Scalar>::linear_backward(Index weight, Number bias, const Scalar* x, const Scalar* dy,
                                    Scalar* dx) const {
    const Parameter& w = work_.parameters->table()[weight];
    Kernels<Scalar>& run = *work_.kernels;
    run.product(ProductForm::nn, {tokens_, w.columns, w.rows}, dy, weights(weight), dx, false);
    run.product(ProductForm::tn, {w.rows, w.columns, tokens_}, dy, x,
                work_.parameters->gradient(weight), true);
    if (bias) run.sum_rows(tokens_, w.rows, dy, work_.parameters->gradient(*bias));
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
void Block<Scalar>::ffn_backward(BlockState<Scalar>& s, Scalar* gradient) const {
    const ActivationShape shape = activation_shape();
    Scratch<Scalar> dup(*work_.arena, tokens_ * shape.width * (shape.gated ? 2 : 1));
    {
        Scratch<Scalar> dactivated(*work_.arena, tokens_ * shape.width);
        linear_backward(p_.down, p_.down_bias, s.activated.read(), gradient, dactivated.data());
        s.activated.release();
        work_.kernels->activation_backward(shape, s.up.read(), dactivated.data(), dup.data());
        s.up.release();
    }
    Scratch<Scalar> dnormed(*work_.arena, tokens_ * hidden_);
    linear_backward(p_.up, p_.up_bias, s.ffn_normed.read(), dup.data(), dnormed.data());
    norm_backward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, dnormed.data(), gradient);
}

template <class Scalar>
void Block<Scalar>::attention_backward(BlockState<Scalar>& s, Scalar* gradient) const {
    const sim::Attention& a = kind_.attention;
    Scratch<Scalar> dqkv(*work_.arena, tokens_ * qkv_width_);
    {
        Scratch<Scalar> dattended(*work_.arena, tokens_ * q_width_);
        linear_backward(p_.attention_out, p_.attention_out_bias, s.attended.read(), gradient,
                        dattended.data());
        const Reading<Scalar> q = s.qkv.read();
        Scalar* dq = dqkv.data();
        work_.kernels->attention_backward(
            attention_shape(), q, q + q_width_, q + q_width_ + kv_width_, s.attended.read(),
            s.lse.read(), dattended.data(), dq, dq + q_width_, dq + q_width_ + kv_width_);
    }
    s.attended.release();
    s.qkv.release();
    if (a.rope_dim > 0) {
        work_.kernels->rotate(rotary_shape(a.heads + a.kv_heads), true, dqkv.data());
    }
    Scratch<Scalar> dnormed(*work_.arena, tokens_ * hidden_);
    linear_backward(p_.qkv, p_.qkv_bias, s.attention_normed.read(), dqkv.data(), dnormed.data());
    norm_backward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                  dnormed.data(), gradient);
}

template <class Scalar>
void Block<Scalar>::backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor) const {
    if (recompute_ == Recompute::full) {
        attention_half(s);
        ffn_inner(s);
    } else if (recompute_ == Recompute::selective) {
        attend(s);
    }
    if (routes()) {
        experts_backward(s, gradient, balance_factor);
    } else {
        ffn_backward(s, gradient);
    }
    attention_backward(s, gradient);
    release_inner(s);
    s.input.release();
}

template class Block<float>;
template class Block<double>;

} // namespace shardplan::exec
