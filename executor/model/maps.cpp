#include <algorithm>
#include <utility>

#include "executor/model/block.hpp"

/// Linear maps of a block, whole or split over the tensor-parallel ranks. Sources: Megatron-LM
/// (Shoeybi et al. 2019, arXiv 1909.08053), with sequence parallelism Korthikanti et al. 2022
/// (arXiv 2205.05198), where the gathered input is not kept but gathered again.
namespace shardplan::exec {

template <class Scalar>
void Block<Scalar>::linear(Index weight, Number bias, Index rows, const Scalar* x,
                           const Scalar* residual, Scalar* y) const {
    const Parameter& w = work_.parameters->table()[weight];
    Kernels<Scalar>& run = *work_.kernels;
    // bias and residual are where the product's sums begin, which saves a pass for each
    const bool begun = bias.has_value() || residual != nullptr;
    if (bias) {
        run.add_rows(rows, w.rows, residual, weights(*bias), y);
    } else if (begun) {
        run.add_rows(rows, w.rows, residual, nullptr, y);
    }
    run.product(ProductForm::nt, {rows, w.rows, w.columns}, x, weights(weight), y, begun);
}

template <class Scalar>
void Block<Scalar>::map_forward(const Map& map, const Tensor<Scalar>& x, Scalar* y) const {
    if (map.split == MapSplit::whole) {
        linear(map.weight, map.bias, rows_.own, x.read(), nullptr, y);
        return;
    }
    linear(map.weight, map.bias, rows_.all,
           gathered_rows(*work_.links, *work_.arena, x,
                         rows_.own * work_.parameters->table()[map.weight].columns),
           nullptr, y);
}

template <class Scalar>
void Block<Scalar>::sum_forward(const Map& map, const Scalar* x, const Scalar* residual,
                                Scalar* y) const {
    const Parameter& w = work_.parameters->table()[map.weight];
    if (!work_.links->share().sp) {
        // bias and residual go into the sum of all ranks once
        const bool first = tp_.part == 0;
        linear(map.weight, first ? map.bias : std::nullopt, rows_.all, x,
               first ? residual : nullptr, y);
        if (tp_.parts > 1) work_.links->all_reduce(sim::Group::tp, y, rows_.all * w.rows);
        return;
    }
    Scratch<Scalar> part(*work_.arena, rows_.all * w.rows);
    linear(map.weight, std::nullopt, rows_.all, x, nullptr, part.data());
    const Index count = rows_.own * w.rows;
    work_.links->reduce_scatter(sim::Group::tp, part.data(), y, count);
    if (map.bias) work_.kernels->add_rows(rows_.own, w.rows, y, weights(*map.bias), y);
    if (residual != nullptr) work_.kernels->add(count, residual, y);
}

template <class Scalar>
void Block<Scalar>::map_backward(const Map& map, Tensor<Scalar>& x, Scratch<Scalar> dy, Scalar* dx,
                                 DeferredWeights<Scalar>* deferred, std::size_t x_from) const {
    const Parameter& w = work_.parameters->table()[map.weight];
    const bool split = map.split == MapSplit::outputs && tp_.parts > 1;
    const Index rows = map.split == MapSplit::outputs ? rows_.all : rows_.own;
    const ProductShape shape{rows, w.columns, w.rows};
    if (split && work_.links->share().sp) {
        Scratch<Scalar> part(*work_.arena, rows * w.columns);
        work_.kernels->product(ProductForm::nn, shape, dy.data(), weights(map.weight), part.data(),
                               false);
        work_.links->reduce_scatter(sim::Group::tp, part.data(), dx, rows_.own * w.columns);
    } else {
        work_.kernels->product(ProductForm::nn, shape, dy.data(), weights(map.weight), dx, false);
        if (split) work_.links->all_reduce(sim::Group::tp, dx, rows * w.columns);
    }
    finish_backward(map, {}, x, std::move(dy), deferred);
    settle(x, deferred, x_from);
}

template <class Scalar>
void Block<Scalar>::map_backward_added(const Map& map, Tensor<Scalar>& x, Scratch<Scalar> dy,
                                       Scalar* dx, DeferredWeights<Scalar>* deferred,
                                       std::size_t x_from) const {
    const Index count = rows_.own * work_.parameters->table()[map.weight].columns;
    Scratch<Scalar> own(*work_.arena, count);
    map_backward(map, x, std::move(dy), own.data(), deferred, x_from);
    work_.kernels->add(count, own.data(), dx);
}

template <class Scalar>
Scratch<Scalar> Block<Scalar>::gathered_gradient(const Scalar* gradient) const {
    Scratch<Scalar> all;
    if (!work_.links->share().sp) return all;
    all = Scratch<Scalar>(*work_.arena, rows_.all * hidden_);
    work_.links->all_gather(sim::Group::tp, gradient, rows_.own * hidden_, all.data());
    return all;
}

template <class Scalar>
void Block<Scalar>::sum_backward(const Map& map, const Tensor<Scalar>& x, const Scalar* gradient,
                                 Scalar* dx, DeferredWeights<Scalar>* deferred) const {
    const Index width = work_.parameters->table()[map.weight].columns;
    Scratch<Scalar> dy = gathered_gradient(gradient);
    work_.kernels->product(ProductForm::nn, {rows_.all, width, hidden_},
                           dy.held() ? dy.data() : gradient, weights(map.weight), dx, false);
    finish_rows(map, x, std::move(dy), gradient, deferred);
}

template <class Scalar>
void Block<Scalar>::finish_rows(const Map& map, const Tensor<Scalar>& x, Scratch<Scalar> dy,
                                const Scalar* gradient, DeferredWeights<Scalar>* deferred) const {
    if (dy.held()) {
        finish_backward(map, {}, x, std::move(dy), deferred);
    } else {
        finish_backward(map, {}, x, {gradient, static_cast<std::size_t>(rows_.all * hidden_)},
                        deferred);
    }
}

template <class Scalar>
void Block<Scalar>::finish_backward(const Map& map, const std::vector<Index>& offsets,
                                    const Tensor<Scalar>& x, Scratch<Scalar> dy,
                                    DeferredWeights<Scalar>* deferred) const {
    if (deferred != nullptr) {
        deferred->push_back({map.weight, map.bias, map.split, offsets, {}, 0, std::move(dy)});
        return;
    }
    weight_gradient(map, offsets, x, {dy.data(), static_cast<std::size_t>(dy.size())});
}

template <class Scalar>
void Block<Scalar>::finish_backward(const Map& map, const std::vector<Index>& offsets,
                                    const Tensor<Scalar>& x, std::span<const Scalar> dy,
                                    DeferredWeights<Scalar>* deferred) const {
    if (deferred == nullptr) {
        weight_gradient(map, offsets, x, dy);
        return;
    }
    Scratch<Scalar> kept(*work_.arena, static_cast<Index>(dy.size()));
    std::copy(dy.begin(), dy.end(), kept.data());
    finish_backward(map, offsets, x, std::move(kept), deferred);
}

template <class Scalar>
void Block<Scalar>::settle(Tensor<Scalar>& x, DeferredWeights<Scalar>* deferred,
                           std::size_t x_from) const {
    if (deferred != nullptr) deferred->back().x_from = x_from;
    if (x_from > 0) return;
    if (deferred != nullptr) {
        deferred->back().x = std::move(x);
    } else {
        x.release();
    }
}

template <class Scalar>
void Block<Scalar>::weight_gradient(const Map& map, const std::vector<Index>& offsets,
                                    const Tensor<Scalar>& x, std::span<const Scalar> dy) const {
    const Parameter& w = work_.parameters->table()[map.weight];
    Kernels<Scalar>& run = *work_.kernels;
    if (!offsets.empty()) {
        const Index experts = static_cast<Index>(offsets.size()) - 1;
        const Index rows = w.rows / experts;
        run.grouped_product(ProductForm::tn, offsets, {rows, w.columns, 0}, dy.data(), x.read(),
                            work_.parameters->gradient(map.weight), true);
        if (!map.bias) return;
        Scalar* bias = work_.parameters->gradient(*map.bias);
        for (Index e = 0; e < experts; ++e) {
            const Index first = offsets[static_cast<std::size_t>(e)];
            const Index count = offsets[static_cast<std::size_t>(e + 1)] - first;
            run.sum_rows(count, rows, dy.data() + first * rows, bias + e * rows);
        }
        return;
    }
    if (map.split != MapSplit::outputs) {
        weight_gradient_of(map, x.read(), dy);
        return;
    }
    weight_gradient_of(map, gathered_rows(*work_.links, *work_.arena, x, rows_.own * w.columns),
                       dy);
}

template <class Scalar>
void Block<Scalar>::weight_gradient_of(const Map& map, const Scalar* in,
                                       std::span<const Scalar> dy) const {
    const Parameter& w = work_.parameters->table()[map.weight];
    Kernels<Scalar>& run = *work_.kernels;
    const Index rows = map.split == MapSplit::whole ? rows_.own : rows_.all;
    run.product(ProductForm::tn, {w.rows, w.columns, rows}, dy.data(), in,
                work_.parameters->gradient(map.weight), true);
    if (!map.bias) return;
    // a bias behind the sum of the ranks is added to own rows
    const bool own = map.split == MapSplit::inputs;
    run.sum_rows(own ? rows_.own : rows, w.rows, dy.data() + (own ? rows_.first * w.rows : 0),
                 work_.parameters->gradient(*map.bias));
}

template <class Scalar>
void Block<Scalar>::both_maps_backward(Scratch<Scalar> dqkv, Scratch<Scalar> dup, Tensor<Scalar>& x,
                                       Scalar* dx, DeferredWeights<Scalar>* deferred) const {
    const Index qkv_rows = work_.parameters->table()[*p_.qkv].rows;
    const Index up_rows = work_.parameters->table()[p_.up].rows;
    const bool sp = work_.links->share().sp;
    Scratch<Scalar> part;
    if (sp) part = Scratch<Scalar>(*work_.arena, rows_.all * hidden_);
    Scalar* sum = sp ? part.data() : dx;
    work_.kernels->product(ProductForm::nn, {rows_.all, hidden_, qkv_rows}, dqkv.data(),
                           weights(*p_.qkv), sum, false);
    work_.kernels->product(ProductForm::nn, {rows_.all, hidden_, up_rows}, dup.data(),
                           weights(p_.up), sum, true);
    if (sp) {
        work_.links->reduce_scatter(sim::Group::tp, sum, dx, rows_.own * hidden_);
        part.release();
    } else if (tp_.parts > 1) {
        work_.links->all_reduce(sim::Group::tp, dx, rows_.all * hidden_);
    }
    if (deferred != nullptr) {
        finish_backward(qkv_map(), {}, x, std::move(dqkv), deferred);
        settle(x, deferred, 1);
        finish_backward(up_map(), {}, x, std::move(dup), deferred);
        settle(x, deferred);
        return;
    }
    // gathered once for both
    const Reading<Scalar> in = gathered_rows(*work_.links, *work_.arena, x, rows_.own * hidden_);
    weight_gradient_of(qkv_map(), in, {dqkv.data(), static_cast<std::size_t>(dqkv.size())});
    dqkv.release();
    weight_gradient_of(up_map(), in, {dup.data(), static_cast<std::size_t>(dup.size())});
    x.release();
}

template <class Scalar>
void Block<Scalar>::weight_gradients(DeferredWeights<Scalar>& deferred) const {
    for (std::size_t i = 0; i < deferred.size(); ++i) {
        WeightWork<Scalar>& w = deferred[i];
        weight_gradient({w.weight, w.bias, w.split}, w.offsets, deferred[i + w.x_from].x,
                        {w.dy.data(), static_cast<std::size_t>(w.dy.size())});
        w = {};
    }
    deferred.clear();
}

template <class Scalar>
void Block<Scalar>::norm_forward(Number scale, Number shift, const Tensor<Scalar>& x,
                                 Tensor<Scalar>& stats, Tensor<Scalar>& y) const {
    Scalar* s = stats.write(*work_.arena, Storage::scalar, norm_shape().statistics() * rows_.own);
    Scalar* out = y.write(*work_.arena, work_.options->storage, rows_.own * hidden_);
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

#define SHARDPLAN_INSTANTIATE(S)                                                                   \
    template void Block<S>::linear(Index, Number, Index, const S*, const S*, S*) const;            \
    template void Block<S>::map_forward(const Map&, const Tensor<S>&, S*) const;                   \
    template void Block<S>::sum_forward(const Map&, const S*, const S*, S*) const;                 \
    template void Block<S>::map_backward(const Map&, Tensor<S>&, Scratch<S>, S*,                   \
                                         DeferredWeights<S>*, std::size_t) const;                  \
    template void Block<S>::map_backward_added(const Map&, Tensor<S>&, Scratch<S>, S*,             \
                                               DeferredWeights<S>*, std::size_t) const;            \
    template Scratch<S> Block<S>::gathered_gradient(const S*) const;                               \
    template void Block<S>::sum_backward(const Map&, const Tensor<S>&, const S*, S*,               \
                                         DeferredWeights<S>*) const;                               \
    template void Block<S>::finish_rows(const Map&, const Tensor<S>&, Scratch<S>, const S*,        \
                                        DeferredWeights<S>*) const;                                \
    template void Block<S>::finish_backward(const Map&, const std::vector<Index>&,                 \
                                            const Tensor<S>&, Scratch<S>, DeferredWeights<S>*)     \
        const;                                                                                     \
    template void Block<S>::finish_backward(const Map&, const std::vector<Index>&,                 \
                                            const Tensor<S>&, std::span<const S>,                  \
                                            DeferredWeights<S>*) const;                            \
    template void Block<S>::settle(Tensor<S>&, DeferredWeights<S>*, std::size_t) const;            \
    template void Block<S>::weight_gradient(const Map&, const std::vector<Index>&,                 \
                                            const Tensor<S>&, std::span<const S>) const;           \
    template void Block<S>::weight_gradients(DeferredWeights<S>&) const;                           \
    template void Block<S>::both_maps_backward(Scratch<S>, Scratch<S>, Tensor<S>&, S*,             \
                                               DeferredWeights<S>*) const;                         \
    template void Block<S>::norm_forward(Number, Number, const Tensor<S>&, Tensor<S>&, Tensor<S>&) \
        const;                                                                                     \
    template void Block<S>::norm_backward(Number, Number, const Tensor<S>&, const Tensor<S>&,      \
                                          const S*, S*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
