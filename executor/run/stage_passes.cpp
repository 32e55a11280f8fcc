#include "executor/run/stage_passes.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

template <class Scalar>
StagePasses<Scalar>::StagePasses(Model<Scalar>& model, Index micro_batches, LossFactors factors,
                                 bool split)
    : model_(&model), micro_batches_(micro_batches), factors_(factors), split_(split) {
    flights_.resize(model.share().chunks.size() * static_cast<std::size_t>(micro_batches));
}

template <class Scalar>
Status StagePasses<Scalar>::start_step(std::vector<Token> tokens, std::vector<Token> targets,
                                       std::uint64_t draw) {
    tokens_ = std::move(tokens);
    targets_ = std::move(targets);
    loss_ = {};
    const PartOf dp = model_->share().dp;
    for (Index m = 0; m < micro_batches_; ++m) {
        const Index first = (m * dp.parts + dp.part) * model_->options().micro_batch;
        for (std::size_t chunk = 0; chunk < model_->share().chunks.size(); ++chunk) {
            flight(static_cast<Index>(chunk), m).pass.drawn = {draw, first, true};
        }
        if (auto s = model_->check(of(tokens_, m), "tokens"); !s) return s;
        if (auto s = model_->check(of(targets_, m), "targets"); !s) return s;
    }
    return sim::Done{};
}

template <class Scalar>
std::span<const Token> StagePasses<Scalar>::of(const std::vector<Token>& all,
                                               Index micro_batch) const {
    const auto count = all.size() / static_cast<std::size_t>(micro_batches_);
    return std::span(all).subspan(static_cast<std::size_t>(micro_batch) * count, count);
}

template <class Scalar>
typename StagePasses<Scalar>::Flight& StagePasses<Scalar>::flight(Index chunk, Index micro_batch) {
    return flights_[static_cast<std::size_t>(chunk * micro_batches_ + micro_batch)];
}

template <class Scalar>
void StagePasses<Scalar>::forward(Index chunk, Index unit, Index micro_batch) {
    Flight& f = flight(chunk, micro_batch);
    const Index block = block_of(chunk, unit);
    if (block < 0) {
        model_->embed(of(tokens_, micro_batch), f.pass);
    } else if (block < share(chunk).count) {
        model_->forward(block, f.pass, true);
        loss_.balance += f.pass.blocks[static_cast<std::size_t>(block)].balance;
    } else if (share(chunk).has_head) {
        // with the loss and its gradient, so that all logits never exist
        f.gradient = Scratch<Scalar>(model_->arena(), model_->boundary());
        loss_.sum +=
            model_->head(of(targets_, micro_batch), f.pass, factors_.token, f.gradient.data());
        f.pass.output.release();
    }
}

template <class Scalar>
void StagePasses<Scalar>::backward(Index chunk, Index unit, Index micro_batch) {
    Flight& f = flight(chunk, micro_batch);
    const Index block = block_of(chunk, unit);
    if (block < 0) {
        model_->embed_backward(of(tokens_, micro_batch), f.pass, f.gradient.data());
        f.gradient.release();
    } else if (block < share(chunk).count) {
        const auto at = static_cast<std::size_t>(block);
        model_->backward(block, f.pass, f.gradient.data(), factors_.balance, split_);
        f.pass.blocks[at] = {}; // with what lies outside the arena
        if (!split_) return;
        f.deferred.resize(f.pass.blocks.size());
        f.deferred[at] = std::exchange(f.pass.deferred, {});
    }
}

template <class Scalar>
void StagePasses<Scalar>::weight(Index chunk, Index unit, Index micro_batch) {
    Flight& f = flight(chunk, micro_batch);
    const Index block = block_of(chunk, unit);
    if (block < 0 || block >= share(chunk).count) return;
    f.pass.deferred = std::exchange(f.deferred[static_cast<std::size_t>(block)], {});
    model_->weight_gradients(f.pass);
}

template <class Scalar>
Tensor<Scalar>& StagePasses<Scalar>::input(Index chunk, Index micro_batch) {
    return model_->begin(chunk, flight(chunk, micro_batch).pass);
}
template <class Scalar>
Tensor<Scalar>& StagePasses<Scalar>::output(Index chunk, Index micro_batch) {
    return flight(chunk, micro_batch).pass.output;
}
template <class Scalar>
Scratch<Scalar>& StagePasses<Scalar>::gradient(Index chunk, Index micro_batch) {
    return flight(chunk, micro_batch).gradient;
}

template class StagePasses<float>;
template class StagePasses<double>;

} // namespace shardplan::exec
