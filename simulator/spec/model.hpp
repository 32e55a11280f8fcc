#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

enum class AttentionKind { mha, gqa, mla, linear, ssm, none };
template <>
struct EnumNames<AttentionKind> {
    static constexpr std::array<std::string_view, 6> names = {"mha",    "gqa", "mla",
                                                              "linear", "ssm", "none"};
};

/// Normalisation of queries and keys before the product.
enum class QkNorm { none, per_head, full_projection };
template <>
struct EnumNames<QkNorm> {
    static constexpr std::array<std::string_view, 3> names = {"none", "per_head",
                                                              "full_projection"};
};

/// How tokens of one sequence see one another; dimensions are elements, per head where so named.
struct Attention {
    AttentionKind kind = AttentionKind::mha;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;    ///< = heads for mha; 1 for multi-query
    std::int64_t qk_head_dim = 0; ///< elements of one query or key head (nope + rope for MLA)
    std::int64_t v_head_dim = 0;
    std::int64_t rope_dim = 0; ///< rotated elements of a head; MLA: the decoupled rope part
    std::int64_t q_rank = 0;   ///< MLA: width of the compressed query, 0 = plain projection
    std::int64_t kv_rank = 0;  ///< MLA: width of the compressed keys and values
    std::int64_t window = 0;   ///< tokens a query sees; 0 = the whole sequence
    std::string cross_source;  ///< part whose output is attended to; empty = self attention
    bool qkv_bias = false;
    bool out_bias = false;
    bool output_gate = false; ///< the query projection is doubled to gate the output (Qwen3-Next)
    bool sinks = false;       ///< one learned logit per head
    QkNorm qk_norm = QkNorm::none;
    /// Parameters of kinds whose inside is not described here (linear, ssm); they count, but cannot
    /// be planned yet.
    std::int64_t opaque_parameters = 0;

    friend bool operator==(const Attention&, const Attention&) = default;
};

/// `linear`: one hidden x hidden map in place of the network, as architecture search leaves it
/// (block_configs of nemotron-nas).
enum class FfnKind { dense, moe, none, linear };
template <>
struct EnumNames<FfnKind> {
    static constexpr std::array<std::string_view, 4> names = {"dense", "moe", "none", "linear"};
};

enum class Activation { gelu, relu, squared_relu, silu };
template <>
struct EnumNames<Activation> {
    static constexpr std::array<std::string_view, 4> names = {"gelu", "relu", "squared_relu",
                                                              "silu"};
};

/// The position-wise network; widths are elements.
struct Ffn {
    FfnKind kind = FfnKind::dense;
    std::int64_t width = 0; ///< dense: inner width
    bool gated = false;     ///< three matrices (SwiGLU, GeGLU) instead of two
    Activation activation = Activation::gelu;
    bool bias = false;
    std::int64_t experts = 0;       ///< moe: routed experts
    std::int64_t top_k = 0;         ///< experts a token is sent to
    std::int64_t expert_width = 0;  ///< inner width of one routed expert
    std::int64_t shared_width = 0;  ///< total inner width of the shared experts
    bool shared_gate = false;       ///< hidden x 1 gate on the shared expert
    bool router_bias = false;       ///< a bias of the router's linear map
    bool router_correction = false; ///< a trained-by-rule score correction per expert (DeepSeek-V3)

    friend bool operator==(const Ffn&, const Ffn&) = default;
};

enum class NormKind { layernorm, rmsnorm };
template <>
struct EnumNames<NormKind> {
    static constexpr std::array<std::string_view, 2> names = {"layernorm", "rmsnorm"};
};

/// Which normalisations of the hidden vector a block has.
struct Norms {
    NormKind kind = NormKind::rmsnorm;
    bool bias = false;  ///< layernorm with beta
    bool affine = true; ///< with a learned scale; false: normalisation without parameters (OLMo 1)
    bool pre_attention = true;
    bool post_attention = false;
    bool pre_ffn = true;
    bool post_ffn = false;
    bool parallel = false; ///< attention and ffn read the same residual (GPT-J form)

    friend bool operator==(const Norms&, const Norms&) = default;
};

/// One kind of transformer block.
struct BlockKind {
    std::string name; ///< "dense", "moe", "sliding", ... unique in the model
    Attention attention;
    Ffn ffn;
    Norms norms;

    friend bool operator==(const BlockKind&, const BlockKind&) = default;
};

/// `count` consecutive blocks of `block_kinds[kind]`.
struct Run {
    std::int64_t kind = 0;
    std::int64_t count = 1;

    friend bool operator==(const Run&, const Run&) = default;
};

enum class PartRole { trunk, encoder, decoder, vision, projector, mtp };
template <>
struct EnumNames<PartRole> {
    static constexpr std::array<std::string_view, 6> names = {"trunk",  "encoder",   "decoder",
                                                              "vision", "projector", "mtp"};
};

/// A stack of blocks with one hidden width. The trunk is the language model between embedding and
/// head. Parts other than the trunk are held and counted, and refused by the planner by name.
struct Part {
    std::string name;
    PartRole role = PartRole::trunk;
    bool trainable = true;
    std::int64_t hidden = 0;            ///< elements of the residual stream
    std::int64_t tokens_per_sample = 0; ///< 0 = the job's sequence length
    std::vector<Run> runs;
    bool final_norm = true;
    NormKind norm_kind = NormKind::rmsnorm;
    bool norm_bias = false;
    bool norm_affine = true;
    /// Parameters of the part outside its blocks and final norm: patch embeddings, projections.
    std::int64_t other_parameters = 0;

    friend bool operator==(const Part&, const Part&) = default;
};

enum class Positions { rope, learned, alibi, none };
template <>
struct EnumNames<Positions> {
    static constexpr std::array<std::string_view, 4> names = {"rope", "learned", "alibi", "none"};
};

/// Token table, positions and output table.
struct Embedding {
    std::int64_t vocab = 0;         ///< rows, unpadded
    std::int64_t position_rows = 0; ///< learned positions; 0 = none
    Positions positions = Positions::rope;
    bool tied = false; ///< the output table is the token table
    bool norm = false; ///< a norm right after the table (BLOOM)
    bool head_bias = false;
    std::int64_t projection_width =
        0; ///< width of the tables if not `hidden` (OPT-350M); 0 = hidden

    friend bool operator==(const Embedding&, const Embedding&) = default;
};

/// A model as a planner needs it: what is inside each block, and how many of which.
struct ModelSpec {
    std::string name;
    std::string family;      ///< Hugging Face model_type, or "custom"
    std::string source;      ///< where to look up the shape
    std::vector<Part> parts; ///< the first with role trunk is the language model
    std::vector<BlockKind> block_kinds;
    Embedding embedding;
    std::int64_t max_positions = 0; ///< longest sequence the positions allow; 0 = unlimited
    double attention_dropout = 0.0; ///< probability; decides whether masks are kept
    double hidden_dropout = 0.0;
    std::vector<std::string> unknown_keys; ///< keys of the source file that were not understood

    friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// The language model part; nullptr if the model has none.
const Part* trunk_of(const ModelSpec& model);
/// Number of blocks of a part.
std::int64_t block_count(const Part& part);
/// Index into `block_kinds` of block `i` (0-based) of a part.
std::int64_t kind_of_block(const Part& part, std::int64_t i);

void describe(FieldVisitor& v, Attention& x);
void describe(FieldVisitor& v, Ffn& x);
void describe(FieldVisitor& v, Norms& x);
void describe(FieldVisitor& v, BlockKind& x);
void describe(FieldVisitor& v, Run& x);
void describe(FieldVisitor& v, Part& x);
void describe(FieldVisitor& v, Embedding& x);
void describe(FieldVisitor& v, ModelSpec& x);

} // namespace shardplan::sim
