#include "executor/model/check.hpp"

#include <string>
#include <utility>

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;

/// One thing that is refused.
struct Rule {
    bool broken = false;
    const char* field = "";
    const char* what = "";
    const char* hint = "";
};

sim::Status first_broken(const std::string& where, std::initializer_list<Rule> rules) {
    for (const Rule& r : rules) {
        if (r.broken) {
            return Error{ErrorCode::unsupported, where + "/" + r.field,
                         std::string("the executor does not train ") + r.what, r.hint};
        }
    }
    return sim::Done{};
}

sim::Status check_attention(const sim::Attention& a, const std::string& where) {
    using sim::AttentionKind;
    const bool latent = a.kind == AttentionKind::mla;
    return first_broken(
        where + "/attention",
        {{a.kind != AttentionKind::mha && a.kind != AttentionKind::gqa && !latent, "kind",
          "this kind of attention", "use mha, gqa or mla"},
         {a.heads < 1 || (!latent && (a.kv_heads < 1 || a.heads % a.kv_heads != 0)), "kv_heads",
          "key heads that do not divide the query heads", "let kv_heads divide heads"},
         {a.qk_head_dim < 1, "qk_head_dim", "heads without elements", "give at least 1"},
         {a.v_head_dim < 1, "v_head_dim", "values without elements", "give at least 1"},
         {a.rope_dim < 0 || a.rope_dim > a.qk_head_dim || a.rope_dim % 2 != 0, "rope_dim",
          "this number of rotated elements", "use an even number up to qk_head_dim"},
         {latent && a.kv_rank < 1, "kv_rank", "compressed keys without width",
          "give a width of at least 1"},
         {a.window < 0, "window", "windows of less than a token", "use 0 for the whole sequence"},
         {!a.cross_source.empty(), "cross_source", "cross attention", "leave cross_source empty"},
         {a.output_gate, "output_gate", "gated attention outputs", "set output_gate to false"},
         {latent && a.qk_norm != sim::QkNorm::none, "qk_norm",
          "norms of heads beside those of compressed vectors", "set qk_norm to none"}});
}

sim::Status check_ffn(const sim::Ffn& f, const std::string& where) {
    const bool routes = f.kind == sim::FfnKind::moe;
    return first_broken(
        where + "/ffn",
        {{f.kind != sim::FfnKind::dense && !routes, "kind", "this kind of network",
          "use dense or moe"},
         {!routes && f.width < 1, "width", "networks without width", "give a width of at least 1"},
         {routes && f.expert_width < 1, "expert_width", "experts without width",
          "give a width of at least 1"},
         {routes && (f.top_k < 1 || f.top_k > f.experts), "top_k", "this number of choices",
          "use 1 up to the number of experts"},
         {routes && f.router_correction, "router_correction", "score corrections",
          "set router_correction to false"}});
}

/// Of halves that lie side by side.
sim::Status check_parallel(const sim::ModelSpec& m, const sim::BlockKind& kind,
                           const std::string& where) {
    const sim::Norms& n = kind.norms;
    if (!n.parallel) return sim::Done{};
    return first_broken(
        where + "/norms",
        {{kind.ffn.kind != sim::FfnKind::dense, "parallel", "experts beside attention",
          "use a dense network, or set parallel to false"},
         {n.post_attention || n.post_ffn, "parallel", "norms behind halves that lie side by side",
          "set post_attention and post_ffn to false"},
         {m.hidden_dropout > 0.0, "parallel", "values dropped behind halves that lie side by side",
          "set hidden_dropout to 0"},
         {!n.pre_ffn && kind.attention.kind == sim::AttentionKind::mla, "parallel",
          "compressed keys from what the network reads too", "set pre_ffn to true"}});
}

sim::Status check_ends(const sim::ModelSpec& m) {
    const sim::Embedding& e = m.embedding;
    const sim::Part& trunk = *sim::trunk_of(m);
    using sim::Positions;
    return first_broken(
        "",
        {{m.parts.size() > 1, "parts", "parts beside the trunk", "keep the trunk alone"},
         {!trunk.trainable, "parts/0/trainable", "a frozen trunk", "set trainable to true"},
         {trunk.other_parameters > 0, "parts/0/other_parameters",
          "parameters it has no description of", "set other_parameters to 0"},
         {trunk.hidden < 1, "parts/0/hidden", "a model without width",
          "give a width of at least 1"},
         {e.vocab < 1, "embedding/vocab", "a model without tokens", "give the number of tokens"},
         {e.positions == Positions::learned && e.position_rows < 1, "embedding/position_rows",
          "learned positions without rows", "give the number of rows"},
         {e.projection_width > 0 && e.projection_width != trunk.hidden,
          "embedding/projection_width", "tables of another width than the blocks",
          "set projection_width to 0"},
         {m.attention_dropout < 0.0 || m.attention_dropout >= 1.0, "attention_dropout",
          "with this share of values dropped", "use a probability below 1"},
         {m.hidden_dropout < 0.0 || m.hidden_dropout >= 1.0, "hidden_dropout",
          "with this share of values dropped", "use a probability below 1"}});
}

} // namespace

sim::Status check_model(const sim::ModelSpec& model) {
    if (sim::trunk_of(model) == nullptr) {
        return Error{ErrorCode::unsupported, "/parts", "the model has no trunk",
                     "add a part with role trunk"};
    }
    if (auto ends = check_ends(model); !ends) return ends;
    for (std::size_t i = 0; i < model.block_kinds.size(); ++i) {
        const sim::BlockKind& kind = model.block_kinds[i];
        const std::string where = "/block_kinds/" + std::to_string(i);
        if (auto status = check_attention(kind.attention, where); !status) return status;
        if (auto status = check_ffn(kind.ffn, where); !status) return status;
        if (auto status = check_parallel(model, kind, where); !status) return status;
    }
    return sim::Done{};
}

} // namespace shardplan::exec
