// Rows of the family table: state-space and linear attention layers.
// Class defaults are those of the configuration classes of transformers 4.57, or of the modeling
// code published with the model where transformers has none.

#include "planner/import/hf_rules.hpp"

namespace shardplan::plan::hf {

namespace {

/// Mamba writes the number of its own heads as num_heads, and no attention.
constexpr SizeKeys mamba_keys{.hidden = "hidden_size|d_model",
                              .layers = "num_hidden_layers|n_layer",
                              .positions = "max_position_embeddings"};

constexpr MoeRule granite_hybrid_moe{.experts = "num_local_experts",
                                     .top_k = "num_experts_per_tok",
                                     .top_k_default = 2,
                                     .optional = true};
constexpr MoeRule qwen3_next_moe{.experts = "num_experts",
                                 .experts_default = 512,
                                 .top_k = "num_experts_per_tok",
                                 .top_k_default = 10,
                                 .width = "moe_intermediate_size",
                                 .width_default = 512,
                                 .layers = MoeLayers::sparse_step,
                                 .shared_form = SharedExperts::width_key,
                                 .shared = "shared_expert_intermediate_size",
                                 .shared_default = 512,
                                 .shared_gate = true};
constexpr MoeRule jamba_moe{.experts = "num_experts",
                            .experts_default = 16,
                            .top_k = "num_experts_per_tok",
                            .top_k_default = 2};

constexpr std::array hybrid_rows = {
    Family{.model_types = "nemotron_h",
           .class_name = "NemotronHConfig",
           .sizes = {131072, 4096, 0, 52, 32, 8, 128, 4096},
           .qkv_bias = attention_bias,
           .out_bias = attention_bias,
           .ffn_bias = mlp_bias,
           .tied = untied,
           .gated = false,
           .activation = Activation::squared_relu,
           .positions = Positions::none,
           .has_ffn = false,
           .adjust = read_nemotron_h},
    Family{.model_types = "mamba|falcon_mamba",
           .class_name = "MambaConfig",
           .keys = &mamba_keys,
           .sizes = {50280, 768, 0, 32, 0, mha, 0, 0},
           .tied = tied,
           .positions = Positions::none,
           .has_attention = false,
           .has_ffn = false,
           .adjust = read_mamba},
    Family{.model_types = "mamba2",
           .class_name = "Mamba2Config",
           .keys = &mamba_keys,
           .sizes = {32768, 4096, 0, 64, 0, mha, 0, 0},
           .tied = untied,
           .positions = Positions::none,
           .has_attention = false,
           .has_ffn = false,
           .adjust = read_mamba2},
    Family{.model_types = "granitemoehybrid",
           .class_name = "GraniteMoeHybridConfig",
           .sizes = {32000, 4096, 11008, 32, 32, 0, 0, 2048},
           .qkv_bias = attention_bias,
           .out_bias = attention_bias,
           .tied = untied,
           .moe = &granite_hybrid_moe,
           .adjust = read_granite_hybrid},
    Family{.model_types = "jamba",
           .class_name = "JambaConfig",
           .sizes = {65536, 4096, 14336, 32, 32, 8, 0, 262144},
           .tied = untied,
           .positions = Positions::none,
           .moe = &jamba_moe,
           .adjust = read_jamba},
    Family{.model_types = "qwen3_next",
           .class_name = "Qwen3NextConfig",
           .sizes = {151936, 2048, 5632, 48, 16, 2, 256, 32768},
           .qkv_bias = attention_bias,
           .out_bias = attention_bias,
           .tied = untied,
           .qk_norm = QkNorm::per_head,
           .rotary = 0.25,
           .moe = &qwen3_next_moe,
           .adjust = read_qwen3_next},
};

} // namespace

std::span<const Family> hybrid_families() { return hybrid_rows; }

} // namespace shardplan::plan::hf
