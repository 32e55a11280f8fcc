#include "simulator/spec/stack_features.hpp"

namespace shardplan::sim {

std::string_view doc_of(Feature feature) {
    switch (feature) {
        case Feature::compile:
            return "torch.compile fuses element-wise work";
        case Feature::async_tp:
            return "tensor-parallel traffic in pieces beside products";
        case Feature::te:
            return "Transformer Engine layers";
        case Feature::te_fp8:
            return "fp8 products through Transformer Engine";
        case Feature::float8_tensorwise:
            return "fp8 products, one scale per tensor";
        case Feature::float8_rowwise:
            return "fp8 products, one scale per row";
        case Feature::mxfp8:
            return "fp8 products, scales per block of 32 (needs Blackwell)";
        case Feature::nvfp4:
            return "fp4 products, scales per block of 16 (needs Blackwell)";
        case Feature::flash_attn_1:
            return "FlashAttention 1";
        case Feature::flash_attn_2:
            return "FlashAttention 2";
        case Feature::flash_attn_3:
            return "FlashAttention 3";
        case Feature::cudnn_attn:
            return "cuDNN's fused attention";
        case Feature::unfused_attn:
            return "attention scores written to memory";
        case Feature::fused_softmax:
            return "unfused attention with one softmax kernel";
        case Feature::fused_rmsnorm:
            return "root-mean-square norm as one kernel";
        case Feature::fused_ce:
            return "cross entropy that overwrites the logits";
        case Feature::chunked_ce:
            return "cross entropy over a few rows at a time";
        case Feature::low_precision_layernorm:
            return "norms in the compute format";
        case Feature::grouped_gemm:
            return "experts as one grouped product";
        case Feature::deepep:
            return "DeepEP token exchange";
        case Feature::cuda_graphs:
            return "kernels launched as a graph";
        case Feature::dp_overlap:
            return "gradient reduction beside the backward pass";
        case Feature::tp_comm_overlap:
            return "user-buffer overlap of tensor-parallel traffic";
        case Feature::pp_overlap:
            return "stage messages beside computation";
        case Feature::no_overlap:
            return "no communication beside computation";
        case Feature::fsdp_pure_bf16:
            return "weights, gradients and states all in bf16";
        case Feature::megatron_fsdp:
            return "Megatron's own FSDP";
        case Feature::megatron_like:
            return "kernels of Megatron in other code";
        case Feature::local_impl:
            return "Megatron's own layers instead of Transformer Engine";
        case Feature::jax_xla:
            return "compiled by XLA";
        case Feature::no_gradient_accumulation_fusion:
            return "weight gradients exist before they are added";
        case Feature::optimizer_in_backward:
            return "parameters updated as gradients arrive";
        case Feature::adamw_8bit:
            return "moments in 8 bits";
    }
    return "";
}

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
        case Feature::fused_rmsnorm:
            tensors.norm = NormImpl::fused;
            return;
        case Feature::fused_ce:
            tensors.loss = LossImpl::fused;
            return;
        case Feature::chunked_ce:
            tensors.loss = LossImpl::chunked;
            return;
        case Feature::no_gradient_accumulation_fusion:
            tensors.fused_weight_gradient = false;
            return;
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
        default:
            return;
    }
}

} // namespace shardplan::sim
