#include "simulator/spec/model.hpp"

#include <cstddef>

namespace shardplan::sim {

namespace {

// Bounds of a field in files. They are far beyond any model that will be built, and low enough for
// a mistyped number to be caught where it stands rather than as an overflow of the total.
constexpr double max_width = 268435456.0;      // 2^28 elements of one vector
constexpr double max_heads = 1048576.0;        // 2^20
constexpr double max_experts = 1048576.0;      // 2^20
constexpr double max_vocab = 4294967296.0;     // 2^32 rows
constexpr double max_tokens = 1099511627776.0; // 2^40
constexpr double max_blocks = 1048576.0;       // 2^20
constexpr double max_parameters = 0x1p62;

FieldMeta count(std::string_view key, std::string_view label, std::string_view doc, double hi,
                bool required = false, double lo = 0.0) {
    return FieldMeta{key, label, doc, required, lo, hi};
}

FieldMeta plain(std::string_view key, std::string_view label, std::string_view doc,
                bool required = false) {
    FieldMeta meta;
    meta.key = key;
    meta.label = label;
    meta.doc = doc;
    meta.required = required;
    return meta;
}

} // namespace

const Part* trunk_of(const ModelSpec& model) {
    for (const Part& part : model.parts) {
        if (part.role == PartRole::trunk) {
            return &part;
        }
    }
    return nullptr;
}

std::int64_t block_count(const Part& part) {
    std::int64_t blocks = 0;
    for (const Run& run : part.runs) {
        blocks += run.count;
    }
    return blocks;
}

std::int64_t kind_of_block(const Part& part, std::int64_t i) {
    for (const Run& run : part.runs) {
        if (i < run.count) {
            return run.kind;
        }
        i -= run.count;
    }
    return -1;
}

void describe(FieldVisitor& v, Attention& x) {
    field(v, plain("kind", "attention", "Form of attention; ssm, linear: held and counted only."),
          x.kind);
    field(v, count("heads", "query heads", "Number of query heads.", max_heads), x.heads);
    field(
        v,
        count("kv_heads", "key-value heads",
              "Number of key and value heads: equal to heads (mha), fewer (gqa), 1 (multi-query).",
              max_heads),
        x.kv_heads);
    field(
        v,
        count(
            "qk_head_dim", "query-key head size",
            "Elements of one query or key head; with MLA the plain and the rotated part together.",
            max_width),
        x.qk_head_dim);
    field(v, count("v_head_dim", "value head size", "Elements of one value head.", max_width),
          x.v_head_dim);
    field(
        v,
        count(
            "rope_dim", "rotated elements",
            "Elements of a head that rotary positions turn; with MLA the decoupled part. 0: none.",
            max_width),
        x.rope_dim);
    field(
        v,
        count("q_rank", "query rank",
              "MLA: width of the compressed query; 0: the query is projected directly.", max_width),
        x.q_rank);
    field(v,
          count("kv_rank", "key-value rank", "MLA: width of the compressed keys and values.",
                max_width),
          x.kv_rank);
    field(v,
          count("window", "window", "Tokens of the past a query sees; 0: the whole sequence.",
                max_tokens),
          x.window);
    field(v,
          plain("cross_source", "attends to",
                "Name of the part whose output is attended to; empty: the block's own input."),
          x.cross_source);
    field(v, plain("qkv_bias", "bias on q, k, v", "The input projections have biases."),
          x.qkv_bias);
    field(v, plain("out_bias", "bias on output", "The output projection has a bias."), x.out_bias);
    field(v,
          plain("output_gate", "output gate",
                "The query projection is twice as wide; its second half gates the output."),
          x.output_gate);
    field(v, plain("sinks", "sinks", "One learned logit per head joins the softmax."), x.sinks);
    field(
        v,
        plain(
            "qk_norm", "query-key norm",
            "Normalisation of queries and keys: one scale per head element, or per element of the "
            "whole projection."),
        x.qk_norm);
    field(v,
          count("opaque_parameters", "other parameters",
                "Parameters of forms whose inside is not described (linear, ssm, extra indexers).",
                max_parameters),
          x.opaque_parameters);
}

void describe(FieldVisitor& v, Ffn& x) {
    field(v, plain("kind", "ffn", "Form of the position-wise network."), x.kind);
    field(v, count("width", "inner width", "Dense: elements between its maps.", max_width),
          x.width);
    field(v, plain("gated", "gated", "Three matrices (SwiGLU, GeGLU) instead of two."), x.gated);
    field(v, plain("activation", "activation", "The function between the maps."), x.activation);
    field(v, plain("bias", "biases", "Its maps, or those of each expert, have biases."), x.bias);
    field(v, count("experts", "experts", "MoE: number of routed experts.", max_experts), x.experts);
    field(v, count("top_k", "experts per token", "MoE: experts a token is sent to.", max_experts),
          x.top_k);
    field(v, count("expert_width", "expert width", "MoE: inner width of one expert.", max_width),
          x.expert_width);
    field(v,
          count("shared_width", "shared width",
                "MoE: inner width of all shared experts together; 0: none.", max_width),
          x.shared_width);
    field(v,
          plain("shared_gate", "shared gate",
                "MoE: a learned gate (one vector of the hidden width) on the shared expert."),
          x.shared_gate);
    field(v, plain("router_bias", "router bias", "MoE: the router's map has a bias."),
          x.router_bias);
    field(v,
          plain("router_correction", "router correction",
                "MoE: one score correction per expert that a rule, not the gradient, trains."),
          x.router_correction);
}

void describe(FieldVisitor& v, Norms& x) {
    field(v, plain("kind", "norm", "Kind of normalisation."), x.kind);
    field(v, plain("bias", "norm bias", "Layer norms have a shift."), x.bias);
    field(v, plain("affine", "norm scale", "Norms have a learned scale."), x.affine);
    field(v, plain("pre_attention", "before attention", "A norm before attention."),
          x.pre_attention);
    field(v, plain("post_attention", "after attention", "A norm after attention."),
          x.post_attention);
    field(v, plain("pre_ffn", "before ffn", "A norm before the position-wise network."), x.pre_ffn);
    field(v, plain("post_ffn", "after ffn", "A norm after the position-wise network."), x.post_ffn);
    field(v,
          plain("parallel", "parallel",
                "Attention and the position-wise network read the same residual stream."),
          x.parallel);
}

void describe(FieldVisitor& v, BlockKind& x) {
    field(v, plain("name", "name", "Name of the kind, unique in the model.", true), x.name);
    field(v, plain("attention", "attention", "How tokens of a sequence see one another."),
          x.attention);
    field(v, plain("ffn", "ffn", "The position-wise network."), x.ffn);
    field(v, plain("norms", "norms", "Which normalisations the block has."), x.norms);
}

void describe(FieldVisitor& v, Run& x) {
    field(v, count("kind", "block kind", "Index into block_kinds, from 0.", max_blocks, true),
          x.kind);
    field(v, count("count", "blocks", "How many of it in a row.", max_blocks, false, 1.0), x.count);
}

void describe(FieldVisitor& v, Part& x) {
    field(v, plain("name", "name", "Name of the part, unique in the model.", true), x.name);
    field(v, plain("role", "role", "What the part does; the trunk is the language model."), x.role);
    field(v, plain("trainable", "trained", "False: its parameters are frozen."), x.trainable);
    field(v, count("hidden", "hidden width", "Elements of the residual stream.", max_width),
          x.hidden);
    field(
        v,
        count("tokens_per_sample", "tokens per sample",
              "Positions the part sees per sample; 0: the sequence length of the job.", max_tokens),
        x.tokens_per_sample);
    field(v, plain("runs", "blocks", "The blocks from first to last, as runs of equal ones."),
          x.runs);
    field(v, plain("final_norm", "final norm", "A norm after the last block."), x.final_norm);
    field(v, plain("norm_kind", "final norm kind", "Kind of the final norm."), x.norm_kind);
    field(v, plain("norm_bias", "final norm bias", "The final layer norm has a shift."),
          x.norm_bias);
    field(v, plain("norm_affine", "final norm scale", "The final norm has a learned scale."),
          x.norm_affine);
    field(v,
          count("other_parameters", "other parameters",
                "Parameters outside blocks and final norm: patch embeddings, projections.",
                max_parameters),
          x.other_parameters);
}

void describe(FieldVisitor& v, Embedding& x) {
    field(v, count("vocab", "vocabulary", "Rows of the token table, unpadded.", max_vocab, true),
          x.vocab);
    field(v,
          count("position_rows", "position rows",
                "Rows of a learned position table of the hidden width; 0: no table.", max_tokens),
          x.position_rows);
    field(v, plain("positions", "positions", "How order enters the model."), x.positions);
    field(v, plain("tied", "tied", "The output table is the token table."), x.tied);
    field(v, plain("norm", "embedding norm", "A norm right after the token table."), x.norm);
    field(v, plain("head_bias", "head bias", "The output map has a bias per vocabulary row."),
          x.head_bias);
    field(
        v,
        count("projection_width", "table width",
              "Width of the tables if it is not the hidden width; 0: the hidden width.", max_width),
        x.projection_width);
}

void describe(FieldVisitor& v, ModelSpec& x) {
    FieldMeta probability = count(
        "attention_dropout", "attention dropout",
        "Probability that an attention weight is dropped; above 0 the masks are stored.", 0.999);
    field(v, plain("name", "name", "Name of the model."), x.name);
    field(v, plain("family", "family", "Hugging Face model_type, or custom."), x.family);
    field(v, plain("source", "source", "Publication or page to compare the shape with."), x.source);
    field(v, plain("parts", "parts", "Stacks of blocks; exactly one is the trunk.", true), x.parts);
    field(v,
          plain("block_kinds", "block kinds", "The kinds of blocks the parts are made of.", true),
          x.block_kinds);
    field(v, plain("embedding", "embedding", "Token table, positions and output table.", true),
          x.embedding);
    field(v,
          count("max_positions", "longest sequence",
                "Longest sequence in tokens that the positions allow; 0: unlimited.", max_tokens),
          x.max_positions);
    field(v, probability, x.attention_dropout);
    probability.key = "hidden_dropout";
    probability.label = "hidden dropout";
    probability.doc =
        "Probability that an element of a block's output is dropped; above 0 the masks are stored.";
    field(v, probability, x.hidden_dropout);
    field(v,
          plain("unknown_keys", "unknown keys",
                "Keys of the file the model was read from that were not understood."),
          x.unknown_keys);
}

} // namespace shardplan::sim
