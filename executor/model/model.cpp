#include "executor/model/model.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "executor/model/check.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;

Recompute recompute_of(const ModelOptions& options, std::size_t block) {
    if (options.recompute.empty()) return Recompute::none;
    return options.recompute[options.recompute.size() == 1 ? 0 : block];
}

sim::Status check_options(const sim::ModelSpec& spec, const ModelOptions& o) {
    if (o.sequence < 1 || o.micro_batch < 1 || o.loss_chunk < 1) {
        return Error{ErrorCode::bad_input, "options",
                     "sequence, micro_batch and loss_chunk must be at least 1", "raise them to 1"};
    }
    const sim::Embedding& e = spec.embedding;
    if (e.positions == sim::Positions::learned && o.sequence > e.position_rows) {
        return Error{ErrorCode::bad_input, "options/sequence",
                     "the sequence is longer than the table of positions",
                     "use at most " + std::to_string(e.position_rows) + " tokens"};
    }
    const Index blocks = sim::block_count(*sim::trunk_of(spec));
    const std::size_t plans = o.recompute.size();
    if (plans > 1 && static_cast<Index>(plans) != blocks) {
        return Error{ErrorCode::bad_input, "options/recompute",
                     std::to_string(plans) + " entries for " + std::to_string(blocks) + " blocks",
                     "give one for all blocks, or one for each"};
    }
    return sim::Done{};
}

bool is_alone(const RankShare& share) {
    return share.tp.parts * share.cp.parts * share.ep.parts * share.etp.parts == 1;
}

/// What the model says itself.
ModelOptions of_model(const sim::ModelSpec& spec, ModelOptions options) {
    options.positions = spec.embedding.positions;
    options.attention_dropout = spec.attention_dropout;
    options.hidden_dropout = spec.hidden_dropout;
    return options;
}

} // namespace

template <class Scalar>
sim::Result<std::unique_ptr<Model<Scalar>>> Model<Scalar>::make(
    const sim::ModelSpec& spec, const ModelOptions& options,
    std::shared_ptr<Kernels<Scalar>> kernels) {
    return make(spec, whole_model(spec), nullptr, options, std::move(kernels));
}

template <class Scalar>
sim::Result<std::unique_ptr<Model<Scalar>>> Model<Scalar>::make(
    const sim::ModelSpec& spec, RankShare share, const LayoutGroups* groups,
    const ModelOptions& options, std::shared_ptr<Kernels<Scalar>> kernels) {
    if (auto status = check_model(spec); !status) return std::move(status).error();
    if (auto status = check_options(spec, options); !status) return std::move(status).error();
    if (groups == nullptr && !is_alone(share)) {
        return Error{ErrorCode::bad_input, "groups", "the rank shares its layers with others",
                     "give the groups of the layout"};
    }
    auto rows = row_share(share, options.sequence, options.micro_batch);
    if (!rows) return std::move(rows).error();
    if (options.storage == Storage::bf16 && !std::is_same_v<Scalar, float>) {
        return Error{ErrorCode::unsupported, "options/storage",
                     "16-bit storage goes with computing in 32 bits", "use scalar storage"};
    }
    return std::unique_ptr<Model>(
        new Model(spec, std::move(share), std::move(*rows), groups, options, std::move(kernels)));
}

template <class Scalar>
Model<Scalar>::Model(const sim::ModelSpec& spec, RankShare share, RowShare rows,
                     const LayoutGroups* groups, ModelOptions options,
                     std::shared_ptr<Kernels<Scalar>> kernels)
    : spec_(spec),
      share_(std::move(share)),
      rows_(std::move(rows)),
      options_(of_model(spec, std::move(options))),
      links_(share_, groups, options_.storage),
      kernels_(std::move(kernels)),
      parameters_(parameter_table(spec, share_), options_.storage) {
    for (Index row = 0; row < rows_.all; ++row) {
        const auto place = static_cast<std::size_t>(row % rows_.length());
        positions_.push_back(static_cast<Token>(rows_.positions[place]));
    }
    const sim::Part& trunk = *sim::trunk_of(spec_);
    const Workplace<Scalar> work{kernels_.get(), &arena_, &parameters_, &links_, &rows_, &options_};
    for (const ChunkShare& chunk : share_.chunks) {
        first_block_.push_back(static_cast<Index>(blocks_.size()));
        for (Index i = chunk.first; i < chunk.first + chunk.count; ++i) {
            const auto kind = static_cast<std::size_t>(sim::kind_of_block(trunk, i));
            blocks_.emplace_back(work, spec_.block_kinds[kind], trunk.hidden,
                                 parameters_.table().blocks[blocks_.size()],
                                 recompute_of(options_, static_cast<std::size_t>(i)));
        }
    }
}

template <class Scalar>
Index Model<Scalar>::boundary() const {
    return rows_.own * sim::trunk_of(spec_)->hidden;
}

template <class Scalar>
const Block<Scalar>& Model<Scalar>::block_of(Index block, const Pass<Scalar>& pass) const {
    return blocks_[static_cast<std::size_t>(first_block_[static_cast<std::size_t>(pass.chunk)] +
                                            block)];
}

template <class Scalar>
sim::Status Model<Scalar>::check(std::span<const Token> tokens, const char* where) const {
    if (static_cast<Index>(tokens.size()) != options_.tokens()) {
        return Error{ErrorCode::bad_input, where,
                     std::to_string(tokens.size()) + " tokens where a micro-batch has " +
                         std::to_string(options_.tokens()),
                     "give micro_batch x sequence tokens"};
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || tokens[i] >= spec_.embedding.vocab) {
            return Error{ErrorCode::bad_input, std::string(where) + "/" + std::to_string(i),
                         "token " + std::to_string(tokens[i]) + " is not in the vocabulary",
                         "use 0 to " + std::to_string(spec_.embedding.vocab - 1)};
        }
    }
    return sim::Done{};
}

template <class Scalar>
Tensor<Scalar>& Model<Scalar>::input_after(Index block, Pass<Scalar>& pass) const {
    const auto next = static_cast<std::size_t>(block + 1);
    return next < pass.blocks.size() ? pass.blocks[next].input : pass.output;
}

template <class Scalar>
Tensor<Scalar>& Model<Scalar>::begin(Index chunk, Pass<Scalar>& pass) const {
    pass.chunk = chunk;
    pass.blocks.resize(
        static_cast<std::size_t>(share_.chunks[static_cast<std::size_t>(chunk)].count));
    return input_after(-1, pass);
}

template <class Scalar>
Drawn Model<Scalar>::drawn_for(Index block, const Pass<Scalar>& pass) const {
    Drawn drawn = pass.drawn;
    const Index first = share_.chunks[static_cast<std::size_t>(pass.chunk)].first;
    drawn.draw = sim::hash_mix(drawn.draw, static_cast<std::uint64_t>(first + block));
    return drawn;
}

template <class Scalar>
void Model<Scalar>::move_off(BlockState<Scalar>& state) const {
    const auto move = [&](Tensor<Scalar>& tensor) {
        if (links_.failed()) return;
        if (auto status = tensor.move_off(off_device_); !status) links_.fail(status.error());
    };
    move(state.input);
    state.each_inner(move);
}

template <class Scalar>
void Model<Scalar>::bring_back(Index block, Pass<Scalar>& pass) const {
    BlockState<Scalar>& state = pass.blocks[static_cast<std::size_t>(block)];
    if (block > 0) {
        // the next one to be waited for
        BlockState<Scalar>& next = pass.blocks[static_cast<std::size_t>(block - 1)];
        next.input.prefetch();
        next.each_inner([](const Tensor<Scalar>& tensor) { tensor.prefetch(); });
    }
    state.input.bring_back();
    state.each_inner([](Tensor<Scalar>& tensor) { tensor.bring_back(); });
}

template <class Scalar>
void Model<Scalar>::forward(Index block, Pass<Scalar>& pass, bool keep) const {
    BlockState<Scalar>& state = pass.blocks[static_cast<std::size_t>(block)];
    state.drawn = drawn_for(block, pass);
    block_of(block, pass).forward(state, input_after(block, pass), keep);
    if (!keep) state.input.release();
    if (keep && off_device_.moves()) move_off(state);
}

template <class Scalar>
void Model<Scalar>::backward(Index block, Pass<Scalar>& pass, Scalar* gradient,
                             double balance_factor, bool defer) const {
    if (off_device_.moves()) bring_back(block, pass);
    block_of(block, pass)
        .backward(pass.blocks[static_cast<std::size_t>(block)], gradient, balance_factor,
                  defer ? &pass.deferred : nullptr);
}

template <class Scalar>
void Model<Scalar>::weight_gradients(Pass<Scalar>& pass) const {
    // every block does the products of any other
    if (!pass.blocks.empty()) block_of(0, pass).weight_gradients(pass.deferred);
}

template <class Scalar>
sim::Result<Loss> Model<Scalar>::train(std::span<const Token> tokens,
                                       std::span<const Token> targets, LossFactors factors) {
    if (auto status = check(tokens, "tokens"); !status) return std::move(status).error();
    if (auto status = check(targets, "targets"); !status) return std::move(status).error();
    const auto blocks = static_cast<Index>(blocks_.size());
    pass_.drawn = {};
    embed(tokens, pass_);
    for (Index i = 0; i < blocks; ++i) {
        forward(i, pass_, true);
    }
    Loss loss;
    for (const BlockState<Scalar>& state : pass_.blocks) {
        loss.balance += state.balance;
    }
    Scratch<Scalar> gradient(arena_, boundary());
    loss.sum = head(targets, pass_, factors.token, gradient.data());
    pass_.output.release();
    for (Index i = blocks - 1; i >= 0; --i) {
        backward(i, pass_, gradient.data(), factors.balance);
    }
    embed_backward(tokens, pass_, gradient.data());
    if (auto status = failure(); !status) return std::move(status).error();
    return loss;
}

template <class Scalar>
sim::Result<Loss> Model<Scalar>::evaluate(std::span<const Token> tokens,
                                          std::span<const Token> targets) {
    if (auto status = check(tokens, "tokens"); !status) return std::move(status).error();
    if (auto status = check(targets, "targets"); !status) return std::move(status).error();
    Loss loss;
    pass_.drawn.drops = false;
    embed(tokens, pass_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        forward(static_cast<Index>(i), pass_, false);
        loss.balance += pass_.blocks[i].balance;
    }
    loss.sum = head(targets, pass_, 0.0, nullptr);
    pass_.output.release();
    if (auto status = failure(); !status) return std::move(status).error();
    return loss;
}

template class Model<float>;
template class Model<double>;

} // namespace shardplan::exec
