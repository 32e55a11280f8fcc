#pragma once

#include <optional>
#include <span>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/model/parameters.hpp"

namespace shardplan::exec {

/// What a block computes again in the backward pass instead of keeping it.
enum class Recompute : std::uint8_t {
    none,
    selective, ///< the output of attention
    full,      ///< everything but the block's input
};

/// Sizes and rules that all blocks share.
struct ModelOptions {
    Index sequence = 0;    ///< tokens of a sample
    Index micro_batch = 1; ///< samples of one pass
    /// One per block; or one for all of them; empty: none.
    std::vector<Recompute> recompute;
    Storage storage = Storage::scalar; ///< of weights and activations; gradients are never rounded
    double rotary_base = 10000.0;
    double norm_epsilon = 1e-5;
    double balance = 0.01;  ///< factor of the experts' load-balance loss
    Index loss_chunk = 256; ///< tokens whose logits exist at the same time

    [[nodiscard]] Index tokens() const { return sequence * micro_batch; }
};

/// What the operators of a rank work with.
template <class Scalar>
struct Workplace {
    Kernels<Scalar>* kernels = nullptr;
    Arena* arena = nullptr;
    Parameters<Scalar>* parameters = nullptr;
    const ModelOptions* options = nullptr;
};

/// Activations of one block and micro-batch between its forward and its backward pass.
template <class Scalar>
struct BlockState {
    Tensor<Scalar> input, attention_stats, attention_normed, qkv, attended, lse;
    Tensor<Scalar> middle, ffn_stats, ffn_normed, up, activated;
    // routed experts
    Tensor<Scalar> probabilities, weights, sorted, expert_out;
    std::vector<std::int32_t> expert, place;
    std::vector<Index> offsets;
    double balance = 0.0; ///< load-balance loss

    [[nodiscard]] Routing routing() { return {expert.data(), place.data(), offsets.data()}; }
};

/// Gradients of weights that a backward pass has left for later: one linear map each.
template <class Scalar>
struct WeightWork {
    Index weight = 0;
    std::optional<Index> bias;
    std::vector<Index> offsets; ///< of experts: rows of each; else empty
    Tensor<Scalar> x;           ///< what went in
    Scratch<Scalar> dy;         ///< gradient of what came out
};
template <class Scalar>
using DeferredWeights = std::vector<WeightWork<Scalar>>;

/// One transformer block: forward and backward written out. Gradients of parameters are added up.
template <class Scalar>
class Block {
public:
    Block(Workplace<Scalar> work, const sim::BlockKind& kind, Index hidden,
          const BlockParameters& parameters, Recompute recompute);

    /// From `state.input` to `output`. Keeps in `state` what the backward pass needs, or nothing
    /// but the input if `keep` is false.
    void forward(BlockState<Scalar>& state, Tensor<Scalar>& output, bool keep) const;
    /// `gradient`: of the output when called, of the input on return. `balance_factor`: of the
    /// load-balance loss. Releases the state. With `deferred`, gradients of linear maps are left to
    /// `weight_gradients`; those of norms are not.
    void backward(BlockState<Scalar>& state, Scalar* gradient, double balance_factor,
                  DeferredWeights<Scalar>* deferred) const;
    /// Does what a backward pass has left, in the same order, and releases it.
    void weight_gradients(DeferredWeights<Scalar>& deferred) const;

private:
    using Number = std::optional<Index>;

    void linear_forward(Index weight, Number bias, const Scalar* x, const Scalar* residual,
                        Scalar* y) const;
    /// The gradient of the input. Those of weight and bias are added up, or left in `deferred` with
    /// `x`, which is released otherwise.
    void linear_backward(Index weight, Number bias, Tensor<Scalar>& x, const Scalar* dy, Scalar* dx,
                         DeferredWeights<Scalar>* deferred) const;
    /// What is left after the gradient of the input: gradients of weight and bias now, or later.
    void finish_linear_backward(Index weight, Number bias, const std::vector<Index>& offsets,
                                Tensor<Scalar>& x, std::span<const Scalar> dy,
                                DeferredWeights<Scalar>* deferred) const;
    void weight_gradient(Index weight, Number bias, const std::vector<Index>& offsets,
                         const Scalar* x, const Scalar* dy) const;
    void norm_forward(Number scale, Number shift, const Tensor<Scalar>& x, Tensor<Scalar>& stats,
                      Tensor<Scalar>& y) const;
    void norm_backward(Number scale, Number shift, const Tensor<Scalar>& x,
                       const Tensor<Scalar>& stats, const Scalar* dy, Scalar* dx) const;
    void attend(BlockState<Scalar>& state) const;
    void attention_half(BlockState<Scalar>& state) const;
    void ffn_inner(BlockState<Scalar>& state) const;
    void experts_inner(BlockState<Scalar>& state) const;
    void ffn_backward(BlockState<Scalar>& state, Scalar* gradient,
                      DeferredWeights<Scalar>* deferred) const;
    void experts_backward(BlockState<Scalar>& state, Scalar* gradient, double balance_factor,
                          DeferredWeights<Scalar>* deferred) const;
    void attention_backward(BlockState<Scalar>& state, Scalar* gradient,
                            DeferredWeights<Scalar>* deferred) const;
    void release_inner(BlockState<Scalar>& state) const;
    [[nodiscard]] Reading<Scalar> weights(Index i) const;
    [[nodiscard]] NormShape norm_shape() const;
    [[nodiscard]] AttentionShape attention_shape() const;
    [[nodiscard]] RotaryShape rotary_shape(Index heads) const;
    [[nodiscard]] ActivationShape activation_shape() const;
    [[nodiscard]] RouterShape router_shape() const;
    [[nodiscard]] bool routes() const { return kind_.ffn.kind == sim::FfnKind::moe; }

    Workplace<Scalar> work_;
    sim::BlockKind kind_;
    BlockParameters p_;
    Recompute recompute_ = Recompute::none;
    Index hidden_ = 0;
    Index tokens_ = 0;
    Index q_width_ = 0;
    Index kv_width_ = 0; ///< of the keys, and of the values
    Index qkv_width_ = 0;
};

} // namespace shardplan::exec
