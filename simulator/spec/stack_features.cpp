#include "simulator/spec/stack_features.hpp"

namespace shardplan::sim {

void apply_rules_of(Feature feature, StackProfile& stack) {
    TensorRules& tensors = stack.tensors;
    switch (feature) {
    case Feature::compile:
        // the compiler fuses element-wise neighbours and recomputes what is cheap
        tensors.norm = NormImpl::fused;
        tensors.rope = RopeImpl::fused;
        tensors.fused_glu = true;
        tensors.fused_elementwise = true;
        if (tensors.compiles_loss) {
            tensors.loss = LossImpl::fused;
        }
        return;
    case Feature::fused_rmsnorm: tensors.norm = NormImpl::fused; return;
    case Feature::fused_ce: tensors.loss = LossImpl::fused; return;
    case Feature::chunked_ce: tensors.loss = LossImpl::chunked; return;
    case Feature::no_gradient_accumulation_fusion: tensors.fused_weight_gradient = false; return;
    case Feature::local_impl:
        // Megatron's own layers instead of Transformer Engine's
        tensors.weight_gradient_placeholder = false;
        tensors.keeps_cast_input = false;
        tensors.gather_buffer = GatherBuffer::everywhere;
        tensors.score_buffer = true;
        tensors.packed_qkv = true;
        return;
    case Feature::fsdp_pure_bf16:
        stack.memory.sharded_fp32_parameters = false;
        stack.memory.pure_16bit = true;
        return;
    case Feature::jax_xla:
        tensors.fused_elementwise = true;
        tensors.fused_glu = true;
        return;
    default: return;
    }
}

} // namespace shardplan::sim
