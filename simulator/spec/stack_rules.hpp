#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "simulator/spec/fields.hpp"

/// How the code of a stack treats tensors: what autograd keeps, which copies exist, how states are
/// held. These are facts about software, not numbers; they decide memory more than any constant.
namespace shardplan::sim {

/// What a normalisation keeps besides its input and its output.
enum class NormImpl {
    fused,  ///< statistics only
    upcast, ///< eager, in fp32: the fp32 copy and the normalised 16-bit copy
    native, ///< eager, in the storage type: the normalised copy
};
template <>
struct EnumNames<NormImpl> {
    static constexpr std::array<std::string_view, 3> names = {"fused", "upcast", "native"};
};

/// How rotary positions are applied.
enum class RopeImpl {
    fused,       ///< rotated queries and keys replace the projected ones
    eager,       ///< rotated copies through temporaries
    with_tables, ///< as eager, with the expanded sine and cosine tables kept
};
template <>
struct EnumNames<RopeImpl> {
    static constexpr std::array<std::string_view, 3> names = {"fused", "eager", "with_tables"};
};

/// How the loss is computed from the logits.
enum class LossImpl {
    eager,          ///< fp32 copy, log-softmax, and both gradients (torch cross_entropy)
    vocab_parallel, ///< Megatron: fp32 softmax in place of the fp32 copy, over the tp group
    fused,          ///< gradient in place of the logits
    chunked,        ///< a few rows of logits at a time
};
template <>
struct EnumNames<LossImpl> {
    static constexpr std::array<std::string_view, 4> names = {"eager", "vocab_parallel", "fused",
                                                              "chunked"};
};

/// What `recompute: selective` means.
enum class SelectivePolicy {
    core_attention,   ///< Megatron: scores, softmax and dropout are computed again
    per_operator,     ///< torchtitan: attention output and every second product are kept
    attention_output, ///< what the attention kernel gives is computed again
};
template <>
struct EnumNames<SelectivePolicy> {
    static constexpr std::array<std::string_view, 3> names = {"core_attention", "per_operator",
                                                              "attention_output"};
};

/// How the buffers of a pass come and go.
enum class PassBuffers {
    autograd, ///< as automatic differentiation makes them
    /// Passes written out by hand: every buffer is given back after its last use. Operators compute
    /// in 32 bits: what waits in 16 is widened while they run, gradients of activations never wait
    /// in less.
    written,
};
template <>
struct EnumNames<PassBuffers> {
    static constexpr std::array<std::string_view, 2> names = {"autograd", "written"};
};

/// Where a global buffer for gathered inputs of split products lives.
enum class GatherBuffer { none, head, everywhere };
template <>
struct EnumNames<GatherBuffer> {
    static constexpr std::array<std::string_view, 3> names = {"none", "head", "everywhere"};
};

/// How blocks are cut into pipeline stages when the layout says `even`.
enum class StagePartition {
    even,  ///< blocks spread evenly
    items, ///< embedding, blocks, final norm and head spread as items
    cost,  ///< cut at equal cumulative matrix work, the head counted
};
template <>
struct EnumNames<StagePartition> {
    static constexpr std::array<std::string_view, 3> names = {"even", "items", "cost"};
};

/// Where optimizer states can lie partly on the device and partly off it.
enum class PartOffload {
    never, ///< all of them or none
    zero3, ///< where parameters are split
    any,
};
template <>
struct EnumNames<PartOffload> {
    static constexpr std::array<std::string_view, 3> names = {"never", "zero3", "any"};
};

/// What the operators of a block keep and copy.
struct TensorRules {
    NormImpl norm = NormImpl::fused;
    RopeImpl rope = RopeImpl::eager;
    LossImpl loss = LossImpl::eager;
    SelectivePolicy selective = SelectivePolicy::core_attention;
    PassBuffers buffers = PassBuffers::autograd;
    bool compiles_loss = false; ///< feature compile fuses the loss too
    bool one_kernel_softmax =
        false;                      ///< unfused attention still scales, masks and normalises in one
    bool fused_elementwise = false; ///< bias, activation, dropout and add run as one kernel
    bool fused_glu = true;          ///< the gated product keeps only its two inputs
    bool packed_qkv = true;         ///< q, k, v are views of one projection
    bool attention_copy = false;    ///< the attention output is copied for the projection
    bool sequence_first = false;    ///< tensors are [sequence, batch, ...] (Megatron)
    bool keeps_cast_input = false;  ///< 8-bit products keep their 8-bit inputs (TE)
    bool repeat_kv = false;         ///< K and V are expanded to all heads
    bool keeps_gathered_input = false; ///< under sp a linear keeps the gathered input
    bool vocab_parallel_loss = true;   ///< false: logits are gathered over tp before the loss
    bool fused_weight_gradient = true; ///< products accumulate straight into the main gradient
    bool weight_gradient_placeholder = false; ///< a dummy gradient per distinct weight shape (TE)
    GatherBuffer gather_buffer = GatherBuffer::none; ///< under sp (Megatron)
    bool score_buffer = false; ///< one global buffer for attention scores (Megatron, unfused)
    bool partitioned_checkpoints = false; ///< under zero3 recompute inputs are cut over tp
    bool complex_rope = false; ///< rotary positions as complex numbers, which no compiler fuses
    /// Where a product's sums begin: the residual and the bias lie there already, and neither has a
    /// backward pass of its own.
    bool residual_begins_product = false;
    bool table_rows_added = false; ///< gradients of tables are added row by row, not as a whole
    /// Recomputing a block ends before its last map: the backward pass needs no output.
    bool recompute_without_output = false;
    bool scattered_messages = false;  ///< boundary tensors are cut over tp to be sent (Megatron)
    std::int64_t loss_rows = 0;       ///< fused loss: tokens whose logits exist at a time; 0: all
    std::int64_t logits_kept = 0;     ///< 16-bit logits that live on through the loss backward
    std::int64_t output_buffers = 0;  ///< logits of earlier micro-batches a pipeline buffer keeps
    std::int64_t message_buffers = 2; ///< boundary tensors a pipeline stage holds for messages
    /// Those are of receives that have been posted: no more than the step still has.
    bool posts_receives = false;
    std::int64_t message_headers = 0; ///< messages with the shape ahead of each boundary tensor

    friend bool operator==(const TensorRules&, const TensorRules&) = default;
};

/// How the states of the optimizer are held.
struct StateRules {
    /// Parameters are split into pieces of whole elements, unit by unit under zero3, else of all
    /// units together, and the last piece is filled up. Whole copies have room for all pieces.
    bool whole_pieces = false;
    bool bucket_copy = false;           ///< data-parallel buckets beside the accumulated gradients
    bool fp32_gradient_on_step = false; ///< an fp32 copy of the gradient shard while stepping
    bool fp16_gradients_stay = false;   ///< in fp16 gradients stay 16 bits wide until the step
    bool foreach_temporary = false;     ///< the multi-tensor optimizer makes one temporary copy
    /// Under zero3 what is gathered ahead is not moved if it is still there from another pass.
    bool reuses_gathered = false;
    bool unit_copies = false; ///< gathered units are copied into parameters, gradients out of them
    bool flat_reduction = false; ///< gradients are copied into a bucket and an fp32 copy of it
    bool gradients_start_late = false; ///< with one micro-batch, gradients appear as activations go
    bool one_pass_update = false; ///< scaling and clipping are factors inside the optimizer's pass
    bool reduces_whole_after = false; ///< under zero1: all of them, after the backward pass

    friend bool operator==(const StateRules&, const StateRules&) = default;
};

void describe(FieldVisitor& v, TensorRules& x);
void describe(FieldVisitor& v, StateRules& x);

} // namespace shardplan::sim
