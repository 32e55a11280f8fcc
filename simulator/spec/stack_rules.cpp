#include "simulator/spec/stack_rules.hpp"

namespace shardplan::sim {

namespace {

/// How many of something there are.
void describe_counts(FieldVisitor& v, TensorRules& x) {
    field(v,
          {"loss_rows", "rows of logits", "of a fused loss that exist at a time; 0: all", false, 0},
          x.loss_rows);
    field(v,
          {"logits_kept", "16-bit logits kept", "copies alive through the loss backward", false, 0,
           4},
          x.logits_kept);
    field(
        v,
        {"output_buffers", "logits kept by the pipeline", "of earlier micro-batches", false, 0, 4},
        x.output_buffers);
    field(v,
          {"message_buffers", "message buffers", "boundary tensors a pipeline stage holds", false,
           0, 16},
          x.message_buffers);
    field(v,
          {"posts_receives", "receives posted ahead",
           "message buffers are of messages to come, and no more than the step still has"},
          x.posts_receives);
    field(v,
          {"message_headers", "message headers",
           "messages with shape and format sent ahead of each boundary tensor", false, 0, 16},
          x.message_headers);
}

} // namespace

void describe(FieldVisitor& v, TensorRules& x) {
    field(v, {"norm", "normalisation", "fused, upcast or native"}, x.norm);
    field(v, {"rope", "rotary positions", "fused, eager or with_tables"}, x.rope);
    field(v, {"loss", "loss", "eager, vocab_parallel, fused or chunked"}, x.loss);
    field(v, {"selective", "selective recomputation", "what it keeps"}, x.selective);
    field(v, {"buffers", "buffers of passes", "as autograd makes them, or written out by hand"},
          x.buffers);
    field(v, {"compiles_loss", "compiled loss", "the feature compile fuses the loss too"},
          x.compiles_loss);
    field(v,
          {"one_kernel_softmax", "one-kernel softmax",
           "unfused attention still scales, masks and normalises in one kernel"},
          x.one_kernel_softmax);
    field(v,
          {"fused_elementwise", "fused element-wise work",
           "bias, activation, dropout and add run as one kernel"},
          x.fused_elementwise);
    field(v, {"fused_glu", "fused gated product", "keeps only its two inputs"}, x.fused_glu);
    field(v, {"packed_qkv", "packed qkv", "q, k and v are views of one projection"}, x.packed_qkv);
    field(v, {"attention_copy", "attention output copied", "a copy for the projection"},
          x.attention_copy);
    field(v, {"sequence_first", "sequence first", "tensors are [sequence, batch, ...]"},
          x.sequence_first);
    field(v,
          {"keeps_cast_input", "8-bit inputs kept", "by 8-bit products, for the weight gradient"},
          x.keeps_cast_input);
    field(v, {"repeat_kv", "K and V expanded", "to all query heads before attention"}, x.repeat_kv);
    field(v, {"keeps_gathered_input", "gathered input kept", "under sequence parallelism"},
          x.keeps_gathered_input);
    field(v, {"vocab_parallel_loss", "loss on split logits", "false: gathered over tp first"},
          x.vocab_parallel_loss);
    field(v,
          {"fused_weight_gradient", "weight gradients accumulated in the product",
           "false: a 16-bit gradient exists first"},
          x.fused_weight_gradient);
    field(v,
          {"weight_gradient_placeholder", "placeholder gradients", "one per distinct weight shape"},
          x.weight_gradient_placeholder);
    field(v, {"gather_buffer", "global gather buffer", "none, head or everywhere, under sp"},
          x.gather_buffer);
    field(v, {"score_buffer", "global score buffer", "one, where attention is not fused"},
          x.score_buffer);
    field(v,
          {"partitioned_checkpoints", "checkpoints cut over tp",
           "kept inputs of recomputed blocks, under zero3"},
          x.partitioned_checkpoints);
    field(v, {"complex_rope", "complex rotary positions", "eager even where the rest is compiled"},
          x.complex_rope);
    field(v,
          {"residual_begins_product", "residual inside the product",
           "sums of a product begin with residual and bias, which are copied there before"},
          x.residual_begins_product);
    field(v,
          {"table_rows_added", "rows added to the table",
           "gradients of tables of tokens are added row by row, not as a table"},
          x.table_rows_added);
    field(v,
          {"recompute_without_output", "recomputation without the output",
           "full recomputation ends before the last map of a block"},
          x.recompute_without_output);
    field(v, {"scattered_messages", "messages cut over tp", "boundary tensors between stages"},
          x.scattered_messages);
    describe_counts(v, x);
}

void describe(FieldVisitor& v, StateRules& x) {
    field(v,
          {"whole_pieces", "pieces of whole elements",
           "parameters are split into equal pieces, the last filled up; unit by unit under zero3"},
          x.whole_pieces);
    field(v,
          {"reuses_gathered", "gathered units used again",
           "units gathered ahead are not moved if they are there from another pass"},
          x.reuses_gathered);
    field(v, {"bucket_copy", "bucket copies", "data-parallel buckets beside the gradients"},
          x.bucket_copy);
    field(v, {"fp32_gradient_on_step", "fp32 gradient on step", "a copy of the gradient shard"},
          x.fp32_gradient_on_step);
    field(v,
          {"fp16_gradients_stay", "fp16 gradients stay",
           "in fp16 training gradients stay 16 bits wide until the step"},
          x.fp16_gradients_stay);
    field(v, {"foreach_temporary", "foreach temporary", "one temporary copy of the shard"},
          x.foreach_temporary);
    field(v,
          {"unit_copies", "copies of gathered units",
           "parameters are copied out of gathered units, and gradients into them (FSDP2)"},
          x.unit_copies);
    field(v,
          {"flat_reduction", "flat reduction",
           "gradients are copied into a bucket and an fp32 copy of it after the backward pass"},
          x.flat_reduction);
    field(v,
          {"gradients_start_late", "gradients start late",
           "with one micro-batch they appear as activations go"},
          x.gradients_start_late);
    field(v,
          {"one_pass_update", "update in one pass",
           "scaling and clipping are factors inside the optimizer's pass"},
          x.one_pass_update);
    field(v,
          {"reduces_whole_after", "whole reduction after the backward pass",
           "under zero1 every rank gets the sum of all gradients, in one piece, and nothing hides"},
          x.reduces_whole_after);
}

} // namespace shardplan::sim
