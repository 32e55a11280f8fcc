#pragma once

#include <memory>
#include <vector>

#include "executor/model/model.hpp"

namespace shardplan::exec {

/// What the micro-batches of a step came to on one rank.
struct StageLoss {
    double sum = 0.0;     ///< cross entropy over the tokens of this rank
    double balance = 0.0; ///< load-balance losses of this rank's blocks
};

/// The passes of a step through the chunks of one rank, unit by unit, in whatever order a Schedule
/// has them. Units of a chunk are counted as the Schedule does: the embedding where a micro-batch
/// begins, blocks, the head where it ends.
template <class Scalar>
class StagePasses {
public:
    /// `split`: gradients of weights are passes of their own. `model` outlives this.
    StagePasses(Model<Scalar>& model, Index micro_batches, LossFactors factors, bool split);

    /// Tokens of all micro-batches of the step, one after another: micro-batch j of data-parallel
    /// rank r is number j x dp + r of the step. `draw`: of what the step drops at random. Errors:
    /// tokens out of range.
    Status start_step(std::vector<Token> tokens, std::vector<Token> targets, std::uint64_t draw);
    [[nodiscard]] const StageLoss& loss_of_step() const { return loss_; }

    /// The head's pass is that of the loss too, and gives its gradient.
    void forward(Index chunk, Index unit, Index micro_batch);
    void backward(Index chunk, Index unit, Index micro_batch);
    void weight(Index chunk, Index unit, Index micro_batch);

    /// `boundary()` values of a chunk's input, for the caller to fill before the forward pass, and
    /// of its output, for the caller to take afterwards.
    Tensor<Scalar>& input(Index chunk, Index micro_batch);
    Tensor<Scalar>& output(Index chunk, Index micro_batch);
    /// `boundary()` values of the gradient of a chunk's output when its backward pass begins, of
    /// its input when it ends.
    Scratch<Scalar>& gradient(Index chunk, Index micro_batch);

private:
    struct Flight {
        Pass<Scalar> pass;
        Scratch<Scalar> gradient;
        std::vector<DeferredWeights<Scalar>> deferred; ///< by unit
    };
    Flight& flight(Index chunk, Index micro_batch);
    [[nodiscard]] const ChunkShare& share(Index chunk) const {
        return model_->share().chunks[static_cast<std::size_t>(chunk)];
    }
    /// Which block of the chunk a unit is: -1 the embedding, `count` the head.
    [[nodiscard]] Index block_of(Index chunk, Index unit) const {
        return unit - (share(chunk).embeds ? 1 : 0);
    }
    [[nodiscard]] std::span<const Token> of(const std::vector<Token>& all, Index micro_batch) const;

    Model<Scalar>* model_;
    Index micro_batches_ = 1;
    LossFactors factors_;
    bool split_ = false;
    std::vector<Token> tokens_, targets_;
    std::vector<Flight> flights_; ///< by chunk, then micro-batch
    StageLoss loss_;
};

} // namespace shardplan::exec
