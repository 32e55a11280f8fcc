#include "simulator/spec/compute_profile.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, AttentionRate& x) {
    field(v,
          {"widest", "widest", "Elements of a head that a kernel works on without loss.", false,
           1.0, 4096},
          x.widest);
    field(v,
          {"forward_efficiency", "forward efficiency",
           "Matrix work of the forward pass over the dense 16-bit peak."},
          x.forward_efficiency);
    field(v,
          {"backward_efficiency", "backward efficiency",
           "Matrix work of the backward pass over the dense 16-bit peak."},
          x.backward_efficiency);
    field(v,
          {"exponential", "exponential",
           "Flops of matrix work that take as long as one exponential."},
          x.exponential);
    field(v, {"edge", "edge", "Keys that a block of queries works on beyond those it needs."},
          x.edge);
    field(v,
          {"wide_forward", "wide heads, forward",
           "Of the forward efficiency, for heads wider than the widest without loss."},
          x.wide_forward);
    field(v,
          {"wide_backward", "wide heads, backward",
           "Of the backward efficiency, for heads wider than the widest without loss."},
          x.wide_backward);
}

void describe(FieldVisitor& v, OperatorRates& x) {
    field(v, {"norm_forward", "norms, forward", "Bytes/s of norms."}, x.norm_forward);
    field(v, {"norm_backward", "norms, backward", "Bytes/s of their gradients."}, x.norm_backward);
    field(v, {"activation_forward", "activations, forward", "Bytes/s of GELU."},
          x.activation_forward);
    field(v, {"activation_backward", "activations, backward", "Bytes/s of its gradient."},
          x.activation_backward);
    field(v, {"gate_forward", "gated activations, forward", "Bytes/s of SiLU and product."},
          x.gate_forward);
    field(v, {"gate_backward", "gated activations, backward", "Bytes/s of their gradients."},
          x.gate_backward);
    field(v, {"rope", "rotary positions", "Bytes/s of the rotation."}, x.rope);
    field(v, {"loss", "loss", "Bytes/s of the softmax over logits and its gradient."}, x.loss);
    field(v, {"sums", "sums", "Bytes/s of biases, residuals and tables of tokens."}, x.sums);
    field(v,
          {"update", "update", "Bytes/s of zeroing and summing up gradients and of the optimizer."},
          x.update);
}

void describe(FieldVisitor& v, ComputeProfile& x) {
    field(v, {"name", "name", "Architecture, as in \"arch\" of a device."}, x.name);
    field(v, {"note", "note", "What the figures stand on."}, x.note);
    field(v,
          {"tile_m", "tile rows", "Rows of the output that one compute unit works on at a time.",
           false, 1.0, 4096},
          x.tile_m);
    field(v,
          {"tile_n", "tile columns",
           "Columns of the output that one compute unit works on at a time.", false, 1.0, 4096},
          x.tile_n);
    field(v,
          {"matrix_efficiency", "matrix efficiency",
           "Large products in 16 bits and more over the dense peak, at the sustained clock."},
          x.matrix_efficiency);
    field(v,
          {"narrow_matrix_efficiency", "narrow matrix efficiency",
           "Large products in 8 bits and less over the dense peak, at the sustained clock."},
          x.narrow_matrix_efficiency);
    field(v,
          {"matrix_ramp", "matrix ramp",
           "Elements of the inner dimension a tile takes as long as before its first product."},
          x.matrix_ramp);
    field(v, {"kernel_time", "kernel time", "Time one kernel takes beside its work."},
          x.kernel_time);
    field(v,
          {"memory_efficiency", "memory efficiency",
           "Bandwidth of large element-wise kernels over the sheet bandwidth."},
          x.memory_efficiency);
    field(v,
          {"gather_efficiency", "gather efficiency",
           "Bandwidth of kernels that sort rows, as tokens to experts, over the sheet bandwidth."},
          x.gather_efficiency);
    field(v,
          {"attention_clock", "attention clock",
           "Clock under lasting load over that of the product the attention rates were measured "
           "on."},
          x.attention_clock);
    field(v,
          {"attention_tail", "attention tail",
           "Time in which compute units run dry at the end of an attention kernel, as a share of "
           "its longest block of queries."},
          x.attention_tail);
    field(v, {"flash_1", "FlashAttention 1", "What FlashAttention 1 reaches."}, x.flash_1);
    field(v, {"flash_2", "FlashAttention 2", "What FlashAttention 2 reaches."}, x.flash_2);
    field(v, {"flash_3", "FlashAttention 3", "What FlashAttention 3 reaches."}, x.flash_3);
    field(v, {"cudnn", "cuDNN", "What the attention of the vendor's library reaches."}, x.cudnn);
    field(
        v,
        {"operators", "operators", "Bytes/s of memory-bound operators; none: memory bounds them."},
        x.operators);
}

} // namespace shardplan::sim
