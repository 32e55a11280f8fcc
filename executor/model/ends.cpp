#include <algorithm>
#include <utility>

#include "executor/model/cross_entropy.hpp"
#include "executor/model/model.hpp"
#include "simulator/units/hash_mix.hpp"

/// The ends of the model: tables before the first block, norm, head and loss behind the last. With
/// tensor parallelism each rank has a part of the vocabulary.
namespace shardplan::exec {

template <class Scalar>
EmbedShape Model<Scalar>::table_part(Index table) const {
    const Parameter& p = parameter(table);
    const RowRange& range = p.ranges.front();
    return {p.columns, static_cast<Token>(range.first_row), range.rows};
}

template <class Scalar>
std::span<const Token> Model<Scalar>::own_positions() const {
    return std::span<const Token>(positions_)
        .subspan(static_cast<std::size_t>(rows_.first), static_cast<std::size_t>(rows_.own));
}

template <class Scalar>
void Model<Scalar>::embed(std::span<const Token> tokens, Pass<Scalar>& pass) const {
    const auto& table = parameters_.table();
    const auto chunk = std::find_if(share_.chunks.begin(), share_.chunks.end(),
                                    [](const ChunkShare& c) { return c.embeds; });
    Tensor<Scalar>& embedded = begin(chunk - share_.chunks.begin(), pass);
    Scalar* out = embedded.write(arena_, options_.storage, boundary());
    const std::vector<Token> own = rows_.pick(tokens, options_.sequence);
    const EmbedShape part = table_part(*table.token_table);
    const Reading<Scalar> words = read(table.token_table);
    if (share_.sp) {
        Scratch<Scalar> all(arena_, rows_.all * part.width);
        kernels_->embed(part, own, words, all.data(), false);
        links_.reduce_scatter(sim::Group::tp, all.data(), out, boundary());
    } else {
        kernels_->embed(part, own, words, out, false);
        if (share_.tp.parts > 1) links_.all_reduce(sim::Group::tp, out, boundary());
    }
    if (table.position_table) {
        kernels_->embed(table_part(*table.position_table), own_positions(),
                        read(table.position_table), out, true);
    }
    norm_embedded(pass, out);
    drop_embedded(pass, out);
    embedded.seal();
}

template <class Scalar>
void Model<Scalar>::norm_embedded(Pass<Scalar>& pass, Scalar* values) const {
    if (!spec_.embedding.norm) return;
    const sim::Part& trunk = *sim::trunk_of(spec_);
    const auto& table = parameters_.table();
    const NormShape shape{trunk.norm_kind, rows_.own, trunk.hidden, options_.norm_epsilon};
    std::copy_n(values, boundary(), pass.embedded.write(arena_, options_.storage, boundary()));
    pass.embedded.seal();
    kernels_->norm_forward(
        shape, pass.embedded.read(), read(table.embedding_scale), read(table.embedding_shift),
        values, pass.embedded_stats.write(arena_, Storage::scalar, shape.statistics() * rows_.own));
    // nobody brings it back
    if (pass.drawn.drops) return;
    pass.embedded.release();
    pass.embedded_stats.release();
}

template <class Scalar>
void Model<Scalar>::drop_embedded(Pass<Scalar>& pass, Scalar* values) const {
    if (options_.hidden_dropout == 0.0 || !pass.drawn.drops) return;
    const Index hidden = sim::trunk_of(spec_)->hidden;
    const std::vector<Index> places = rows_.own_places(options_.sequence, pass.drawn.first_sample);
    // blocks are counted from 0
    const Dropout dropout{options_.hidden_dropout,
                          sim::hash_mix(pass.drawn.draw, ~std::uint64_t{0})};
    pass.embedded_mask =
        Scratch<std::uint8_t>(arena_, rows_.own * hidden, sim::TensorKind::activations);
    kernels_->drop({rows_.own, hidden, dropout, places.data()}, values, pass.embedded_mask.data());
}

template <class Scalar>
void Model<Scalar>::embed_backward(std::span<const Token> tokens, Pass<Scalar>& pass,
                                   const Scalar* gradient) const {
    Scratch<Scalar> kept;
    if (pass.embedded_mask.held()) {
        kept = Scratch<Scalar>(arena_, boundary());
        kernels_->drop_backward(boundary(), options_.hidden_dropout, pass.embedded_mask.data(),
                                gradient, kept.data());
        pass.embedded_mask.release();
        gradient = kept.data();
    }
    Scratch<Scalar> into_norm;
    if (pass.embedded.held()) {
        const sim::Part& trunk = *sim::trunk_of(spec_);
        const auto& table = parameters_.table();
        into_norm = Scratch<Scalar>(arena_, boundary());
        std::fill_n(into_norm.data(), boundary(), Scalar(0));
        kernels_->norm_backward(
            {trunk.norm_kind, rows_.own, trunk.hidden, options_.norm_epsilon}, gradient,
            pass.embedded.read(), read(table.embedding_scale), pass.embedded_stats.read(),
            into_norm.data(),
            table.embedding_scale ? parameters_.gradient(*table.embedding_scale) : nullptr,
            table.embedding_shift ? parameters_.gradient(*table.embedding_shift) : nullptr);
        pass.embedded.release();
        pass.embedded_stats.release();
        kept.release();
        gradient = into_norm.data();
    }
    tables_backward(tokens, gradient);
}

template <class Scalar>
void Model<Scalar>::tables_backward(std::span<const Token> tokens, const Scalar* gradient) const {
    if (links_.failed()) return;
    const auto& table = parameters_.table();
    if (table.position_table) {
        kernels_->embed_backward(table_part(*table.position_table), own_positions(), gradient,
                                 parameters_.gradient(*table.position_table));
    }
    const EmbedShape part = table_part(*table.token_table);
    Scratch<Scalar> all;
    if (share_.sp) {
        all = Scratch<Scalar>(arena_, rows_.all * part.width);
        links_.all_gather(sim::Group::tp, gradient, boundary(), all.data());
    }
    kernels_->embed_backward(part, rows_.pick(tokens, options_.sequence),
                             share_.sp ? all.data() : gradient,
                             parameters_.gradient(*table.token_table));
}

template <class Scalar>
double Model<Scalar>::loss_of(std::span<const Token> targets, const Tensor<Scalar>& x,
                              double factor, Scalar* gradient) const {
    const Index head = *parameters_.table().head;
    const EmbedShape part = table_part(head);
    const CrossEntropy<Scalar> entropy{kernels_.get(), &arena_,    &links_,    rows_.all,
                                       part.width,     part.first, part.count, options_.loss_chunk};
    const std::vector<Token> own = rows_.pick(targets, options_.sequence);
    const Reading<Scalar> in = gathered_rows(links_, arena_, x, boundary());
    const bool reduces = gradient != nullptr && share_.tp.parts > 1;
    Scratch<Scalar> all;
    if (reduces && share_.sp) all = Scratch<Scalar>(arena_, rows_.all * part.width);
    Scalar* dx = all.held() ? all.data() : gradient;
    const Reading<Scalar> values = read(head);
    const Reading<Scalar> bias = read(parameters_.table().head_bias);
    typename CrossEntropy<Scalar>::Head of{values, bias};
    if (gradient != nullptr) {
        of.gradient = parameters_.gradient(head);
        if (bias != nullptr)
            of.bias_gradient = parameters_.gradient(*parameters_.table().head_bias);
    }
    double loss = entropy.run(in, of, own, factor, dx);
    if (reduces && share_.sp) {
        links_.reduce_scatter(sim::Group::tp, dx, gradient, boundary());
    } else if (reduces) {
        links_.all_reduce(sim::Group::tp, dx, boundary());
    }
    if (share_.cp.parts > 1) links_.all_reduce(sim::Group::cp, &loss, 1, Sent::exact);
    return loss;
}

template <class Scalar>
double Model<Scalar>::head(std::span<const Token> targets, Pass<Scalar>& pass, double factor,
                           Scalar* gradient) const {
    if (links_.failed()) return 0.0;
    const sim::Part& trunk = *sim::trunk_of(spec_);
    const auto& table = parameters_.table();
    if (!trunk.final_norm) return loss_of(targets, pass.output, factor, gradient);
    const NormShape norm{trunk.norm_kind, rows_.own, trunk.hidden, options_.norm_epsilon};
    Tensor<Scalar> normed;
    Scratch<Scalar> stats(arena_, norm.statistics() * rows_.own);
    const Reading<Scalar> x = pass.output.read();
    const Reading<Scalar> scale = read(table.final_scale);
    kernels_->norm_forward(norm, x, scale, read(table.final_shift),
                           normed.write(arena_, options_.storage, boundary()), stats.data());
    normed.seal();
    if (gradient == nullptr) return loss_of(targets, normed, factor, nullptr);
    Scratch<Scalar> dnormed(arena_, boundary());
    const double loss = loss_of(targets, normed, factor, dnormed.data());
    std::fill_n(gradient, boundary(), Scalar(0));
    kernels_->norm_backward(norm, dnormed.data(), x, scale, stats.data(), gradient,
                            table.final_scale ? parameters_.gradient(*table.final_scale) : nullptr,
                            table.final_shift ? parameters_.gradient(*table.final_shift) : nullptr);
    return loss;
}

#define SHARDPLAN_INSTANTIATE(S)                                                                   \
    template EmbedShape Model<S>::table_part(Index) const;                                         \
    template std::span<const Token> Model<S>::own_positions() const;                               \
    template void Model<S>::embed(std::span<const Token>, Pass<S>&) const;                         \
    template void Model<S>::embed_backward(std::span<const Token>, Pass<S>&, const S*) const;      \
    template double Model<S>::loss_of(std::span<const Token>, const Tensor<S>&, double, S*) const; \
    template double Model<S>::head(std::span<const Token>, Pass<S>&, double, S*) const;
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
