#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim::detail {

namespace {

/// The plain values below what it visits, joined by commas: the default of a list.
class ValueText final : public FieldVisitor {
public:
    void integer(const FieldMeta& /*meta*/, std::int64_t& value) override {
        add(std::to_string(value));
    }
    void quantity(const FieldMeta& /*meta*/, Dimension dimension, double& base) override {
        add(format_exact(base, dimension));
    }
    void flag(const FieldMeta& /*meta*/, bool& value) override { add(value ? "true" : "false"); }
    void text(const FieldMeta& /*meta*/, std::string& value) override { add(value); }
    void choice(const FieldMeta& /*meta*/, std::span<const std::string_view> names,
                std::size_t& index) override {
        add(std::string(names[index]));
    }
    void list(const FieldMeta& /*meta*/, ListAccess& items) override {
        for (std::size_t i = 0; i < items.size(); ++i) {
            items.visit(*this, FieldMeta{}, i);
        }
    }
    void map(const FieldMeta& /*meta*/, MapAccess& items) override {
        for (const std::string& key : items.keys()) {
            items.visit(*this, FieldMeta{}, key);
        }
    }
    void object(const FieldMeta& /*meta*/, ObjectAccess& fields) override {
        fields.visit_fields(*this);
    }
    bool optional(const FieldMeta& /*meta*/, bool present) override { return present; }

    [[nodiscard]] const std::string& joined() const { return text_; }

private:
    void add(const std::string& value) { text_ += (text_.empty() ? "" : ",") + value; }

    std::string text_;
};

/// Adds a row for each plain value. Lists and maps are seen through one fresh element, since what
/// their present elements hold is not the default of another.
class Collector final : public FieldVisitor {
public:
    explicit Collector(std::string_view prefix) : prefix_(prefix) {}

    [[nodiscard]] std::vector<FieldInfo> take() { return std::move(rows_); }

    void integer(const FieldMeta& meta, std::int64_t& value) override {
        add(meta, "integer", std::to_string(value));
    }
    void quantity(const FieldMeta& meta, Dimension dimension, double& base) override {
        add(meta, name_of_dimension(dimension), format_exact(base, dimension));
    }
    void flag(const FieldMeta& meta, bool& value) override {
        add(meta, "flag", value ? "true" : "false");
    }
    void text(const FieldMeta& meta, std::string& value) override { add(meta, "text", value); }
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override {
        FieldInfo& row = add(meta, "choice", std::string(names[index]));
        row.choices.assign(names.begin(), names.end());
    }
    void list(const FieldMeta& meta, ListAccess& items) override {
        ValueText values;
        values.list(meta, items);
        const std::size_t present = items.size();
        items.resize(present + 1);
        below(meta, "[]", values.joined(),
              [&](const FieldMeta& element) { items.visit(*this, element, present); });
        items.resize(present);
    }
    void map(const FieldMeta& meta, MapAccess& items) override {
        // No key of a file is empty, so that this makes a fresh element.
        below(meta, "{}", "", [&](const FieldMeta& entry) { items.visit(*this, entry, ""); });
    }
    void object(const FieldMeta& meta, ObjectAccess& fields) override {
        const std::string outer = std::exchange(prefix_, path_of(meta));
        const std::string outer_suffix = std::exchange(suffix_, "");
        const bool outer_absent = std::exchange(absent_, false);
        fields.visit_fields(*this);
        prefix_ = outer;
        suffix_ = outer_suffix;
        absent_ = outer_absent;
    }
    bool optional(const FieldMeta& /*meta*/, bool present) override {
        absent_ = !present;
        return true;
    }

private:
    /// Elements have no key of their own: the suffix of the list or map stands in for it.
    [[nodiscard]] std::string path_of(const FieldMeta& meta) const {
        if (!suffix_.empty()) {
            return prefix_ + suffix_;
        }
        return prefix_.empty() ? std::string(meta.key) : prefix_ + "." + std::string(meta.key);
    }

    template <class Visit>
    void below(const FieldMeta& meta, std::string_view suffix, std::string default_text,
               const Visit& visit) {
        const std::string outer = std::exchange(prefix_, path_of(meta));
        const std::string outer_suffix = std::exchange(suffix_, std::string(suffix));
        const std::string outer_default = std::exchange(list_default_, std::move(default_text));
        absent_ = false;
        visit(meta);
        prefix_ = outer;
        suffix_ = outer_suffix;
        list_default_ = outer_default;
    }

    FieldInfo& add(const FieldMeta& meta, std::string_view type, std::string default_text) {
        FieldInfo row;
        row.path = path_of(meta);
        row.label = meta.label;
        row.doc = meta.doc;
        row.type = type;
        row.default_text = std::exchange(absent_, false) ? "none"
                           : suffix_.empty()             ? std::move(default_text)
                                                         : list_default_;
        row.required = meta.required;
        row.lo = meta.lo;
        row.hi = meta.hi;
        return rows_.emplace_back(std::move(row));
    }

    std::string prefix_;
    std::string suffix_;       ///< "[]" or "{}" while an element is visited
    std::string list_default_; ///< what the list holds by default
    bool absent_ = false;      ///< the next value is an optional one that is absent by default
    std::vector<FieldInfo> rows_;
};

} // namespace

std::vector<FieldInfo> collect_fields(ObjectAccess& root, std::string_view prefix) {
    Collector collector(prefix);
    root.visit_fields(collector);
    return collector.take();
}

} // namespace shardplan::sim::detail
