#pragma once

#include "simulator/compute/op_builder.hpp"

/// Private to the op_memory files: what blocks, embedding and head keep alike.
namespace shardplan::sim {

inline double as_double(std::int64_t n) { return static_cast<double>(n); }

/// Bytes of a weight gradient of `elements` that exists before it is added to the accumulated one.
double weight_gradient(const OpContext& c, const Op& op, double elements);
/// Bytes of one element of a product's input kept for the weight gradient: Transformer Engine keeps
/// the 8-bit copy it multiplied with.
double kept_input_element(const OpContext& c);
/// Adds a stored tensor; nothing where `bytes` is 0.
void keep(Op& op, std::string_view name, double bytes, Keep how = Keep::until_backward,
          TensorKind kind = TensorKind::activations);
/// The same of the input of a product, which gradients of weights need again.
void keep_input(Op& op, std::string_view name, double bytes, Keep how = Keep::until_backward);
/// Input, statistics and output of a norm over `width` elements of `rows` tokens; eager forms of
/// the root-mean-square norm keep more. `feeds_linear`: the output is the input of a product.
void set_norm(const OpContext& c, Op& op, double width, double rows, bool rms, bool feeds_linear,
              double in_width);
/// Whole product on the rank's own tokens.
void set_replicated(const OpContext& c, Op& op, double in, double out);
/// Sum with the residual stream, and the mask of its dropout.
void set_residual(const OpContext& c, Op& op);
/// Forgets what operators keep.
void clear_memory(OpList& ops);

/// What PassBuffers::written adds up to, as executor/model has it; in place of set_block_memory and
/// set_end_memory.
void set_written_block_memory(const OpContext& c, const BlockKind& kind, OpList& ops);
void set_written_end_memory(const OpContext& c, OpList& ops);

} // namespace shardplan::sim
