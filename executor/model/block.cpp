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
      kv_heads_(key_heads(kind.attention) / key_part(tp_, key_heads(kind.attention)).parts),
      q_width_(heads_ * kind.attention.qk_head_dim),
      qkv_width_(q_width_ + kv_heads_ * (kind.attention.qk_head_dim + kind.attention.v_head_dim)),
      out_width_(heads_ * kind.attention.v_head_dim),
      ffn_width_(is_routed(kind) ? kind.ffn.expert_width / work.links->share().etp.parts
                                 : kind.ffn.width / tp_.parts),
      attention_(work.kernels, work.arena, work.links, work.rows,
                 {work.options->micro_batch, work.options->sequence, heads_, kv_heads_,
                  kind.attention.qk_head_dim, kind.attention.v_head_dim, kind.attention.window,
                  work.options->positions == sim::Positions::alibi ? kind.attention.heads : 0,
                  work.options->attention_dropout}),
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
    Scalar* out = core.write(arena, storage, rows_.all * out_width_);
    Scalar* lse = s.lse.write(arena, Storage::scalar, rows_.all * heads_);
    attention_.forward(s.drawn, qkv, p_.sinks ? weights(*p_.sinks) : Reading<Scalar>(nullptr), out,
                       lse);
    core.seal();
    if (!exchanged) return;
    Scalar* attended = s.attended.write(arena, storage, rows_.all * out_width_);
    attention_.to_tokens(attention_.out_sections(), core.read(), attended);
    s.attended.seal();
}

/// From the block's input to `middle`.
template <class Scalar>
void Block<Scalar>::attention_half(BlockState<Scalar>& s) const {
    if (kind_.norms.pre_attention) {
        norm_forward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats,
                     s.attention_normed);
    }
    project(s);
    attend(s);
    const Index count = rows_.own * hidden_;
    Scalar* middle = s.middle.write(*work_.arena, work_.options->storage, count);
    if (ends_plainly(Half::attention)) {
        sum_forward(attention_out_map(), s.attended.read(), s.input.read(), middle);
    } else {
        Scratch<Scalar> y(*work_.arena, count);
        sum_forward(attention_out_map(), s.attended.read(), nullptr, y.data());
        end_half(Half::attention, s, y.data(), s.input.read(), middle);
    }
    s.middle.seal();
}

/// From `middle` to the input of the last map.
template <class Scalar>
void Block<Scalar>::ffn_inner(BlockState<Scalar>& s, Scratch<Scalar>* beside) const {
    if (kind_.norms.pre_ffn) {
        norm_forward(p_.ffn_scale, p_.ffn_shift, s.middle, s.ffn_stats, s.ffn_normed);
    }
    if (p_.shared_up) shared_inner(s, beside);
    if (routes()) {
        experts_inner(s);
        return;
    }
    const ActivationShape shape = activation_shape(rows_.all);
    const Index up_width = shape.width * (shape.gated ? 2 : 1);
    Scalar* up = s.up.write(*work_.arena, work_.options->storage, rows_.all * up_width);
    map_forward(up_map(), ffn_input(s), up);
    s.up.seal();
    Scalar* activated =
        s.activated.write(*work_.arena, work_.options->storage, rows_.all * shape.width);
    work_.kernels->activation_forward(shape, s.up.read(), activated);
    s.activated.seal();
}

template <class Scalar>
void Block<Scalar>::ffn_output(BlockState<Scalar>& s, const Scratch<Scalar>& beside,
                               Scalar* output) const {
    const Index count = rows_.own * hidden_;
    const bool plain = ends_plainly(Half::ffn);
    Scratch<Scalar> given;
    if (!plain) given = Scratch<Scalar>(*work_.arena, count);
    Scalar* y = plain ? output : given.data();
    if (routes()) {
        experts_output(s, plain ? &s.middle : nullptr, y);
    } else {
        sum_forward(down_map(), s.activated.read(),
                    plain ? s.middle.read() : Reading<Scalar>(nullptr), y);
    }
    if (beside.held()) work_.kernels->add(count, beside.data(), y);
    if (!plain) end_half(Half::ffn, s, y, s.middle.read(), output);
}

template <class Scalar>
void Block<Scalar>::forward(BlockState<Scalar>& s, Tensor<Scalar>& output, bool keep) const {
    if (kind_.norms.parallel) {
        parallel_forward(s, output, keep);
        return;
    }
    Scratch<Scalar> beside;
    if (!work_.links->failed()) {
        attention_half(s);
        if (keep && recompute_ == Recompute::selective) release_attended(s);
        ffn_inner(s, &beside);
    }
    Scalar* out = output.write(*work_.arena, work_.options->storage, rows_.own * hidden_);
    if (work_.links->failed()) {
        std::fill_n(out, rows_.own * hidden_, Scalar(0)); // nobody will use it
    } else {
        ffn_output(s, beside, out);
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
    s.each_inner([](Tensor<Scalar>& t) { t.release(); });
    s.attention_end.mask.release();
    s.ffn_end.mask.release();
}

// ---- Backward ----------------------------------------------------------------------------------

template <class Scalar>
void Block<Scalar>::input_backward(Half half, BlockState<Scalar>& s, const Scalar* dinput,
                                   Scalar* gradient) const {
    const bool attention = half == Half::attention;
    if (attention ? !kind_.norms.pre_attention : !kind_.norms.pre_ffn) {
        work_.kernels->add(rows_.own * hidden_, dinput, gradient);
    } else if (attention) {
        norm_backward(p_.attention_scale, p_.attention_shift, s.input, s.attention_stats, dinput,
                      gradient);
    } else {
        norm_backward(p_.ffn_scale, p_.ffn_shift, kind_.norms.parallel ? s.input : s.middle,
                      s.ffn_stats, dinput, gradient);
    }
    if (attention) return; // all that is left goes after it
    s.ffn_stats.release();
    s.middle.release();
}

template <class Scalar>
void Block<Scalar>::ffn_backward(BlockState<Scalar>& s, Scalar* gradient,
                                 DeferredWeights<Scalar>* deferred) const {
    const ActivationShape shape = activation_shape(rows_.all);
    Scratch<Scalar> dactivated;
    {
        const Reading<Scalar> dy = end_backward(Half::ffn, s, gradient);
        dactivated = Scratch<Scalar>(*work_.arena, rows_.all * shape.width);
        sum_backward(down_map(), s.activated, dy, dactivated.data(), deferred);
    }
    settle(s.activated, deferred);
    Scratch<Scalar> dup(*work_.arena, rows_.all * shape.width * (shape.gated ? 2 : 1));
    work_.kernels->activation_backward(shape, s.up.read(), dactivated.data(), dup.data());
    s.up.release();
    dactivated.release();
    Scratch<Scalar> dnormed(*work_.arena, rows_.own * hidden_);
    map_backward(up_map(), ffn_input(s), std::move(dup), dnormed.data(), deferred);
    input_backward(Half::ffn, s, dnormed.data(), gradient);
}

/// From the gradient of what attention gave to that of queries, keys and values after rotation.
template <class Scalar>
void Block<Scalar>::core_backward(BlockState<Scalar>& s, Scratch<Scalar>& dattended,
                                  Scalar* dqkv) const {
    const auto core = [&](const Tensor<Scalar>& given, const Scalar* dout, Scalar* to) {
        const Reading<Scalar> out = given.read();
        const Reading<Scalar> lse = s.lse.read();
        if (p_.sinks) {
            attention_.sinks_backward(weights(*p_.sinks), out, lse, dout,
                                      work_.parameters->gradient(*p_.sinks));
        }
        attention_.backward(s.drawn, s.qkv.read(), out, lse, dout, to);
    };
    if (!attention_.exchanges_heads()) {
        core(s.attended, dattended.data(), dqkv);
        return;
    }
    Scratch<Scalar> dout(*work_.arena, rows_.all * out_width_);
    attention_.to_heads(attention_.out_sections(), dattended.data(), dout.data());
    dattended.release();
    Scratch<Scalar> dwhole(*work_.arena, attention_.core_count());
    core(s.attended_heads, dout.data(), dwhole.data());
    dout.release();
    attention_.to_tokens(attention_.qkv_sections(), dwhole.data(), dqkv);
}

/// From behind the last map of attention to queries, keys and values: `dattended` is the gradient
/// of what that map takes in, whose own gradient has been found or left last.
template <class Scalar>
Scratch<Scalar> Block<Scalar>::attended_backward(BlockState<Scalar>& s, Scratch<Scalar> dattended,
                                                 DeferredWeights<Scalar>* deferred) const {
    // the kernel's backward pass needs what it gave, unless that was exchanged before the map
    if (attention_.exchanges_heads()) settle(s.attended, deferred);
    Scratch<Scalar> dqkv(*work_.arena, rows_.all * qkv_width_);
    core_backward(s, dattended, dqkv.data());
    if (!attention_.exchanges_heads()) settle(s.attended, deferred);
    dattended.release();
    s.qkv.release();
    s.lse.release();
    s.attended_heads.release();
    return dqkv;
}

template <class Scalar>
void Block<Scalar>::attention_backward(BlockState<Scalar>& s, Scalar* gradient,
                                       DeferredWeights<Scalar>* deferred) const {
    if (recompute_ == Recompute::selective) attend(s);
    Scratch<Scalar> dattended;
    {
        const Reading<Scalar> dy = end_backward(Half::attention, s, gradient);
        dattended = Scratch<Scalar>(*work_.arena, rows_.all * out_width_);
        sum_backward(attention_out_map(), s.attended, dy, dattended.data(), deferred);
    }
    Scratch<Scalar> dqkv = attended_backward(s, std::move(dattended), deferred);
    Scratch<Scalar> dnormed(*work_.arena, rows_.own * hidden_);
    project_backward(s, std::move(dqkv), dnormed.data(), deferred);
    input_backward(Half::attention, s, dnormed.data(), gradient);
}

/// All that was not kept but attention's output, which waits for its half.
template <class Scalar>
void Block<Scalar>::recompute(BlockState<Scalar>& s) const {
    if (recompute_ != Recompute::full) return;
    if (kind_.norms.parallel) {
        parallel_inner(s, nullptr);
        return;
    }
    attention_half(s);
    // a norm behind the network needs its output again
    Scratch<Scalar> beside;
    const bool again = !ends_plainly(Half::ffn);
    ffn_inner(s, again ? &beside : nullptr);
    if (!again) return;
    Scratch<Scalar> output(*work_.arena, rows_.own * hidden_);
    ffn_output(s, beside, output.data());
}

template <class Scalar>
void Block<Scalar>::backward(BlockState<Scalar>& s, Scalar* gradient, double balance_factor,
                             DeferredWeights<Scalar>* deferred) const {
    if (!work_.links->failed()) recompute(s);
    if (!work_.links->failed() && kind_.norms.parallel) {
        parallel_backward(s, gradient, deferred);
    } else if (!work_.links->failed()) {
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
