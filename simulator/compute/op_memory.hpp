#pragma once

#include "simulator/compute/op_builder.hpp"

/// Private to the op_list files: which tensors operators keep from forward to backward, and what
/// lives only while they run. Set once per list, after its operators are known, because what one
/// operator keeps depends on what its neighbours make.
namespace shardplan::sim {

/// Fills `stored`, `transient_forward` and `transient_backward` of a block's operators.
/// Sources: Korthikanti et al. 2022 (arXiv 2205.05198) for the unfused GPT block; what autograd
/// saves in Transformer Engine, Megatron-LM, torch.nn.functional and FlashAttention, as switched by
/// the stack's TensorRules.
void set_block_memory(const OpContext& c, const BlockKind& kind, OpList& ops);
/// The same for the operators of the embedding and of the head.
void set_end_memory(const OpContext& c, OpList& ops);

} // namespace shardplan::sim
