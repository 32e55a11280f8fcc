#pragma once

#include <optional>
#include <span>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/model/context_attention.hpp"
#include "executor/model/expert_exchange.hpp"
#include "executor/model/parameters.hpp"

/// A layer over the ranks that hold parts of it. `RowShare` says which rows a rank has: all of its
/// context-parallel rank's in attention and inside the split maps; in between (residual stream,
/// norms, router) with sequence parallelism only its own.
///
/// Gradients of parameters are what this rank's rows contribute. To be added up by whoever drives
/// the model: over Group::dp_cp (Holders::dense) or Group::expert_dp (Holders::expert), and those
/// marked `tokens_split` also over Group::tp, and rows that `repeats` says over those ranks;
/// nothing else, and nothing is divided.
namespace shardplan::exec {

/// What a block computes again in the backward pass instead of keeping it.
enum class Recompute : std::uint8_t {
    none,
    selective, ///< the output of attention
    full,      ///< everything but the block's input
};

/// Sizes and rules that all blocks share.
struct ModelOptions {
    Index sequence = 0;    ///< tokens of a whole sample, on whatever ranks they lie
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
    Links* links = nullptr;
    const RowShare* rows = nullptr;
    const ModelOptions* options = nullptr;
};

/// Activations of one block and micro-batch between its forward and its backward pass.
template <class Scalar>
struct BlockState {
    Tensor<Scalar> input, attention_stats, attention_normed, qkv, attended, lse;
    /// Where heads are exchanged for tokens: what attention gave before it was exchanged back.
    Tensor<Scalar> attended_heads;
    Tensor<Scalar> middle, ffn_stats, ffn_normed, up, activated;
    // routed experts
    Tensor<Scalar> probabilities, weights, sorted;
    std::vector<std::int32_t> expert; ///< of the rank's rows
    std::vector<std::int32_t> place;  ///< of those that it sends
    std::vector<Index> offsets;       ///< likewise, by expert
    ExpertWay way;
    double balance = 0.0;       ///< load-balance loss, of the rows of all ranks
    std::vector<double> slopes; ///< of it, in every row's probability of an expert
};

/// How the tensor-parallel ranks split a linear map.
enum class MapSplit : std::uint8_t {
    whole,   ///< not at all: from a rank's own rows to its own rows
    outputs, ///< takes all rows, gathered if need be, and gives a part of each
    inputs,  ///< takes a part of all rows; what the ranks give is added up
};

/// Gradients of weights that a backward pass has left for later: one linear map each.
template <class Scalar>
struct WeightWork {
    Index weight = 0;
    std::optional<Index> bias;
    MapSplit split = MapSplit::whole;
    std::vector<Index> offsets; ///< of experts: rows of each; else empty
    Tensor<Scalar> x;           ///< what went in: own rows, unless the map's inputs are split
    Scratch<Scalar> dy;         ///< gradient of what came out: all rows, unless the map is whole
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

    /// A parameter pair: weight and bias of a linear map.
    struct Map {
        Index weight = 0;
        Number bias;
        MapSplit split = MapSplit::whole;
    };
    [[nodiscard]] Map qkv_map() const { return {p_.qkv, p_.qkv_bias, MapSplit::outputs}; }
    [[nodiscard]] Map attention_out_map() const {
        return {p_.attention_out, p_.attention_out_bias, MapSplit::inputs};
    }
    [[nodiscard]] Map up_map() const { return {p_.up, p_.up_bias, MapSplit::outputs}; }
    [[nodiscard]] Map down_map() const { return {p_.down, p_.down_bias, MapSplit::inputs}; }
    [[nodiscard]] Map router_map() const { return {*p_.router, std::nullopt, MapSplit::whole}; }

    /// y = x W^T, + bias, + residual.
    void linear(Index weight, Number bias, Index rows, const Scalar* x, const Scalar* residual,
                Scalar* y) const;
    /// Of a map with split outputs, or a whole one.
    void map_forward(const Map& map, const Tensor<Scalar>& x, Scalar* y) const;
    /// Of a map with split inputs: `x` has all rows, residual and y those of the rank.
    void sum_forward(const Map& map, const Scalar* x, const Scalar* residual, Scalar* y) const;
    /// The gradient of the input. Those of weight and bias are added up, or left in `deferred` with
    /// `x`, which is released otherwise. Of a map with split outputs, or a whole one.
    void map_backward(const Map& map, Tensor<Scalar>& x, Scratch<Scalar> dy, Scalar* dx,
                      DeferredWeights<Scalar>* deferred) const;
    /// The same of a map with split inputs, from the gradient of the rank's rows; `x` is left to
    /// `settle`.
    void sum_backward(const Map& map, const Tensor<Scalar>& x, const Scalar* gradient, Scalar* dx,
                      DeferredWeights<Scalar>* deferred) const;
    /// What is left after the gradient of the input: gradients of weight and bias now, or later,
    /// for which `dy` is moved or copied. `x` is left to `settle`.
    void finish_backward(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         Scratch<Scalar> dy, DeferredWeights<Scalar>* deferred) const;
    void finish_backward(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         std::span<const Scalar> dy, DeferredWeights<Scalar>* deferred) const;
    /// `x` goes to the map that has been left last, or away.
    void settle(Tensor<Scalar>& x, DeferredWeights<Scalar>* deferred) const;
    void weight_gradient(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         std::span<const Scalar> dy) const;
    void norm_forward(Number scale, Number shift, const Tensor<Scalar>& x, Tensor<Scalar>& stats,
                      Tensor<Scalar>& y) const;
    void norm_backward(Number scale, Number shift, const Tensor<Scalar>& x,
                       const Tensor<Scalar>& stats, const Scalar* dy, Scalar* dx) const;
    void project(BlockState<Scalar>& state) const;
    void attend(BlockState<Scalar>& state) const;
    void attention_half(BlockState<Scalar>& state) const;
    void ffn_inner(BlockState<Scalar>& state) const;
    void experts_inner(BlockState<Scalar>& state) const;
    /// The routed half of the block's output.
    void experts_output(BlockState<Scalar>& state, Scalar* output) const;
    /// Sums of all ranks' rows, the load-balance loss and its slopes.
    void balance_load(BlockState<Scalar>& state, std::vector<double>& sums) const;
    /// Joins what tensor-parallel ranks have found for their parts of rows that are alike on them.
    void gather_sent(Index width, Scalar* values) const;
    void ffn_backward(BlockState<Scalar>& state, Scalar* gradient,
                      DeferredWeights<Scalar>* deferred) const;
    void experts_backward(BlockState<Scalar>& state, Scalar* gradient, double balance_factor,
                          DeferredWeights<Scalar>* deferred) const;
    [[nodiscard]] Scratch<Scalar> expert_outputs(BlockState<Scalar>& state) const;
    void expert_maps_backward(BlockState<Scalar>& state, Scratch<Scalar>& drows, Scalar* dweights,
                              DeferredWeights<Scalar>* deferred) const;
    void dispatch_backward(BlockState<Scalar>& state, const Scalar* drows, Scalar* dnormed) const;
    void attention_backward(BlockState<Scalar>& state, Scalar* gradient,
                            DeferredWeights<Scalar>* deferred) const;
    void core_backward(BlockState<Scalar>& state, Scratch<Scalar>& dattended, Scalar* dqkv) const;
    void release_attended(BlockState<Scalar>& state) const;
    void release_inner(BlockState<Scalar>& state) const;
    [[nodiscard]] Reading<Scalar> weights(Index i) const;
    [[nodiscard]] NormShape norm_shape() const;
    [[nodiscard]] RotaryShape rotary_shape() const;
    [[nodiscard]] ActivationShape activation_shape(Index rows) const;
    [[nodiscard]] RouterShape router_shape(Index rows) const;
    [[nodiscard]] Routing sent_routing(BlockState<Scalar>& state) const;
    [[nodiscard]] bool routes() const { return kind_.ffn.kind == sim::FfnKind::moe; }

    Workplace<Scalar> work_;
    sim::BlockKind kind_;
    BlockParameters p_;
    Recompute recompute_ = Recompute::none;
    Index hidden_ = 0;
    RowShare rows_;
    PartOf tp_;
    // sizes of the rank's parts
    Index heads_ = 0, kv_heads_ = 0;
    Index q_width_ = 0, qkv_width_ = 0;
    Index ffn_width_ = 0; ///< of the network, or of one expert
    ContextAttention<Scalar> attention_;

    // routed experts
    bool sums_experts_ = false; ///< all tensor-parallel ranks send all rows to parts of experts
    bool shares_rows_ = false;  ///< each sends a part of the rows, which are alike on all
    ExpertExchange<Scalar> exchange_;
    Index sent_first_ = 0; ///< of the rank's rows those that it sends
    Index sent_rows_ = 0;
    Index sent_step_ = 0; ///< as many on every tensor-parallel rank, the last ones filled up
};

} // namespace shardplan::exec
