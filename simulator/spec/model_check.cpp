#include "simulator/spec/model_check.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {

namespace {

constexpr std::int64_t largest_total = std::int64_t{1} << 62;
constexpr std::int64_t largest_size = std::int64_t{1} << 40;
constexpr std::int64_t largest_blocks = std::int64_t{1} << 20;

/// Collects the first thing that is wrong.
class Checker {
public:
    explicit Checker(std::string_view where) : where_(where) {}

    void fail(const std::string& path, std::string what, std::string hint) {
        if (!error_) {
            error_ =
                Error{ErrorCode::bad_input, where_ + ": " + path, std::move(what), std::move(hint)};
        }
    }
    void positive(const std::string& path, std::int64_t value) {
        if (value < 1) {
            fail(path, "is " + std::to_string(value) + ", but this kind needs it",
                 "a whole number of at least 1");
        }
        at_most(path, value, largest_size);
    }
    void not_negative(const std::string& path, std::int64_t value) {
        if (value < 0) {
            fail(path, "is negative (" + std::to_string(value) + ")", "0 or more");
        }
        at_most(path, value, largest_size);
    }
    void at_most(const std::string& path, std::int64_t value, std::int64_t hi) {
        if (value > hi) {
            fail(path, std::to_string(value) + " is beyond any model",
                 "at most " + std::to_string(hi));
        }
    }
    void probability(const std::string& path, double value) {
        if (!(value >= 0.0 && value < 1.0)) {
            fail(path, "is not a probability below 1", "0 for no dropout");
        }
    }
    [[nodiscard]] Status result() const {
        if (error_) {
            return *error_;
        }
        return Done{};
    }
    [[nodiscard]] bool ok() const { return !error_; }

private:
    std::string where_;
    std::optional<Error> error_;
};

void check_attention(Checker& check, const std::string& path, const Attention& a) {
    const auto non_negative = {std::pair{"heads", a.heads},    {"kv_heads", a.kv_heads},
                               {"qk_head_dim", a.qk_head_dim}, {"v_head_dim", a.v_head_dim},
                               {"rope_dim", a.rope_dim},       {"q_rank", a.q_rank},
                               {"kv_rank", a.kv_rank},         {"window", a.window}};
    for (const auto& [key, value] : non_negative) {
        check.not_negative(path + "." + key, value);
    }
    if (a.opaque_parameters < 0) {
        check.fail(path + ".opaque_parameters", "is negative", "0 or more");
    }
    if (a.kind == AttentionKind::none || a.kind == AttentionKind::linear ||
        a.kind == AttentionKind::ssm) {
        return;
    }
    check.positive(path + ".heads", a.heads);
    check.positive(path + ".qk_head_dim", a.qk_head_dim);
    check.positive(path + ".v_head_dim", a.v_head_dim);
    if (a.rope_dim > a.qk_head_dim) {
        check.fail(path + ".rope_dim",
                   std::to_string(a.rope_dim) + " of " + std::to_string(a.qk_head_dim) +
                       " elements of a head cannot be rotated",
                   "at most qk_head_dim");
    }
    if (a.kind == AttentionKind::mla) {
        check.positive(path + ".kv_rank", a.kv_rank);
        return;
    }
    check.positive(path + ".kv_heads", a.kv_heads);
    if (a.kind == AttentionKind::mha && a.kv_heads != a.heads) {
        check.fail(path + ".kv_heads",
                   "mha has as many key-value heads as query heads, not " +
                       std::to_string(a.kv_heads) + " for " + std::to_string(a.heads),
                   "kind gqa, or kv_heads " + std::to_string(a.heads));
    }
    if (check.ok() && a.heads % a.kv_heads != 0) {
        check.fail(path + ".kv_heads",
                   std::to_string(a.heads) + " query heads cannot share " +
                       std::to_string(a.kv_heads) + " key-value heads evenly",
                   "a divisor of " + std::to_string(a.heads));
    }
}

void check_ffn(Checker& check, const std::string& path, const Ffn& f) {
    check.not_negative(path + ".width", f.width);
    check.not_negative(path + ".experts", f.experts);
    check.not_negative(path + ".top_k", f.top_k);
    check.not_negative(path + ".expert_width", f.expert_width);
    check.not_negative(path + ".shared_width", f.shared_width);
    if (f.kind == FfnKind::dense) {
        check.positive(path + ".width", f.width);
    } else if (f.kind == FfnKind::moe) {
        check.positive(path + ".experts", f.experts);
        check.positive(path + ".top_k", f.top_k);
        check.positive(path + ".expert_width", f.expert_width);
        if (f.top_k > f.experts) {
            check.fail(path + ".top_k",
                       "a token cannot be sent to " + std::to_string(f.top_k) + " of " +
                           std::to_string(f.experts) + " experts",
                       "at most " + std::to_string(f.experts));
        }
    }
}

void check_kinds(Checker& check, const ModelSpec& model) {
    std::set<std::string> names;
    for (std::size_t k = 0; k < model.block_kinds.size(); ++k) {
        const BlockKind& kind = model.block_kinds[k];
        const std::string path = "block_kinds[" + std::to_string(k) + "]";
        if (kind.name.empty() || !names.insert(kind.name).second) {
            check.fail(path + ".name", "'" + kind.name + "' is not a name of its own",
                       "a name no other block kind has");
        }
        check_attention(check, path + ".attention", kind.attention);
        check_ffn(check, path + ".ffn", kind.ffn);
    }
}

void check_part(Checker& check, const ModelSpec& model, std::size_t index,
                std::vector<std::int64_t>& width_of_kind) {
    const Part& part = model.parts[index];
    const std::string path = "parts[" + std::to_string(index) + "]";
    if (part.role == PartRole::trunk || !part.runs.empty()) {
        check.positive(path + ".hidden", part.hidden);
    }
    check.not_negative(path + ".hidden", part.hidden);
    check.not_negative(path + ".tokens_per_sample", part.tokens_per_sample);
    if (part.other_parameters < 0) {
        check.fail(path + ".other_parameters", "is negative", "0 or more");
    }
    std::int64_t blocks = 0;
    for (std::size_t r = 0; r < part.runs.size(); ++r) {
        const Run& run = part.runs[r];
        const std::string at = path + ".runs[" + std::to_string(r) + "]";
        check.positive(at + ".count", run.count);
        check.at_most(at + ".count", run.count, largest_blocks - std::min(blocks, largest_blocks));
        if (run.kind < 0 || run.kind >= static_cast<std::int64_t>(model.block_kinds.size())) {
            check.fail(at + ".kind",
                       "there is no block kind " + std::to_string(run.kind) + " among " +
                           std::to_string(model.block_kinds.size()),
                       "an index into block_kinds, from 0");
        }
        if (!check.ok()) {
            return;
        }
        blocks += run.count;
        std::int64_t& width = width_of_kind[static_cast<std::size_t>(run.kind)];
        if (width != 0 && width != part.hidden) {
            check.fail(at + ".kind",
                       "one block kind is used at hidden widths " + std::to_string(width) +
                           " and " + std::to_string(part.hidden),
                       "a block kind of its own for this part");
        }
        width = part.hidden;
    }
    if (part.role == PartRole::trunk && blocks == 0) {
        check.fail(path + ".runs", "the trunk has no blocks", R"([{"kind": 0, "count": 32}])");
    }
}

void check_embedding(Checker& check, const Embedding& e) {
    check.positive("embedding.vocab", e.vocab);
    check.not_negative("embedding.position_rows", e.position_rows);
    check.not_negative("embedding.projection_width", e.projection_width);
    if (e.positions == Positions::learned) {
        check.positive("embedding.position_rows", e.position_rows);
    }
}

void check_names_and_trunk(Checker& check, const ModelSpec& model) {
    std::set<std::string> names;
    std::int64_t trunks = 0;
    for (std::size_t p = 0; p < model.parts.size(); ++p) {
        const Part& part = model.parts[p];
        trunks += part.role == PartRole::trunk ? 1 : 0;
        if (part.name.empty() || !names.insert(part.name).second) {
            check.fail("parts[" + std::to_string(p) + "].name",
                       "'" + part.name + "' is not a name of its own", "a name no other part has");
        }
    }
    if (trunks != 1) {
        check.fail("parts", "there are " + std::to_string(trunks) + " parts with role trunk",
                   "exactly one part is the language model");
    }
    for (std::size_t k = 0; k < model.block_kinds.size(); ++k) {
        const std::string& source = model.block_kinds[k].attention.cross_source;
        if (!source.empty() && !names.contains(source)) {
            check.fail("block_kinds[" + std::to_string(k) + "].attention.cross_source",
                       "there is no part '" + source + "'", "the name of a part, or nothing");
        }
    }
}

} // namespace

Status check_model(const ModelSpec& model, std::string_view where) {
    Checker check(where);
    check_names_and_trunk(check, model);
    check_kinds(check, model);
    std::vector<std::int64_t> width_of_kind(model.block_kinds.size(), 0);
    for (std::size_t p = 0; p < model.parts.size() && check.ok(); ++p) {
        check_part(check, model, p, width_of_kind);
    }
    check_embedding(check, model.embedding);
    check.not_negative("max_positions", model.max_positions);
    check.probability("attention_dropout", model.attention_dropout);
    check.probability("hidden_dropout", model.hidden_dropout);
    if (check.ok()) {
        const ParameterCounts counts = count_parameters(model);
        if (counts.total >= largest_total || counts.mtp >= largest_total) {
            check.fail("parts", "the sizes multiply to more than 2^62 parameters",
                       "check for a number that is too large");
        }
    }
    return check.result();
}

} // namespace shardplan::sim
