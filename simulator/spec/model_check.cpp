#include "simulator/spec/model_check.hpp"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/spec/parameters.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

constexpr std::int64_t largest_total = std::int64_t{1} << 62;
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

/// Compares every number with the bounds that `describe` states for files.
class BoundsVisitor final : public FieldVisitor {
public:
    explicit BoundsVisitor(Checker& check) : check_(check) {}

    void integer(const FieldMeta& meta, std::int64_t& value) override {
        compare(meta, static_cast<double>(value), std::to_string(value));
    }
    void quantity(const FieldMeta& meta, Dimension /*dimension*/, double& base) override {
        compare(meta, base, std::to_string(base));
    }
    void flag(const FieldMeta& /*meta*/, bool& /*value*/) override {}
    void text(const FieldMeta& /*meta*/, std::string& /*value*/) override {}
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override {
        if (index >= names.size()) {
            check_.fail(path_to(meta), "is not one of its kinds", "a kind that has a name");
            index = 0; // its name will be looked up
        }
    }
    void list(const FieldMeta& meta, ListAccess& items) override {
        for (std::size_t i = 0; i < items.size(); ++i) {
            const std::string key = std::string(meta.key) + "[" + std::to_string(i) + "]";
            FieldMeta element = meta;
            element.key = key;
            items.visit(*this, element, i);
        }
    }
    void map(const FieldMeta& /*meta*/, MapAccess& /*items*/) override {} // no model field is one
    void object(const FieldMeta& meta, ObjectAccess& fields) override {
        const std::string outer = path_;
        path_ = path_to(meta) + ".";
        fields.visit_fields(*this);
        path_ = outer;
    }
    bool optional(const FieldMeta& /*meta*/, bool present) override { return present; }

private:
    [[nodiscard]] std::string path_to(const FieldMeta& meta) const {
        return path_ + std::string(meta.key);
    }
    void compare(const FieldMeta& meta, double value, const std::string& text) {
        if (!(value >= meta.lo && value <= meta.hi)) {
            const auto bound = [](double x) { return group_digits(static_cast<long long>(x)); };
            check_.fail(path_to(meta), text + " is out of range",
                        "from " + bound(meta.lo) + " to " + bound(meta.hi));
        }
    }

    Checker& check_;
    std::string path_;
};

void check_attention(Checker& check, const std::string& path, const Attention& a) {
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
    std::int64_t blocks = 0;
    for (std::size_t r = 0; r < part.runs.size(); ++r) {
        const Run& run = part.runs[r];
        const std::string at = path + ".runs[" + std::to_string(r) + "]";
        check.positive(at + ".count", run.count);
        if (run.count > largest_blocks - blocks) {
            check.fail(at + ".count", "the part has more blocks than any model",
                       "at most " + std::to_string(largest_blocks) + " in all");
        }
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
    ModelSpec visited = model; // describe() takes a mutable value
    BoundsVisitor bounds(check);
    describe(bounds, visited);
    check_names_and_trunk(check, model);
    check_kinds(check, model);
    std::vector<std::int64_t> width_of_kind(model.block_kinds.size(), 0);
    for (std::size_t p = 0; p < model.parts.size() && check.ok(); ++p) {
        check_part(check, model, p, width_of_kind);
    }
    check_embedding(check, model.embedding);
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
