#include <algorithm>
#include <utility>

#include "executor/model/block.hpp"

/// Queries, keys and values of a block: by one map, with norms of heads, or from compressed
/// vectors. Sources: QK-norm: Dehghani et al. 2023 (arXiv 2302.05442); compressed keys and values:
/// DeepSeek-V2 (arXiv 2405.04434), section 2.1.
namespace shardplan::exec {

namespace {

/// Columns `first` to `first` + width - 1 of rows `stride` elements apart.
struct Columns {
    Index rows = 0;
    Index stride = 0;
    Index first = 0;
    Index width = 0;
};

template <class Scalar>
void take(const Columns& c, const Scalar* from, Scalar* to) {
    for (Index r = 0; r < c.rows; ++r) {
        std::copy_n(from + r * c.stride + c.first, c.width, to + r * c.width);
    }
}
template <class Scalar>
void put(const Columns& c, const Scalar* from, Scalar* to) {
    for (Index r = 0; r < c.rows; ++r) {
        std::copy_n(from + r * c.width, c.width, to + r * c.stride + c.first);
    }
}

/// What a norm of queries or keys sees: every head of a row by itself, or all of them together.
NormShape shape_over_heads(bool per_head, Index rows, Index heads, Index dim, double epsilon) {
    const Index each = per_head ? heads : 1;
    return {sim::NormKind::rmsnorm, rows * each, heads / each * dim, epsilon};
}

} // namespace

template <class Scalar>
void Block<Scalar>::project(BlockState<Scalar>& s, const Scalar* gathered) const {
    const bool exchanged = attention_.exchanges_heads();
    Scalar* qkv = s.qkv.write(*work_.arena, work_.options->storage, attention_.core_count());
    Scratch<Scalar> rows;
    if (exchanged) rows = Scratch<Scalar>(*work_.arena, rows_.all * qkv_width_);
    Scalar* projected = exchanged ? rows.data() : qkv;
    if (is_latent()) {
        project_latents(s, projected);
    } else {
        project_plainly(s, gathered, projected);
    }
    if (exchanged) attention_.to_heads(attention_.qkv_sections(), projected, qkv);
    s.qkv.seal();
}

template <class Scalar>
void Block<Scalar>::project_plainly(BlockState<Scalar>& s, const Scalar* gathered,
                                    Scalar* qkv) const {
    if (gathered != nullptr) {
        linear(*p_.qkv, p_.qkv_bias, rows_.all, gathered, nullptr, qkv);
    } else {
        map_forward(qkv_map(), attention_input(s), qkv);
    }
    if (p_.q_norm) {
        norm_heads(q_head_norm(s), qkv);
        norm_heads(k_head_norm(s), qkv);
    }
    if (rotates()) work_.kernels->rotate(rotary_shape(), false, qkv);
}

template <class Scalar>
void Block<Scalar>::turn_back(BlockState<Scalar>& s, Scalar* dqkv) const {
    if (rotates()) work_.kernels->rotate(rotary_shape(), true, dqkv);
    if (!p_.q_norm) return;
    norm_heads_backward(q_head_norm(s), dqkv);
    norm_heads_backward(k_head_norm(s), dqkv);
}

template <class Scalar>
void Block<Scalar>::project_backward(BlockState<Scalar>& s, Scratch<Scalar> dqkv, Scalar* dinput,
                                     DeferredWeights<Scalar>* deferred) const {
    if (is_latent()) {
        latents_backward(s, std::move(dqkv), dinput, deferred);
        return;
    }
    turn_back(s, dqkv.data());
    map_backward(qkv_map(), attention_input(s), std::move(dqkv), dinput, deferred);
}

// ---- Norms of heads ----------------------------------------------------------------------------

template <class Scalar>
struct Block<Scalar>::HeadNorm {
    Index first = 0; ///< column
    Index heads = 0;
    PartOf part;       ///< of all heads
    Index repeats = 1; ///< tensor-parallel ranks that have the same ones
    Index scale = 0;   ///< parameter
    Tensor<Scalar>* raw = nullptr;
    Tensor<Scalar>* stats = nullptr;
};

template <class Scalar>
typename Block<Scalar>::HeadNorm Block<Scalar>::q_head_norm(BlockState<Scalar>& s) const {
    return {0, heads_, tp_, 1, *p_.q_norm, &s.q_raw, &s.q_stats};
}
template <class Scalar>
typename Block<Scalar>::HeadNorm Block<Scalar>::k_head_norm(BlockState<Scalar>& s) const {
    const PartOf part = key_part(tp_, kind_.attention.kv_heads);
    return {q_width_, kv_heads_, part, tp_.parts / part.parts, *p_.k_norm, &s.k_raw, &s.k_stats};
}

template <class Scalar>
void Block<Scalar>::norm_heads(const HeadNorm& n, Scalar* qkv) const {
    const Index dim = kind_.attention.qk_head_dim;
    const bool per_head = kind_.attention.qk_norm == sim::QkNorm::per_head;
    const Columns columns{rows_.all, qkv_width_, n.first, n.heads * dim};
    const Index count = rows_.all * columns.width;
    Arena& arena = *work_.arena;
    Kernels<Scalar>& run = *work_.kernels;
    take(columns, qkv, n.raw->write(arena, work_.options->storage, count));
    n.raw->seal();
    Scratch<Scalar> normed(arena, count);
    const Reading<Scalar> x = n.raw->read();
    const Reading<Scalar> scale = weights(n.scale);
    const NormShape shape =
        shape_over_heads(per_head, rows_.all, n.heads, dim, work_.options->norm_epsilon);
    Scalar* stats = n.stats->write(arena, Storage::scalar, shape.rows);
    if (per_head || tp_.parts == 1) {
        run.norm_forward(shape, x, scale, nullptr, normed.data(), stats);
    } else {
        Scratch<Scalar> squares(arena, shape.rows);
        run.row_products(shape.rows, shape.width, x, x, squares.data());
        work_.links->all_reduce(sim::Group::tp, squares.data(), shape.rows, Sent::exact);
        run.scale(shape.rows, Scalar(1) / static_cast<Scalar>(n.repeats), squares.data());
        run.split_norm_forward(shape, n.part.parts * shape.width, squares.data(), x,
                               scale + n.part.part * shape.width, normed.data(), stats);
    }
    put(columns, normed.data(), qkv);
}

template <class Scalar>
void Block<Scalar>::norm_heads_backward(const HeadNorm& n, Scalar* dqkv) const {
    const Index dim = kind_.attention.qk_head_dim;
    const bool per_head = kind_.attention.qk_norm == sim::QkNorm::per_head;
    const Columns columns{rows_.all, qkv_width_, n.first, n.heads * dim};
    const Index count = rows_.all * columns.width;
    Arena& arena = *work_.arena;
    Kernels<Scalar>& run = *work_.kernels;
    Scratch<Scalar> dy(arena, count);
    Scratch<Scalar> dx(arena, count);
    take(columns, dqkv, dy.data());
    std::fill_n(dx.data(), count, Scalar(0));
    {
        const Reading<Scalar> x = n.raw->read();
        const Reading<Scalar> stats = n.stats->read();
        const Reading<Scalar> scale = weights(n.scale);
        Scalar* dscale = work_.parameters->gradient(n.scale);
        const NormShape shape =
            shape_over_heads(per_head, rows_.all, n.heads, dim, work_.options->norm_epsilon);
        if (per_head || tp_.parts == 1) {
            run.norm_backward(shape, dy.data(), x, scale, stats, dx.data(), dscale, nullptr);
        } else {
            const Index first = n.part.part * shape.width;
            Scratch<Scalar> sums(arena, shape.rows);
            run.split_norm_sums(shape, dy.data(), x, scale + first, stats, sums.data());
            work_.links->all_reduce(sim::Group::tp, sums.data(), shape.rows, Sent::exact);
            // of repeated heads each rank has a part of the gradient, and gives a part of the sum:
            // what it takes off has to be a part as well
            run.scale(shape.rows, Scalar(1) / static_cast<Scalar>(n.repeats), sums.data());
            run.split_norm_backward(shape, n.part.parts * shape.width, sums.data(), dy.data(), x,
                                    scale + first, stats, dx.data(), dscale + first);
        }
    }
    n.raw->release();
    n.stats->release();
    put(columns, dx.data(), dqkv);
}

// ---- From compressed vectors -------------------------------------------------------------------

/// `low`: what the map gives; its first columns, as many as the scale has, normed.
template <class Scalar>
void Block<Scalar>::compress(const Map& map, Number scale, const Tensor<Scalar>& x,
                             Tensor<Scalar>& low, Tensor<Scalar>& stats,
                             Tensor<Scalar>& normed) const {
    Arena& arena = *work_.arena;
    const Storage storage = work_.options->storage;
    const Index width = work_.parameters->table()[map.weight].rows;
    const Index rank = work_.parameters->table()[*scale].count();
    map_forward(map, x, low.write(arena, storage, rows_.own * width));
    low.seal();
    Scratch<Scalar> in(arena, rows_.own * rank);
    take({rows_.own, width, 0, rank}, static_cast<const Scalar*>(low.read()), in.data());
    const NormShape shape{sim::NormKind::rmsnorm, rows_.own, rank, work_.options->norm_epsilon};
    work_.kernels->norm_forward(shape, in.data(), weights(*scale), nullptr,
                                normed.write(arena, storage, rows_.own * rank),
                                stats.write(arena, Storage::scalar, rows_.own));
    normed.seal();
}

/// Sets the normed columns of `dlow`. Releases the state.
template <class Scalar>
void Block<Scalar>::compress_backward(Number scale, Tensor<Scalar>& low, Tensor<Scalar>& stats,
                                      const Scalar* dnormed, Scalar* dlow) const {
    Arena& arena = *work_.arena;
    const Index rank = work_.parameters->table()[*scale].count();
    const Index width = low.count() / rows_.own;
    const Columns columns{rows_.own, width, 0, rank};
    Scratch<Scalar> x(arena, rows_.own * rank);
    take(columns, static_cast<const Scalar*>(low.read()), x.data());
    low.release();
    Scratch<Scalar> dx(arena, rows_.own * rank);
    std::fill_n(dx.data(), rows_.own * rank, Scalar(0));
    const NormShape shape{sim::NormKind::rmsnorm, rows_.own, rank, work_.options->norm_epsilon};
    work_.kernels->norm_backward(shape, dnormed, x.data(), weights(*scale), stats.read(), dx.data(),
                                 work_.parameters->gradient(*scale), nullptr);
    stats.release();
    put(columns, dx.data(), dlow);
}

template <class Scalar>
Scratch<Scalar> Block<Scalar>::key_positions(const BlockState<Scalar>& s) const {
    const sim::Attention& a = kind_.attention;
    const Index own = rows_.own * a.rope_dim;
    Scratch<Scalar> all(*work_.arena, rows_.all * a.rope_dim);
    const Columns columns{rows_.own, a.kv_rank + a.rope_dim, a.kv_rank, a.rope_dim};
    const Reading<Scalar> low = s.kv_low.read();
    if (!work_.links->share().sp) {
        take(columns, static_cast<const Scalar*>(low), all.data());
        return all;
    }
    Scratch<Scalar> mine(*work_.arena, own);
    take(columns, static_cast<const Scalar*>(low), mine.data());
    work_.links->all_gather(sim::Group::tp, mine.data(), own, all.data());
    return all;
}

/// Sums what the tensor-parallel ranks have found for their heads; `own`: of the rank's rows.
template <class Scalar>
void Block<Scalar>::key_positions_backward(Scratch<Scalar>& all, Scalar* own) const {
    const Index count = rows_.own * kind_.attention.rope_dim;
    if (work_.links->share().sp) {
        work_.links->reduce_scatter(sim::Group::tp, all.data(), own, count);
        return;
    }
    if (tp_.parts > 1) work_.links->all_reduce(sim::Group::tp, all.data(), count);
    std::copy_n(all.data(), count, own);
}

/// Of queries and keys, whose last columns are turned. Keys have the same ones in all heads, which
/// are turned with each.
template <class Scalar>
void Block<Scalar>::rotate_latents(bool inverse, Scalar* qkv) const {
    if (!rotates()) return;
    const sim::Attention& a = kind_.attention;
    work_.kernels->rotate(rotary_shape(), inverse, qkv + a.qk_head_dim - a.rope_dim);
}

template <class Scalar>
void Block<Scalar>::project_latents(BlockState<Scalar>& s, Scalar* qkv) const {
    const sim::Attention& a = kind_.attention;
    const Index plain = a.qk_head_dim - a.rope_dim;
    const Index each = plain + a.v_head_dim;
    Arena& arena = *work_.arena;
    const Tensor<Scalar>& x = attention_input(s);
    Scratch<Scalar> queries(arena, rows_.all * q_width_);
    if (p_.q_down) {
        compress(q_down_map(), p_.q_down_norm, x, s.q_low, s.q_low_stats, s.q_low_normed);
        map_forward(q_up_map(), s.q_low_normed, queries.data());
    } else {
        map_forward(q_up_map(), x, queries.data());
    }
    put({rows_.all, qkv_width_, 0, q_width_}, queries.data(), qkv);
    queries.release();
    compress(kv_down_map(), p_.kv_down_norm, x, s.kv_low, s.kv_low_stats, s.kv_low_normed);
    const Scratch<Scalar> turned = key_positions(s);
    Scratch<Scalar> both(arena, rows_.all * heads_ * each);
    map_forward(kv_up_map(), s.kv_low_normed, both.data());
    for (Index row = 0; row < rows_.all; ++row) {
        Scalar* key = qkv + row * qkv_width_ + q_width_;
        Scalar* value = key + k_width();
        const Scalar* from = both.data() + row * heads_ * each;
        for (Index head = 0; head < heads_; ++head) {
            std::copy_n(from, plain, key);
            std::copy_n(turned.data() + row * a.rope_dim, a.rope_dim, key + plain);
            std::copy_n(from + plain, a.v_head_dim, value);
            from += each;
            key += a.qk_head_dim;
            value += a.v_head_dim;
        }
    }
    rotate_latents(false, qkv);
}

/// From the gradient of keys and values to that of what both maps of them have given: `dlow`.
template <class Scalar>
void Block<Scalar>::latent_keys_backward(BlockState<Scalar>& s, const Scalar* dqkv, Scalar* dlow,
                                         DeferredWeights<Scalar>* deferred) const {
    const sim::Attention& a = kind_.attention;
    const Index plain = a.qk_head_dim - a.rope_dim;
    const Index each = plain + a.v_head_dim;
    const Index low = a.kv_rank + a.rope_dim;
    Arena& arena = *work_.arena;
    Scratch<Scalar> both(arena, rows_.all * heads_ * each);
    Scratch<Scalar> turned(arena, rows_.all * a.rope_dim);
    std::fill_n(turned.data(), turned.size(), Scalar(0));
    for (Index row = 0; row < rows_.all; ++row) {
        const Scalar* key = dqkv + row * qkv_width_ + q_width_;
        const Scalar* value = key + k_width();
        Scalar* to = both.data() + row * heads_ * each;
        Scalar* sum = turned.data() + row * a.rope_dim;
        for (Index head = 0; head < heads_; ++head) {
            std::copy_n(key, plain, to);
            std::copy_n(value, a.v_head_dim, to + plain);
            for (Index i = 0; i < a.rope_dim; ++i) {
                sum[i] += key[plain + i];
            }
            to += each;
            key += a.qk_head_dim;
            value += a.v_head_dim;
        }
    }
    {
        Scratch<Scalar> own(arena, rows_.own * a.rope_dim);
        key_positions_backward(turned, own.data());
        put({rows_.own, low, a.kv_rank, a.rope_dim}, own.data(), dlow);
    }
    turned.release();
    Scratch<Scalar> dnormed(arena, rows_.own * a.kv_rank);
    map_backward(kv_up_map(), s.kv_low_normed, std::move(both), dnormed.data(), deferred);
    compress_backward(p_.kv_down_norm, s.kv_low, s.kv_low_stats, dnormed.data(), dlow);
}

template <class Scalar>
void Block<Scalar>::latents_backward(BlockState<Scalar>& s, Scratch<Scalar> dqkv, Scalar* dinput,
                                     DeferredWeights<Scalar>* deferred) const {
    const sim::Attention& a = kind_.attention;
    Arena& arena = *work_.arena;
    rotate_latents(true, dqkv.data());
    Scratch<Scalar> dlow(arena, rows_.own * (a.kv_rank + a.rope_dim));
    latent_keys_backward(s, dqkv.data(), dlow.data(), deferred);
    // the input is that of the queries' first map too, which comes last
    Tensor<Scalar>& x = attention_input(s);
    map_backward(kv_down_map(), x, std::move(dlow), dinput, deferred, p_.q_down ? 2 : 1);
    Scratch<Scalar> dq(arena, rows_.all * q_width_);
    take({rows_.all, qkv_width_, 0, q_width_}, static_cast<const Scalar*>(dqkv.data()), dq.data());
    dqkv.release();
    if (!p_.q_down) {
        map_backward_added(q_up_map(), x, std::move(dq), dinput, deferred);
        return;
    }
    Scratch<Scalar> dq_low(arena, rows_.own * a.q_rank);
    {
        Scratch<Scalar> dnormed(arena, rows_.own * a.q_rank);
        map_backward(q_up_map(), s.q_low_normed, std::move(dq), dnormed.data(), deferred);
        compress_backward(p_.q_down_norm, s.q_low, s.q_low_stats, dnormed.data(), dq_low.data());
    }
    map_backward_added(q_down_map(), x, std::move(dq_low), dinput, deferred);
}

#define SHARDPLAN_INSTANTIATE(S)                                                                  \
    template void Block<S>::project(BlockState<S>&, const S*) const;                              \
    template void Block<S>::turn_back(BlockState<S>&, S*) const;                                  \
    template void Block<S>::project_backward(BlockState<S>&, Scratch<S>, S*, DeferredWeights<S>*) \
        const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
