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
    return first_broken(
        where + "/attention",
        {{a.kind != AttentionKind::mha && a.kind != AttentionKind::gqa, "kind",
          "this kind of attention", "use mha or gqa"},
         {a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads != 0, "kv_heads",
          "key heads that do not divide the query heads", "let kv_heads divide heads"},
         {a.qk_head_dim < 1 || a.qk_head_dim != a.v_head_dim, "v_head_dim",
          "values of another width than queries", "let v_head_dim equal qk_head_dim"},
         {a.rope_dim < 0 || a.rope_dim > a.qk_head_dim || a.rope_dim % 2 != 0, "rope_dim",
          "this number of rotated elements", "use an even number up to qk_head_dim"},
         {a.window > 0, "window", "attention windows", "set window to 0"},
         {!a.cross_source.empty(), "cross_source", "cross attention", "leave cross_source empty"},
         {a.output_gate, "output_gate", "gated attention outputs", "set output_gate to false"},
         {a.sinks, "sinks", "attention sinks", "set sinks to false"},
         {a.qk_norm != sim::QkNorm::none, "qk_norm", "norms of queries and keys",
          "set qk_norm to none"}});
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
         {routes && f.bias, "bias", "experts with biases", "set bias to false"},
         {routes && f.shared_width > 0, "shared_width", "shared experts", "set shared_width to 0"},
         {routes && f.router_bias, "router_bias", "routers with a bias",
          "set router_bias to false"},
         {routes && f.router_correction, "router_correction", "score corrections",
          "set router_correction to false"}});
}

sim::Status check_norms(const sim::Norms& n, const std::string& where) {
    return first_broken(
        where + "/norms",
        {{!n.pre_attention, "pre_attention", "blocks without a norm before attention",
          "set pre_attention to true"},
         {!n.pre_ffn, "pre_ffn", "blocks without a norm before the network", "set pre_ffn to true"},
         {n.post_attention, "post_attention", "norms after attention",
          "set post_attention to false"},
         {n.post_ffn, "post_ffn", "norms after the network", "set post_ffn to false"},
         {n.parallel, "parallel", "blocks whose halves run side by side",
          "set parallel to false"}});
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
         {e.positions == Positions::alibi, "embedding/positions", "linear position biases",
          "use rope, learned or none"},
         {e.positions == Positions::learned && e.position_rows < 1, "embedding/position_rows",
          "learned positions without rows", "give the number of rows"},
         {e.norm, "embedding/norm", "a norm after the token table", "set norm to false"},
         {e.head_bias, "embedding/head_bias", "a bias of the output table",
          "set head_bias to false"},
         {e.projection_width > 0 && e.projection_width != trunk.hidden,
          "embedding/projection_width", "tables of another width than the blocks",
          "set projection_width to 0"},
         {m.attention_dropout > 0.0, "attention_dropout", "with dropout",
          "set attention_dropout to 0"},
         {m.hidden_dropout > 0.0, "hidden_dropout", "with dropout", "set hidden_dropout to 0"}});
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
        if (auto status = check_norms(kind.norms, where); !status) return status;
    }
    return sim::Done{};
}

} // namespace shardplan::exec
