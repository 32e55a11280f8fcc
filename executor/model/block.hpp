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
    double balance = 0.01; ///< factor of the experts' load-balance loss
    double attention_dropout = 0.0;
    double hidden_dropout = 0.0; ///< of what the halves of a block and the tables give
    sim::Positions positions = sim::Positions::rope;
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

/// What a half of a block keeps of its end: a norm and dropping, before the residual stream.
template <class Scalar>
struct EndState {
    Tensor<Scalar> input, stats; ///< of the norm
    Scratch<std::uint8_t> mask;  ///< of what is kept
};

/// Activations of one block and micro-batch between its forward and its backward pass.
template <class Scalar>
struct BlockState {
    Drawn drawn; ///< of this block
    Tensor<Scalar> input, attention_stats, attention_normed, qkv, attended, lse;
    Tensor<Scalar> q_raw, k_raw, q_stats, k_stats; ///< of norms of heads: what goes in
    // compressed queries, keys and values
    Tensor<Scalar> q_low, q_low_stats, q_low_normed, kv_low, kv_low_stats, kv_low_normed;
    /// Where heads are exchanged for tokens: what attention gave before it was exchanged back.
    Tensor<Scalar> attended_heads;
    Tensor<Scalar> middle, ffn_stats, ffn_normed, up, activated;
    Tensor<Scalar> shared_up, shared_activated, shared_factor;
    EndState<Scalar> attention_end, ffn_end;
    // routed experts
    Tensor<Scalar> probabilities, weights, sorted;
    std::vector<std::int32_t> expert; ///< of the rank's rows
    std::vector<std::int32_t> place;  ///< of those that it sends
    std::vector<Index> offsets;       ///< likewise, by expert
    ExpertWay way;
    double balance = 0.0;       ///< load-balance loss, of the rows of all ranks
    std::vector<double> slopes; ///< of it, in every row's probability of an expert

    /// Calls `f` for every tensor but the input.
    template <class F>
    void each_inner(F&& f) {
        for (Tensor<Scalar>* t : {&attention_stats,
                                  &attention_normed,
                                  &qkv,
                                  &attended,
                                  &lse,
                                  &q_raw,
                                  &k_raw,
                                  &q_stats,
                                  &k_stats,
                                  &q_low,
                                  &q_low_stats,
                                  &q_low_normed,
                                  &kv_low,
                                  &kv_low_stats,
                                  &kv_low_normed,
                                  &attended_heads,
                                  &middle,
                                  &ffn_stats,
                                  &ffn_normed,
                                  &up,
                                  &activated,
                                  &shared_up,
                                  &shared_activated,
                                  &shared_factor,
                                  &attention_end.input,
                                  &attention_end.stats,
                                  &ffn_end.input,
                                  &ffn_end.stats,
                                  &probabilities,
                                  &weights,
                                  &sorted}) {
            f(*t);
        }
    }
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
    std::size_t x_from = 0;     ///< it is the x of the entry so many further on
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
    enum class Half : std::uint8_t { attention, ffn };

    [[nodiscard]] Map qkv_map() const { return {*p_.qkv, p_.qkv_bias, MapSplit::outputs}; }
    [[nodiscard]] Map attention_out_map() const {
        return {p_.attention_out, p_.attention_out_bias, MapSplit::inputs};
    }
    [[nodiscard]] Map up_map() const { return {p_.up, p_.up_bias, MapSplit::outputs}; }
    [[nodiscard]] Map down_map() const { return {p_.down, p_.down_bias, MapSplit::inputs}; }
    [[nodiscard]] Map router_map() const { return {*p_.router, p_.router_bias, MapSplit::whole}; }
    [[nodiscard]] Map shared_up_map() const {
        return {*p_.shared_up, p_.shared_up_bias, MapSplit::outputs};
    }
    [[nodiscard]] Map shared_down_map() const {
        return {*p_.shared_down, p_.shared_down_bias, MapSplit::inputs};
    }
    [[nodiscard]] Map shared_gate_map() const {
        return {*p_.shared_gate, std::nullopt, MapSplit::whole};
    }
    [[nodiscard]] Map q_down_map() const { return {*p_.q_down, p_.q_down_bias, MapSplit::whole}; }
    [[nodiscard]] Map q_up_map() const { return {*p_.q_up, std::nullopt, MapSplit::outputs}; }
    [[nodiscard]] Map kv_down_map() const {
        return {*p_.kv_down, p_.kv_down_bias, MapSplit::whole};
    }
    [[nodiscard]] Map kv_up_map() const { return {*p_.kv_up, std::nullopt, MapSplit::outputs}; }

    /// y = x W^T, + bias, + residual.
    void linear(Index weight, Number bias, Index rows, const Scalar* x, const Scalar* residual,
                Scalar* y) const;
    /// Of a map with split outputs, or a whole one.
    void map_forward(const Map& map, const Tensor<Scalar>& x, Scalar* y) const;
    /// Of a map with split inputs: `x` has all rows, residual (may be null) and y those of the
    /// rank.
    void sum_forward(const Map& map, const Scalar* x, const Scalar* residual, Scalar* y) const;
    /// The gradient of the input. Those of weight and bias are added up, or left in `deferred` with
    /// `x`, which is released otherwise. Of a map with split outputs, or a whole one.
    /// `x_from`: other maps read `x` too, the last of which is so many maps further on.
    void map_backward(const Map& map, Tensor<Scalar>& x, Scratch<Scalar> dy, Scalar* dx,
                      DeferredWeights<Scalar>* deferred, std::size_t x_from = 0) const;
    /// The same, with the gradient of the input added to what is there.
    void map_backward_added(const Map& map, Tensor<Scalar>& x, Scratch<Scalar> dy, Scalar* dx,
                            DeferredWeights<Scalar>* deferred, std::size_t x_from = 0) const;
    /// The same of a map with split inputs, from the gradient of the rank's rows; `x` is left to
    /// `settle`.
    void sum_backward(const Map& map, const Tensor<Scalar>& x, const Scalar* gradient, Scalar* dx,
                      DeferredWeights<Scalar>* deferred) const;
    /// The gradient of all rows from that of the rank's; none where they are the same.
    [[nodiscard]] Scratch<Scalar> gathered_gradient(const Scalar* gradient) const;
    /// What is left after the gradient of the input: gradients of weight and bias now, or later,
    /// for which `dy` is moved or copied. `x` is left to `settle`.
    void finish_backward(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         Scratch<Scalar> dy, DeferredWeights<Scalar>* deferred) const;
    void finish_backward(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         std::span<const Scalar> dy, DeferredWeights<Scalar>* deferred) const;
    /// Of a map with split inputs: of all rows `dy`, or `gradient` where that is none.
    void finish_rows(const Map& map, const Tensor<Scalar>& x, Scratch<Scalar> dy,
                     const Scalar* gradient, DeferredWeights<Scalar>* deferred) const;
    /// `x` goes to the map that has been left last, or away; unless other maps read it after this.
    void settle(Tensor<Scalar>& x, DeferredWeights<Scalar>* deferred, std::size_t x_from = 0) const;
    void weight_gradient(const Map& map, const std::vector<Index>& offsets, const Tensor<Scalar>& x,
                         std::span<const Scalar> dy) const;
    /// `in`: all rows that the map has worked on.
    void weight_gradient_of(const Map& map, const Scalar* in, std::span<const Scalar> dy) const;
    void norm_forward(Number scale, Number shift, const Tensor<Scalar>& x, Tensor<Scalar>& stats,
                      Tensor<Scalar>& y) const;
    void norm_backward(Number scale, Number shift, const Tensor<Scalar>& x,
                       const Tensor<Scalar>& stats, const Scalar* dy, Scalar* dx) const;
    // queries, keys and values of all rows, side by side
    /// `gathered`: what the map takes in, of all rows; null: it gathers that itself.
    void project(BlockState<Scalar>& state, const Scalar* gathered = nullptr) const;
    void project_plainly(BlockState<Scalar>& state, const Scalar* gathered, Scalar* qkv) const;
    void project_latents(BlockState<Scalar>& state, Scalar* qkv) const;
    /// From their gradient to that of the half's input.
    void project_backward(BlockState<Scalar>& state, Scratch<Scalar> dqkv, Scalar* dinput,
                          DeferredWeights<Scalar>* deferred) const;
    /// From gradients after norms and rotation to those before.
    void turn_back(BlockState<Scalar>& state, Scalar* dqkv) const;
    void latents_backward(BlockState<Scalar>& state, Scratch<Scalar> dqkv, Scalar* dinput,
                          DeferredWeights<Scalar>* deferred) const;
    void latent_keys_backward(BlockState<Scalar>& state, const Scalar* dqkv, Scalar* dlow,
                              DeferredWeights<Scalar>* deferred) const;
    void compress(const Map& map, Number scale, const Tensor<Scalar>& x, Tensor<Scalar>& low,
                  Tensor<Scalar>& stats, Tensor<Scalar>& normed) const;
    void compress_backward(Number scale, Tensor<Scalar>& low, Tensor<Scalar>& stats,
                           const Scalar* dnormed, Scalar* dlow) const;
    /// The rotated part of keys, alike for all heads, of all rows.
    [[nodiscard]] Scratch<Scalar> key_positions(const BlockState<Scalar>& state) const;
    void key_positions_backward(Scratch<Scalar>& all, Scalar* own) const;
    void rotate_latents(bool inverse, Scalar* qkv) const;
    /// What norms of heads work on: the columns of queries, or of keys.
    struct HeadNorm;
    [[nodiscard]] HeadNorm q_head_norm(BlockState<Scalar>& state) const;
    [[nodiscard]] HeadNorm k_head_norm(BlockState<Scalar>& state) const;
    void norm_heads(const HeadNorm& norm, Scalar* qkv) const;
    void norm_heads_backward(const HeadNorm& norm, Scalar* dqkv) const;
    /// What a half reads, and the gradient of that into the residual stream's.
    [[nodiscard]] Tensor<Scalar>& attention_input(BlockState<Scalar>& s) const {
        return kind_.norms.pre_attention ? s.attention_normed : s.input;
    }
    [[nodiscard]] Tensor<Scalar>& ffn_input(BlockState<Scalar>& s) const {
        if (kind_.norms.pre_ffn) return s.ffn_normed;
        return kind_.norms.parallel ? attention_input(s) : s.middle;
    }
    /// Releases what nobody reads after it.
    void input_backward(Half half, BlockState<Scalar>& state, const Scalar* dinput,
                        Scalar* gradient) const;
    // where a half is added to the residual stream
    [[nodiscard]] bool has_end_norm(Half half) const {
        return half == Half::attention ? kind_.norms.post_attention : kind_.norms.post_ffn;
    }
    [[nodiscard]] bool ends_plainly(Half half) const {
        return !has_end_norm(half) && work_.options->hidden_dropout == 0.0;
    }
    /// `y`: what the half gives, changed on the way; output = residual + what is left of it.
    void end_half(Half half, BlockState<Scalar>& state, Scalar* y, const Scalar* residual,
                  Scalar* output) const;
    /// The gradient of y from that of the output.
    [[nodiscard]] Reading<Scalar> end_backward(Half half, BlockState<Scalar>& state,
                                               const Scalar* gradient) const;
    void attend(BlockState<Scalar>& state) const;
    void attention_half(BlockState<Scalar>& state) const;
    /// `beside`: room for what shared experts give, which waits for the routed ones; null where
    /// nobody needs it.
    void ffn_inner(BlockState<Scalar>& state, Scratch<Scalar>* beside) const;
    void ffn_output(BlockState<Scalar>& state, const Scratch<Scalar>& beside, Scalar* output) const;
    void experts_inner(BlockState<Scalar>& state) const;
    /// What the routed experts give, and the residual unless it is null.
    void experts_output(BlockState<Scalar>& state, const Tensor<Scalar>* residual,
                        Scalar* output) const;
    void shared_inner(BlockState<Scalar>& state, Scratch<Scalar>* beside) const;
    /// Adds the gradient of the input. `dy`: of the half's output, own rows.
    void shared_backward(BlockState<Scalar>& state, const Scalar* dy, Scalar* dinput,
                         DeferredWeights<Scalar>* deferred) const;
    void shared_gate_backward(BlockState<Scalar>& state, const Scalar* dy_all, Scalar* dactivated,
                              Scratch<Scalar>& scaled, Scalar* dinput,
                              DeferredWeights<Scalar>* deferred) const;
    // halves side by side: both read the block's input, and what they give is added up once
    void parallel_forward(BlockState<Scalar>& state, Tensor<Scalar>& output, bool keep) const;
    /// `sum`: of all rows, this rank's part in what both halves give; null where nobody needs it.
    void parallel_inner(BlockState<Scalar>& state, Scalar* sum) const;
    void parallel_backward(BlockState<Scalar>& state, Scalar* gradient,
                           DeferredWeights<Scalar>* deferred) const;
    /// Of two maps with split outputs that take in the same.
    void both_maps_backward(Scratch<Scalar> dqkv, Scratch<Scalar> dup, Tensor<Scalar>& x,
                            Scalar* dx, DeferredWeights<Scalar>* deferred) const;
    /// Computes again what was not kept, but attention's output.
    void recompute(BlockState<Scalar>& state) const;
    /// Sums of all ranks' rows, the load-balance loss and its slopes.
    void balance_load(BlockState<Scalar>& state, std::vector<double>& sums) const;
    /// Joins what tensor-parallel ranks have found for their parts of rows that are alike on them.
    void gather_sent(Index width, Scalar* values, Sent as) const;
    void ffn_backward(BlockState<Scalar>& state, Scalar* gradient,
                      DeferredWeights<Scalar>* deferred) const;
    void experts_backward(BlockState<Scalar>& state, Scalar* gradient, double balance_factor,
                          DeferredWeights<Scalar>* deferred) const;
    [[nodiscard]] Scratch<Scalar> expert_outputs(BlockState<Scalar>& state) const;
    /// Sets rows in the order of experts to the bias of each.
    void put_expert_bias(Index bias, const std::vector<Index>& offsets, Scalar* rows) const;
    /// What the last map's bias adds to the gradient of the weights of the choices.
    void weight_bias_gradient(const ExpertWay& way, const Scalar* dy, Scalar* dfactors) const;
    void expert_maps_backward(BlockState<Scalar>& state, Scratch<Scalar>& drows, Scalar* dweights,
                              DeferredWeights<Scalar>* deferred) const;
    void dispatch_backward(BlockState<Scalar>& state, const Scalar* drows, Scalar* dnormed) const;
    void attention_backward(BlockState<Scalar>& state, Scalar* gradient,
                            DeferredWeights<Scalar>* deferred) const;
    void core_backward(BlockState<Scalar>& state, Scratch<Scalar>& dattended, Scalar* dqkv) const;
    [[nodiscard]] Scratch<Scalar> attended_backward(BlockState<Scalar>& state,
                                                    Scratch<Scalar> dattended,
                                                    DeferredWeights<Scalar>* deferred) const;
    void release_attended(BlockState<Scalar>& state) const;
    void release_inner(BlockState<Scalar>& state) const;
    [[nodiscard]] Reading<Scalar> weights(Index i) const;
    [[nodiscard]] NormShape norm_shape() const;
    [[nodiscard]] RotaryShape rotary_shape() const;
    [[nodiscard]] ActivationShape activation_shape(Index rows) const;
    [[nodiscard]] RouterShape router_shape(Index rows) const;
    [[nodiscard]] Routing sent_routing(BlockState<Scalar>& state) const;
    [[nodiscard]] bool routes() const { return kind_.ffn.kind == sim::FfnKind::moe; }
    [[nodiscard]] bool is_latent() const { return kind_.attention.kind == sim::AttentionKind::mla; }
    [[nodiscard]] bool rotates() const {
        return kind_.attention.rope_dim > 0 && work_.options->positions == sim::Positions::rope;
    }
    /// Columns of keys and values that stand in front of one another.
    [[nodiscard]] Index k_width() const { return kv_heads_ * kind_.attention.qk_head_dim; }
    [[nodiscard]] ActivationShape shared_shape() const {
        return {kind_.ffn.activation, kind_.ffn.gated, rows_.all,
                kind_.ffn.shared_width / tp_.parts};
    }

    Workplace<Scalar> work_;
    sim::BlockKind kind_;
    BlockParameters p_;
    Recompute recompute_ = Recompute::none;
    Index hidden_ = 0;
    RowShare rows_;
    PartOf tp_;
    // sizes of the rank's parts
    Index heads_ = 0, kv_heads_ = 0;
    Index q_width_ = 0, qkv_width_ = 0, out_width_ = 0;
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
