#include "executor/model/block.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

namespace {

bool is_routed(const sim::BlockKind& kind) { return kind.ffn.kind == sim::FfnKind::moe; }

} // namespace

template <class Scalar>
Block<Scalar>::Block(Workplace<Scalar> work, const sim::BlockKind& kind, Index hidden,
                     const BlockParameters& parameters, Recompute recompute)
    : work_(work),
      kind_(kind),
      p_(parameters),
      recompute_(recompute),
      hidden_(hidden),
      rows_(*work.rows),
      tp_(work.links->share().tp),
      heads_(kind.attention.heads / tp_.parts),
      kv_heads_(kind.attention.kv_heads / key_part(tp_, kind.attention.kv_heads).parts),
      q_width_(heads_ * kind.attention.qk_head_dim),
      qkv_width_(q_width_ + 2 * kv_heads_ * kind.attention.qk_head_dim),
      ffn_width_(is_routed(kind) ? kind.ffn.expert_width / work.links->share().etp.parts
                                 : kind.ffn.width / tp_.parts),
      attention_(work.kernels, work.arena, work.links, work.rows,
                 {work.options->micro_batch, work.options->sequence, heads_, kv_heads_,
                  kind.attention.qk_head_dim}),
      sums_experts_(is_routed(kind) && work.links->experts_split_as_rest()),
      shares_rows_(is_routed(kind) && !work.links->share().sp && tp_.parts > 1 && !sums_experts_),
      exchange_(work.kernels, work.arena, work.links, kind.ffn.experts, !sums_experts_) {
    sent_step_ = shares_rows_ ? (rows_.own + tp_.parts - 1) / tp_.parts : rows_.own;
    sent_first_ = shares_rows_ ? std::min(tp_.part * sent_step_, rows_.own) : 0;
    sent_rows_ = std::min(sent_step_, rows_.own - sent_first_);
}

// ---- Shapes ------------------------------------------------------------------------------------

template <class Scalar>
NormShape Block<Scalar>::norm_shape() const {
    return {kind_.norms.kind, rows_.own, hidden_, work_.options->norm_epsilon};
}

/// Of queries and keys, which lie side by side.
template <class Scalar>
RotaryShape Block<Scalar>::rotary_shape() const {
    const sim::Attention& a = kind_.attention;
    return {rows_.all,  rows_.length(), heads_ + kv_heads_,         a.qk_head_dim,
            a.rope_dim, qkv_width_,     work_.options->rotary_base, rows_.positions.data()};
}

template <class Scalar>
ActivationShape Block<Scalar>::activation_shape(Index rows) const {
    return {kind_.ffn.activation, kind_.ffn.gated, rows, ffn_width_};
}

template <class Scalar>
RouterShape Block<Scalar>::router_shape(Index rows) const {
    return {rows, kind_.ffn.experts, kind_.ffn.top_k};
}

template <class Scalar>
Reading<Scalar> Block<Scalar>::weights(Index i) const {
    return work_.parameters->read(*work_.arena, i);
}

// ---- Forward -----------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::attend(BlockState<Scalar>& s) const {
    Arena& arena = *work_.arena;
    const Storage storage = work_.options->storage;
    const bool exchanged = attention_.exchanges_heads();
    const Reading<Scalar> qkv = s.qkv.read();
    Tensor<Scalar>& core = exchanged ? s.attended_heads : s.attended;
    Scalar* out = core.write(arena, storage, rows_.all * q_width_);
    Scalar* lse = s.lse.write(arena, Storage::scalar, rows_.all * heads_);
    attention_.forward(qkv, out, lse);
    core.seal();
    if (!exchanged) return;
    Scalar* attended = s.attended.write(arena, storage, rows_.all * q_width_);
    attention_.to_tokens(attention_.out_sections(), core.read(), attended);
    s.attended.seal();
}

/// Queries, keys and values, in the form that attention takes.
template <class Scalar>
void Block<Scalar>::project(BlockState<Scalar>& s) const {
    const Index count = rows_.all * qkv_width_;
    const bool exchanged = attention_.exchanges_heads();
    Scalar* qkv = s.qkv.write(*work_.arena, work_.options->storage, count);
    Scratch<Scalar> rows;
    if (exchanged) rows = Scratch<Scalar>(*work_.arena, count);
    Scalar* projected = exchanged ? rows.data() : qkv;
    map_forward(qkv_map(), s.attention_normed, projected);
    if (kind_.attention.rope_dim > 0) work_.kernels->rotate(rotary_shape(), false, projected);
    if (exchanged) attention_.to_heads(attention_.qkv_sections(), projected, qkv);
    s.qkv.seal();
}

/// From the block's input to `middle`.
template <class Scalar>
void Block<Scalar>::attention_half(BlockState<Scalar>& s) const {
    norm_forward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                 s.attention_normed);
    project(s);
    attend(s);
    Scalar* middle = s.middle.write(*work_.arena, work_.options->storage, rows_.own * hidden_);
    sum_forward(attention_out_map(), s.attended.read(), s.input.read(), middle);
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
    const ActivationShape shape = activation_shape(rows_.all);
    const Index up_width = shape.width * (shape.gated ? 2 : 1);
    Scalar* up = s.up.write(*work_.arena, work_.options->storage, rows_.all * up_width);
    map_forward(up_map(), s.ffn_normed, up);
    s.up.seal();
    Scalar* activated =
        s.activated.write(*work_.arena, work_.options->storage, rows_.all * shape.width);
    work_.kernels->activation_forward(shape, s.up.read(), activated);
    s.activated.seal();
}

template <class Scalar>
void Block<Scalar>::forward(BlockState<Scalar>& s, Tensor<Scalar>& output, bool keep) const {
    if (!work_.links->failed()) {
        attention_half(s);
        if (keep && recompute_ == Recompute::selective) release_attended(s);
        ffn_inner(s);
    }
    Scalar* out = output.write(*work_.arena, work_.options->storage, rows_.own * hidden_);
    if (work_.links->failed()) {
        std::fill_n(out, rows_.own * hidden_, Scalar(0)); // nobody will use it
    } else if (routes()) {
        experts_output(s, out);
    } else {
        sum_forward(down_map(), s.activated.read(), s.middle.read(), out);
    }
    output.seal();
    if (!keep || recompute_ == Recompute::full) release_inner(s);
}

template <class Scalar>
void Block<Scalar>::release_attended(BlockState<Scalar>& s) const {
    s.attended.release();
    s.attended_heads.release();
    s.lse.release();
}

template <class Scalar>
void Block<Scalar>::release_inner(BlockState<Scalar>& s) const {
    release_attended(s);
    for (Tensor<Scalar>* t :
         {&s.attention_stats, &s.attention_normed, &s.qkv, &s.middle, &s.ffn_stats, &s.ffn_normed,
          &s.up, &s.activated, &s.probabilities, &s.weights, &s.sorted}) {
        t->release();
    }
}

// ---- Backward ----------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::ffn_backward(BlockState<Scalar>& s, Scalar* gradient,
                                 DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = activation_shape(rows_.all);
    Scratch<Scalar> dactivated(*work_.arena, rows_.all * shape.width);
    sum_backward(down_map(), s.activated, gradient, dactivated.data(), deferred);
    settle(s.activated, deferred);
    Scratch<Scalar> dup(*work_.arena, rows_.all * shape.width * (shape.gated ? 2 : 1));
    work_.kernels->activation_backward(shape, s.up.read(), dactivated.data(), dup.data());
    s.up.release();
    dactivated.release();
    Scratch<Scalar> dnormed(*work_.arena, rows_.own * hidden_);
    map_backward(up_map(), s.ffn_normed, std::move(dup), dnormed.data(), deferred);
    norm_backward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, dnormed.data(), gradient);
    s.middle.release();
    s.ffn_stats.release();
}

/// From the gradient of what attention gave to that of queries, keys and values before rotation.
template <class Scalar>
void Block<Scalar>::core_backward(BlockState<Scalar>& s, Scratch<Scalar>& dattended,
                                  Scalar* dqkv) const {
    if (!attention_.exchanges_heads()) {
        attention_.backward(s.qkv.read(), s.attended.read(), s.lse.read(), dattended.data(), dqkv);
        return;
    }
    Scratch<Scalar> dout(*work_.arena, rows_.all * q_width_);
    attention_.to_heads(attention_.out_sections(), dattended.data(), dout.data());
    dattended.release();
    Scratch<Scalar> dwhole(*work_.arena, rows_.all * qkv_width_);
    attention_.backward(s.qkv.read(), s.attended_heads.read(), s.lse.read(), dout.data(),
                        dwhole.data());
    dout.release();
    attention_.to_tokens(attention_.qkv_sections(), dwhole.data(), dqkv);
}

template <class Scalar>
void Block<Scalar>::attention_backward(BlockState<Scalar>& s, Scalar* gradient,
                                       DeferredWeights<Scalar>* deferred) const {
    if (recompute_ == Recompute::selective) attend(s);
    Scratch<Scalar> dattended(*work_.arena, rows_.all * q_width_);
    sum_backward(attention_out_map(), s.attended, gradient, dattended.data(), deferred);
    // the kernel's backward pass needs what it gave, unless that was exchanged before the map
    if (attention_.exchanges_heads()) settle(s.attended, deferred);
    Scratch<Scalar> dqkv(*work_.arena, rows_.all * qkv_width_);
    core_backward(s, dattended, dqkv.data());
    if (!attention_.exchanges_heads()) settle(s.attended, deferred);
    dattended.release();
    s.qkv.release();
    s.lse.release();
    s.attended_heads.release();
    if (kind_.attention.rope_dim > 0) work_.kernels->rotate(rotary_shape(), true, dqkv.data());
    Scratch<Scalar> dnormed(*work_.arena, rows_.own * hidden_);
    map_backward(qkv_map(), s.attention_normed, std::move(dqkv), dnormed.data(), deferred);
    norm_backward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                  dnormed.data(), gradient);
}

template <class Scalar>
void Block<Scalar>::backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor,
                             DeferredWeights<Scalar>* deferred) const {
    if (!work_.links->failed() && recompute_ == Recompute::full) {
        attention_half(s);
        ffn_inner(s);
    }
    if (!work_.links->failed()) {
        if (routes()) {
            experts_backward(s, gradient, balance_factor, deferred);
        } else {
            ffn_backward(s, gradient, deferred);
        }
        attention_backward(s, gradient, deferred);
    }
    release_inner(s);
    s.input.release();
}

template class Block<float>;
template class Block<double>;

} // namespace shardplan::exec
