#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "executor/model/block.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Activations of one micro-batch in one chunk; may be used again for the next.
template <class Scalar>
struct Pass {
    Index chunk = 0;
    Drawn drawn; ///< to be set before the pass begins
    std::vector<BlockState<Scalar>> blocks;
    Tensor<Scalar> embedded, embedded_stats; ///< what goes into a norm behind the tables
    Scratch<std::uint8_t> embedded_mask;     ///< of the values of the tables that are kept
    Tensor<Scalar> output;                   ///< of the last block
    DeferredWeights<Scalar> deferred;        ///< what a backward pass has left
};

/// What a micro-batch's loss is multiplied with in the gradient.
struct LossFactors {
    double token = 0.0;   ///< of the sum over tokens: 1 / tokens of the whole batch for a mean
    double balance = 0.0; ///< of the load-balance loss: 1 / micro-batches of the whole batch
};

struct Loss {
    double sum = 0.0;     ///< of the cross entropy over the tokens, in natural units
    double balance = 0.0; ///< load-balance losses of all blocks, before their factor
};

/// What a rank holds of a decoder: parameters, and the passes of a training step over them.
template <class Scalar>
class Model {
public:
    /// All of it. Refuses by name what it cannot train. 16-bit storage needs Scalar = float.
    static sim::Result<std::unique_ptr<Model>> make(const sim::ModelSpec& spec,
                                                    const ModelOptions& options,
                                                    std::shared_ptr<Kernels<Scalar>> kernels);
    /// A rank's share. `groups`: what it exchanges with the ranks that hold the rest of a layer
    /// through; outlives the model. Null where it is alone.
    static sim::Result<std::unique_ptr<Model>> make(const sim::ModelSpec& spec, RankShare share,
                                                    const LayoutGroups* groups,
                                                    const ModelOptions& options,
                                                    std::shared_ptr<Kernels<Scalar>> kernels);
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    [[nodiscard]] Parameters<Scalar>& parameters() { return parameters_; }
    [[nodiscard]] const ModelOptions& options() const { return options_; }
    [[nodiscard]] Arena& arena() { return arena_; }
    /// Where activations of blocks wait for their backward pass that are not to wait in the arena.
    [[nodiscard]] OffDevice& off_device() { return off_device_; }
    [[nodiscard]] Kernels<Scalar>& kernels() { return *kernels_; }
    [[nodiscard]] const RankShare& share() const { return share_; }
    /// Of the exchanges inside the passes: the first error, after which they are left out and what
    /// the passes compute means nothing. To be asked after each call.
    [[nodiscard]] sim::Status failure() const { return links_.status(); }
    /// Which tokens of a micro-batch this rank works on.
    [[nodiscard]] const RowShare& rows() const { return rows_; }
    /// Elements of what one chunk hands on to the next: of the rows of this rank, see block.hpp.
    [[nodiscard]] Index boundary() const;

    /// Forward, loss and backward pass of one micro-batch of micro_batch x sequence tokens; adds to
    /// the gradients. Every rank that shares the micro-batch gives all of it, and gets the same
    /// loss. Errors: tokens or targets outside [0, vocab); what `failure` says. Of a model whose
    /// chunks all lie on this rank, in their order.
    sim::Result<Loss> train(std::span<const Token> tokens, std::span<const Token> targets,
                            LossFactors factors);
    /// Loss alone.
    sim::Result<Loss> evaluate(std::span<const Token> tokens, std::span<const Token> targets);

    /// Tokens of a micro-batch: their number, and that they lie in [0, vocab).
    [[nodiscard]] sim::Status check(std::span<const Token> tokens, const char* where) const;

    // The parts of `train`, in order; a schedule calls them for several passes in turn. Blocks are
    // counted from the first of the pass's chunk.
    /// A pass begins in a chunk that embeds.
    void embed(std::span<const Token> tokens, Pass<Scalar>& pass) const;
    /// Or with what another chunk has handed on: the pass's input, of `boundary()` values, which
    /// the caller fills.
    Tensor<Scalar>& begin(Index chunk, Pass<Scalar>& pass) const;
    void forward(Index block, Pass<Scalar>& pass, bool keep) const;
    /// Loss of the whole micro-batch, and unless null the gradient of the last block's output.
    double head(std::span<const Token> targets, Pass<Scalar>& pass, double factor,
                Scalar* gradient) const;
    /// `defer`: gradients of linear maps are left in the pass.
    void backward(Index block, Pass<Scalar>& pass, Scalar* gradient, double balance_factor,
                  bool defer = false) const;
    void embed_backward(std::span<const Token> tokens, Pass<Scalar>& pass,
                        const Scalar* gradient) const;
    /// Does what the backward passes of the chunk have left.
    void weight_gradients(Pass<Scalar>& pass) const;

private:
    Model(const sim::ModelSpec& spec, RankShare share, RowShare rows, const LayoutGroups* groups,
          ModelOptions options, std::shared_ptr<Kernels<Scalar>> kernels);
    [[nodiscard]] const Parameter& parameter(Index i) const { return parameters_.table()[i]; }
    [[nodiscard]] Reading<Scalar> read(std::optional<Index> i) const {
        return i ? parameters_.read(arena_, *i) : Reading<Scalar>(nullptr);
    }
    /// Rows of a table that this rank holds.
    [[nodiscard]] EmbedShape table_part(Index table) const;
    /// Positions of the rank's own rows.
    [[nodiscard]] std::span<const Token> own_positions() const;
    /// Gradient of the rank's rows of what went into the head.
    double loss_of(std::span<const Token> targets, const Tensor<Scalar>& x, double factor,
                   Scalar* gradient) const;
    [[nodiscard]] const Block<Scalar>& block_of(Index block, const Pass<Scalar>& pass) const;
    [[nodiscard]] Tensor<Scalar>& input_after(Index block, Pass<Scalar>& pass) const;
    /// What the blocks drop at random is drawn for each anew.
    [[nodiscard]] Drawn drawn_for(Index block, const Pass<Scalar>& pass) const;
    void norm_embedded(Pass<Scalar>& pass, Scalar* values) const;
    void drop_embedded(Pass<Scalar>& pass, Scalar* values) const;
    void tables_backward(std::span<const Token> tokens, const Scalar* gradient) const;
    void move_off(BlockState<Scalar>& state) const;
    void bring_back(Index block, Pass<Scalar>& pass) const;

    sim::ModelSpec spec_;
    RankShare share_;
    RowShare rows_;
    ModelOptions options_;
    mutable Links links_;
    std::shared_ptr<Kernels<Scalar>> kernels_;
    mutable Arena arena_; // before everything that gives memory back to it
    mutable OffDevice off_device_;
    mutable Parameters<Scalar> parameters_;
    std::vector<Block<Scalar>> blocks_;
    std::vector<Index> first_block_; ///< of each chunk, in `blocks_`
    std::vector<Token> positions_;   ///< in the sample, of all rows
    Pass<Scalar> pass_;
};

} // namespace shardplan::exec
