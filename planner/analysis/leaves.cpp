#include "planner/analysis/leaves.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan {
namespace {

/// Fields for people, which decide nothing.
constexpr std::array<std::string_view, 9> remarks = {
    "note",        "doc",  "sources", "source", "confidence", "aliases", "assumed_aliases",
    "assumptions", "title"};

bool is_remark(std::string_view key) {
    return std::find(remarks.begin(), remarks.end(), key) != remarks.end();
}

sim::Dimension dimension_of_unit(std::string_view unit) {
    constexpr std::array<std::pair<std::string_view, sim::Dimension>, 6> units = {{
        {"B", sim::Dimension::bytes},
        {"s", sim::Dimension::seconds},
        {"FLOP", sim::Dimension::flops},
        {"B/s", sim::Dimension::bandwidth},
        {"FLOP/s", sim::Dimension::flop_rate},
        {"W", sim::Dimension::watts},
    }};
    for (const auto& [name, dimension] : units) {
        if (name == unit) {
            return dimension;
        }
    }
    return sim::Dimension::scalar;
}

class LeafCollector final : public sim::FieldVisitor {
public:
    [[nodiscard]] std::vector<Leaf> take() { return std::move(leaves_); }

    void integer(const sim::FieldMeta& meta, std::int64_t& value) override {
        Leaf* leaf = add(meta, LeafKind::integer, std::to_string(value));
        if (leaf != nullptr) {
            leaf->value = static_cast<double>(value);
        }
    }
    void quantity(const sim::FieldMeta& meta, sim::Dimension dimension, double& base) override {
        Leaf* leaf = add(meta, LeafKind::number, sim::format_exact(base, dimension));
        if (leaf != nullptr) {
            leaf->value = base;
            leaf->dimension = leaf->shown = dimension;
        }
    }
    void flag(const sim::FieldMeta& meta, bool& value) override {
        add(meta, LeafKind::flag, value ? "true" : "false");
    }
    void text(const sim::FieldMeta& meta, std::string& value) override {
        add(meta, LeafKind::text, value);
    }
    void choice(const sim::FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override {
        add(meta, LeafKind::choice, std::string(names[index]));
    }
    void list(const sim::FieldMeta& meta, sim::ListAccess& items) override {
        if (is_remark(meta.key)) {
            return;
        }
        const std::string path = path_of(meta);
        for (std::size_t i = 0; i < items.size(); ++i) {
            element_ = path + "[" + std::to_string(i) + "]";
            items.visit(*this, meta, i);
        }
    }
    void map(const sim::FieldMeta& meta, sim::MapAccess& items) override {
        const std::string path = path_of(meta);
        for (const std::string& key : items.keys()) {
            const bool plain = key.find_first_of(".[]{}") == std::string::npos;
            element_ = path + "." + (plain ? key : "{" + key + "}");
            items.visit(*this, meta, key);
        }
    }
    void object(const sim::FieldMeta& meta, sim::ObjectAccess& fields) override {
        const std::string outer = std::exchange(prefix_, path_of(meta));
        const std::size_t first = leaves_.size();
        const std::string label(meta.label);
        const std::string doc(meta.doc);
        fields.visit_fields(*this);
        fold_constant(first, label, doc);
        prefix_ = outer;
    }
    bool optional(const sim::FieldMeta& /*meta*/, bool present) override { return present; }

private:
    /// Elements have no key of their own: the path made for them is used once.
    std::string path_of(const sim::FieldMeta& meta) {
        if (!element_.empty()) {
            return std::exchange(element_, "");
        }
        return prefix_.empty() ? std::string(meta.key) : prefix_ + "." + std::string(meta.key);
    }

    /// The fields of a Constant, which begin at `first`, become its value and its sigma.
    void fold_constant(std::size_t first, const std::string& label, const std::string& doc) {
        const auto field = [&](std::string_view key) -> Leaf* {
            for (std::size_t i = first; i < leaves_.size(); ++i) {
                if (leaves_[i].path == prefix_ + "." + std::string(key)) {
                    return &leaves_[i];
                }
            }
            return nullptr;
        };
        if (field("origin") == nullptr || field("sigma") == nullptr || field("unit") == nullptr) {
            return;
        }
        Leaf value = *field("value");
        Leaf sigma = *field("sigma");
        value.label = label;
        value.doc = doc;
        value.shown = dimension_of_unit(field("unit")->text);
        sigma.label = label + ", spread";
        if (field("hi")->value > field("lo")->value) {
            value.range = PlausibleRange{field("lo")->value, field("hi")->value};
        }
        leaves_.resize(first);
        leaves_.push_back(std::move(value));
        leaves_.push_back(std::move(sigma));
    }

    Leaf* add(const sim::FieldMeta& meta, LeafKind kind, std::string text) {
        Leaf leaf;
        leaf.path = path_of(meta);
        if (is_remark(meta.key)) {
            return nullptr;
        }
        leaf.label = meta.label;
        leaf.doc = meta.doc;
        leaf.kind = kind;
        leaf.text = std::move(text);
        leaf.lo = meta.lo;
        leaf.hi = meta.hi;
        return &leaves_.emplace_back(std::move(leaf));
    }

    std::string prefix_;
    std::string element_;
    std::vector<Leaf> leaves_;
};

bool exists(const std::vector<Leaf>& leaves, const std::string& path) {
    return find_leaf(leaves, path) != nullptr;
}

/// The leaf that a path without its last step stands for; empty: none.
std::string completed(const std::vector<Leaf>& leaves, const std::string& path) {
    for (const char* last : {"", ".physical", ".value", ".max", ".sequences", ".kind"}) {
        if (exists(leaves, path + last)) {
            return path + last;
        }
    }
    return "";
}

} // namespace

std::vector<Leaf> leaves_of(const sim::Scenario& scenario) {
    sim::Scenario copy = scenario; // describe() takes a mutable value
    LeafCollector collector;
    describe(collector, copy);
    return collector.take();
}

std::string shown_text(const Leaf& leaf, double value) {
    if (leaf.kind == LeafKind::integer) {
        return sim::group_digits(static_cast<long long>(value));
    }
    return sim::format_quantity(value, leaf.shown);
}

std::string setting_text(const Leaf& leaf, double value) {
    if (leaf.kind == LeafKind::integer) {
        return std::to_string(static_cast<std::int64_t>(value));
    }
    return sim::format_exact(value, leaf.dimension);
}

const Leaf* find_leaf(const std::vector<Leaf>& leaves, std::string_view path) {
    const auto found = std::find_if(leaves.begin(), leaves.end(),
                                    [&](const Leaf& leaf) { return leaf.path == path; });
    return found == leaves.end() ? nullptr : &*found;
}

sim::Result<std::vector<std::string>> full_paths(const std::vector<Leaf>& leaves,
                                                 std::string_view path, std::string_view where) {
    const std::string text(path);
    if (const std::string whole = completed(leaves, text); !whole.empty()) {
        return std::vector<std::string>{whole};
    }
    std::vector<std::string> out;
    const auto below = [&](std::string_view list, const std::string& rest) {
        for (std::size_t i = 0;; ++i) {
            const std::string element = std::string(list) + "[" + std::to_string(i) + "]";
            if (!exists(leaves, element + ".name")) {
                return;
            }
            if (const std::string whole = completed(leaves, element + rest); !whole.empty()) {
                out.push_back(whole);
            }
        }
    };
    if (text.rfind("device.", 0) == 0) {
        below("devices", text.substr(std::string("device").size()));
    }
    if (text.rfind("fabric.", 0) == 0) {
        const std::string rest = text.substr(std::string("fabric.").size());
        const std::size_t dot = std::min(rest.find('.'), rest.size());
        for (const Leaf& leaf : leaves) {
            const std::size_t end = leaf.path.rfind(".name");
            if (leaf.path.rfind("fabrics[", 0) == 0 && end + 5 == leaf.path.size() &&
                leaf.text == rest.substr(0, dot)) {
                const std::string whole =
                    completed(leaves, leaf.path.substr(0, end) + rest.substr(dot));
                if (!whole.empty()) {
                    out.push_back(whole);
                }
            }
        }
    }
    if (!out.empty()) {
        return out;
    }
    std::vector<std::string> names = {"gpus"};
    for (const Leaf& leaf : leaves) {
        names.push_back(leaf.path);
    }
    sim::Error error{sim::ErrorCode::not_found, std::string(where),
                     "there is no input " + sim::in_quotes(path), ""};
    const auto nearest = sim::nearest_name(path, names);
    error.hint = nearest ? "did you mean " + *nearest + "?"
                         : "name gpus, or a path that begins with model, cluster, job, stack, "
                           "device or fabric, as in "
                           "job.sequence.max";
    return error;
}

} // namespace shardplan::plan
