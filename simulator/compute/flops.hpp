#pragma once

#include <cstdint>

#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Model flops of one optimizer step over the whole cluster, the numerator of MFU: per token
/// 6 N + 12 L a d s, with N the parameters a token's products read (blocks with its routed experts
/// only, and the output table; no lookups, biases or norms), L blocks, a d the width of the query
/// heads, attention counted whole (not halved for causality) and within the window where there is
/// one. With adapters the base weights are frozen and have no gradient: 4 N instead of 6 N.
/// Source: Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), appendix B.
Flops model_flops_per_step(const ModelSpec& model, const Resolved& resolved);

/// Of these, the forward pass of the blocks alone, a third of their share: what full recomputation
/// runs again.
Flops block_forward_flops_per_step(const ModelSpec& model, const Resolved& resolved);

/// Of these, what selective recomputation runs again under the stack's policy.
Flops selective_forward_flops_per_step(const ModelSpec& model, const Resolved& resolved,
                                       const StackProfile& stack);

} // namespace shardplan::sim
