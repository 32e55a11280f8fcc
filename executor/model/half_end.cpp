#include "executor/model/block.hpp"
#include "simulator/units/hash_mix.hpp"

/// Where a half of a block is added to the residual stream: a norm, values dropped.
namespace shardplan::exec {

template <class Scalar>
void Block<Scalar>::end_half(Half half, BlockState<Scalar>& s, Scalar* y, const Scalar* residual,
                             Scalar* output) const {
    const bool attention = half == Half::attention;
    EndState<Scalar>& end = attention ? s.attention_end : s.ffn_end;
    Kernels<Scalar>& run = *work_.kernels;
    const Index count = rows_.own * hidden_;
    if (has_end_norm(half)) {
        std::copy_n(y, count, end.input.write(*work_.arena, work_.options->storage, count));
        end.input.seal();
        const NormShape shape = norm_shape();
        Scalar* stats =
            end.stats.write(*work_.arena, Storage::scalar, shape.statistics() * rows_.own);
        const Number scale = attention ? p_.attention_end_scale : p_.ffn_end_scale;
        const Number shift = attention ? p_.attention_end_shift : p_.ffn_end_shift;
        run.norm_forward(shape, end.input.read(),
                         scale ? weights(*scale) : Reading<Scalar>(nullptr),
                         shift ? weights(*shift) : Reading<Scalar>(nullptr), y, stats);
    }
    if (work_.options->hidden_dropout > 0.0 && s.drawn.drops) {
        const std::vector<Index> places =
            rows_.own_places(work_.options->sequence, s.drawn.first_sample);
        end.mask = Scratch<std::uint8_t>(*work_.arena, count, sim::TensorKind::activations);
        const std::uint64_t draw = sim::hash_mix(s.drawn.draw, attention ? 0 : 1);
        run.drop({rows_.own, hidden_, {work_.options->hidden_dropout, draw}, places.data()}, y,
                 end.mask.data());
    }
    run.add_rows(rows_.own, hidden_, residual, nullptr, output);
    run.add(count, y, output);
}

template <class Scalar>
Reading<Scalar> Block<Scalar>::end_backward(Half half, BlockState<Scalar>& s,
                                            const Scalar* gradient) const {
    const bool attention = half == Half::attention;
    EndState<Scalar>& end = attention ? s.attention_end : s.ffn_end;
    if (!end.mask.held() && !has_end_norm(half)) return Reading<Scalar>(gradient);
    const Index count = rows_.own * hidden_;
    Scratch<Scalar> dy(*work_.arena, count);
    if (end.mask.held()) {
        work_.kernels->drop_backward(count, work_.options->hidden_dropout, end.mask.data(),
                                     gradient, dy.data());
        end.mask.release();
    } else {
        std::copy_n(gradient, count, dy.data());
    }
    if (!has_end_norm(half)) return Reading<Scalar>(std::move(dy));
    Scratch<Scalar> dx(*work_.arena, count);
    std::fill_n(dx.data(), count, Scalar(0));
    norm_backward(attention ? p_.attention_end_scale : p_.ffn_end_scale,
                  attention ? p_.attention_end_shift : p_.ffn_end_shift, end.input, end.stats,
                  dy.data(), dx.data());
    end.input.release();
    end.stats.release();
    return Reading<Scalar>(std::move(dx));
}

#define SHARDPLAN_INSTANTIATE(S)                                                    \
    template void Block<S>::end_half(Half, BlockState<S>&, S*, const S*, S*) const; \
    template Reading<S> Block<S>::end_backward(Half, BlockState<S>&, const S*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
