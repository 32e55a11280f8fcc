#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/estimate/kinds.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/few_of.hpp"

namespace shardplan::sim {

/// The part of a Layout (and of the stack's features) that the operators of a block read: the cache
/// key of everything derived from an OpList.
struct ShardingKey {
    std::int64_t micro_batch = 1;
    std::int32_t tp = 1;
    std::int32_t cp = 1;
    std::int32_t ep = 1;
    std::int32_t etp = 1;
    bool sp = false;
    CpKind cp_kind = CpKind::ring;
    bool sharded_parameters = false; ///< zero3: weights are gathered around every use

    friend bool operator==(const ShardingKey&, const ShardingKey&) = default;
};
ShardingKey sharding_of(const Layout& layout);

/// One matrix product per rank after sharding: (m x k) by (k x n), `count` times.
struct Gemm {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t count = 1; ///< experts on the rank for grouped products

    friend bool operator==(const Gemm&, const Gemm&) = default;
};

/// What selective recomputation does with a stored tensor.
enum class Keep : std::uint8_t {
    until_backward,
    dropped_by_selective, ///< computed again in the backward pass
    only_by_selective,    ///< a copy that exists because of it
};

/// A tensor kept from the forward to the backward pass, bytes of one rank and micro-batch.
struct StoredTensor {
    std::string_view name;
    double bytes = 0.0;
    TensorKind kind = TensorKind::activations;
    Keep keep = Keep::until_backward;
    bool for_weights = false; ///< goes into gradients of weights, and waits for them
};

enum class Collective : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    all_to_all,
    send_recv
};
template <>
struct EnumNames<Collective> {
    static constexpr std::array<std::string_view, 7> names = {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast",
        "reduce",     "all_to_all", "send_recv"};
};

/// A collective an operator needs. `bytes`: the whole buffer as nccl-tests counts it (all-gather:
/// received in all, reduce-scatter: sent in all, all-to-all: what one rank sends in all).
struct CommOp {
    Group group = Group::tp;
    Collective op = Collective::all_reduce;
    double bytes = 0.0;
    std::int32_t count = 1;
};

/// One operator of a block on one rank for one micro-batch.
struct Op {
    OpKind kind = OpKind::linear;
    std::string_view name; ///< "qkv", "core_attention", "mlp_up"; stable, shown by explain
    /// Forward product of linear kinds. Attention: queries x keys x mean dimension of keys and
    /// values of one sequence and head, `count` sequences x heads.
    Gemm gemm;
    Dtype dtype = Dtype::bf16; ///< format its products run in
    /// Ends of the run of keys that a block of queries works on beyond what it needs: one of a
    /// causal mask, two of a window; times the kernels that each take a part of the keys.
    double attention_edges = 1.0;
    double sum_forward = 0.0; ///< bytes moved to add up what several such kernels find
    double sum_backward = 0.0;
    bool gated = false;           ///< an activation of two inputs
    bool output = false;          ///< serves the unit's output alone: full recomputation omits it
    bool writes_scores = false;   ///< attention as products around a softmax, not one kernel
    bool frozen = false;          ///< no gradient of its weights (adapters train instead)
    double flops_forward = 0.0;   ///< matrix and score products that the kernel really does
    double flops_backward = 0.0;  ///< gradients of inputs and weights
    double traffic_forward = 0.0; ///< bytes moved by memory-bound work
    double traffic_backward = 0.0;
    std::int64_t at_once = 1; ///< of the `count` products, run side by side
    /// Kernels at the best fusion the stack's features allow.
    std::int32_t kernels_forward = 0;
    std::int32_t kernels_backward = 0;
    double weights = 0.0;      ///< parameters of this operator on the rank
    double weight_bytes = 0.0; ///< of them, in the format they are stored in for computing
    FewOf<StoredTensor, 6> stored;
    double transient_forward = 0.0;  ///< bytes alive only inside the forward, outputs included
    double transient_backward = 0.0; ///< gradients and workspaces alive only inside the backward
    /// The same of a backward pass that leaves gradients of weights to a pass of their own, the
    /// gradient of the output that waits for it, and what is alive only inside that.
    double transient_input = 0.0;
    double waiting = 0.0;
    double transient_weight = 0.0;
    /// What the operator before it gave, alive here too, where selective recomputation drops that.
    double dropped_before = 0.0;
    FewOf<CommOp, 3> comm_forward;
    FewOf<CommOp, 3> comm_backward;
    /// Share of its forward that runs again under selective recomputation.
    double selective_share = 0.0;
};

using OpList = std::vector<Op>;

/// A block with routed experts in two: only from the exchange of tokens on does it matter how
/// experts are split (`ep` and `etp` of the sharding). Other blocks are all `before_experts`.
enum class BlockPart : std::uint8_t { whole, before_experts, from_experts };

/// The operators of one block of `kind` in execution order of the forward pass. Both parts after
/// one another are the whole. `room`: a list whose memory is used again.
OpList block_ops(const BlockKind& kind, std::int64_t hidden, const ModelSpec& model,
                 const Resolved& resolved, const StackProfile& stack, const ShardingKey& sharding,
                 BlockPart part = BlockPart::whole, OpList room = {});
/// Token (and position) lookup on the first stage.
OpList embedding_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                     const ShardingKey& sharding);
/// Final norm, output projection and loss on the last stage.
OpList head_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                const ShardingKey& sharding);
/// What one module that predicts a further token runs besides its block: the table again, two
/// norms, the map that joins both vectors, and a head with its loss. Source: DeepSeek-V3 (arXiv
/// 2412.19437, section 2.2).
OpList prediction_ops(const ModelSpec& model, const Resolved& resolved, const StackProfile& stack,
                      const ShardingKey& sharding);

} // namespace shardplan::sim
