#include "simulator/io/schema.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulator/io/json.hpp"
#include "simulator/io/json_reader.hpp"
#include "simulator/io/json_tree.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim::detail {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The sentence about the bounds of a quantity, which a schema cannot check in text.
std::string bounds_sentence(const FieldMeta& meta, Dimension dimension) {
    if (dimension == Dimension::scalar || (meta.lo == -infinite && meta.hi == infinite)) {
        return "";
    }
    if (meta.hi == infinite) {
        return " At least " + format_exact(meta.lo, dimension) + ".";
    }
    if (meta.lo == -infinite) {
        return " At most " + format_exact(meta.hi, dimension) + ".";
    }
    return " From " + format_exact(meta.lo, dimension) + " to " + format_exact(meta.hi, dimension) +
           ".";
}

/// Writes the schema of what it visits: fields as properties, elements as items.
class SchemaWriter final : public FieldVisitor {
public:
    explicit SchemaWriter(JsonWriter& out) : out_(out) {}

    void integer(const FieldMeta& meta, std::int64_t& value) override {
        begin(meta, "");
        uses_integers_ = true;
        require_if_illegal(meta, static_cast<double>(value));
        out_.member("$ref", "#/$defs/whole_number");
        write_bounds(meta);
        end_type();
        if (shows_default(meta)) {
            out_.member("default", value);
        }
        out_.end_object();
    }
    void quantity(const FieldMeta& meta, Dimension dimension, double& base) override {
        begin(meta, bounds_sentence(meta, dimension));
        require_if_illegal(meta, base);
        if (dimension == Dimension::scalar) {
            out_.member("type", "number");
            write_bounds(meta);
        } else {
            const bool zero_is_legal = meta.lo <= 0.0 && meta.hi >= 0.0;
            std::string name(name_of_dimension(dimension));
            name += zero_is_legal ? "" : "_not_zero";
            quantities_[name] = {dimension, zero_is_legal};
            out_.member("$ref", "#/$defs/" + name);
        }
        end_type();
        if (shows_default(meta) && std::isfinite(base)) {
            out_.key("default");
            dimension == Dimension::scalar ? out_.value(base)
                                           : out_.value(format_exact(base, dimension));
        }
        out_.end_object();
    }
    void flag(const FieldMeta& meta, bool& value) override {
        begin(meta, "");
        out_.member("type", "boolean");
        end_type();
        if (shows_default(meta)) {
            out_.member("default", value);
        }
        out_.end_object();
    }
    void text(const FieldMeta& meta, std::string& value) override {
        begin(meta, "");
        out_.member("type", "string");
        end_type();
        if (shows_default(meta)) {
            out_.member("default", value);
        }
        out_.end_object();
    }
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override {
        begin(meta, "");
        out_.begin_array("enum");
        for (const std::string_view name : names) {
            out_.value(name);
        }
        out_.end_array();
        end_type();
        if (shows_default(meta)) {
            out_.member("default", names[index]);
        }
        out_.end_object();
    }
    void list(const FieldMeta& meta, ListAccess& items) override;
    void map(const FieldMeta& meta, MapAccess& items) override;
    void object(const FieldMeta& meta, ObjectAccess& fields) override {
        begin(meta, "");
        const bool outer_needs_value = std::exchange(needs_value_, false);
        write_fields(fields);
        require_if(std::exchange(needs_value_, outer_needs_value), meta);
        end_type();
        out_.end_object();
    }
    bool optional(const FieldMeta& /*meta*/, bool present) override {
        is_nullable_ = true;
        is_absent_ = !present;
        return true;
    }

    /// "type" to "additionalProperties" of an object, into the object that is open.
    void write_fields(ObjectAccess& fields);
    void write_definitions();

private:
    struct Quantity {
        Dimension dimension = Dimension::scalar;
        bool zero_is_legal = true;
    };
    /// What must be remembered while the type of a value is written.
    struct Level {
        bool is_nullable = false;
        bool is_element = false;
        bool shows_default = true;
    };

    /// Opens the schema of a value, up to its type.
    void begin(const FieldMeta& meta, const std::string& more);
    /// Ends its type: a value of an optional field may be null as well.
    void end_type();
    /// Asked between end_type and the end of the value.
    [[nodiscard]] bool shows_default(const FieldMeta& meta) const {
        return !meta.required && last_shows_default_;
    }
    /// Requires a field, and the object around it, if its default may not stand.
    void require_if(bool default_is_illegal, const FieldMeta& meta) {
        const Level& level = levels_.back();
        if (default_is_illegal && !level.is_nullable && !level.is_element) {
            if (!meta.required) {
                required_->emplace_back(meta.key);
            }
            needs_value_ = true;
        }
    }
    void require_if_illegal(const FieldMeta& meta, double value) {
        require_if(!(value >= meta.lo && value <= meta.hi), meta);
    }
    void write_bounds(const FieldMeta& meta) {
        if (meta.lo > -infinite) {
            out_.member("minimum", meta.lo);
        }
        if (meta.hi < infinite) {
            out_.member("maximum", meta.hi);
        }
    }
    /// Visits an element, whose schema goes under `key`.
    template <class Visit>
    void write_element(std::string_view key, const Visit& visit) {
        element_key_ = key;
        visit();
    }

    JsonWriter& out_;
    std::string_view element_key_; ///< stands in for the key of the next field; empty: none does
    bool is_nullable_ = false;
    bool is_absent_ = false;
    bool last_shows_default_ = true;
    bool needs_value_ = false; ///< a field of the object being written has an illegal default
    std::vector<Level> levels_;
    std::vector<std::string>* known_ = nullptr;
    std::vector<std::string>* required_ = nullptr;
    bool uses_integers_ = false;
    std::map<std::string, Quantity> quantities_;
};

void SchemaWriter::begin(const FieldMeta& meta, const std::string& more) {
    const bool is_element = !element_key_.empty();
    Level level;
    level.is_nullable = std::exchange(is_nullable_, false);
    level.is_element = is_element;
    level.shows_default = !std::exchange(is_absent_, false) && !is_element;
    out_.begin_object(is_element ? std::exchange(element_key_, {}) : meta.key);
    if (!is_element) {
        known_->emplace_back(meta.key);
        if (meta.required) {
            required_->emplace_back(meta.key);
        }
        if (!meta.label.empty()) {
            out_.member("title", meta.label);
        }
        if (!meta.doc.empty()) {
            out_.member("description", std::string(meta.doc) + more);
        }
    }
    if (level.is_nullable) {
        out_.begin_array("anyOf").begin_object();
    }
    levels_.push_back(level);
}

void SchemaWriter::end_type() {
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.is_nullable) {
        out_.end_object().begin_object().member("type", "null").end_object().end_array();
    }
    last_shows_default_ = level.shows_default;
}

void SchemaWriter::list(const FieldMeta& meta, ListAccess& items) {
    begin(meta, "");
    const std::string default_text = text_of(items);
    out_.member("type", "array");
    const std::size_t present = items.size();
    items.resize(present + 1); // what a present element holds is not the default of a new one
    write_element("items", [&] { items.visit(*this, meta, present); });
    items.resize(present);
    end_type();
    if (const auto value = JsonValue::parse(default_text, ""); value && shows_default(meta)) {
        out_.member("default", *value);
    }
    out_.end_object();
}

void SchemaWriter::map(const FieldMeta& meta, MapAccess& items) {
    begin(meta, "");
    const std::string default_text = text_of(items);
    out_.member("type", "object");
    write_element("additionalProperties", [&] { items.visit(*this, meta, ""); });
    end_type();
    if (const auto value = JsonValue::parse(default_text, ""); value && shows_default(meta)) {
        out_.member("default", *value);
    }
    out_.end_object();
}

void SchemaWriter::write_fields(ObjectAccess& fields) {
    std::vector<std::string> known;
    std::vector<std::string> required;
    auto* const outer_known = std::exchange(known_, &known);
    auto* const outer_required = std::exchange(required_, &required);
    out_.member("type", "object").begin_object("properties");
    fields.visit_fields(*this);
    for (const std::string_view key : annotation_keys()) {
        if (std::find(known.begin(), known.end(), key) == known.end()) {
            out_.member(key, true);
        }
    }
    out_.end_object();
    if (!required.empty()) {
        out_.begin_array("required");
        for (const std::string& key : required) {
            out_.value(key);
        }
        out_.end_array();
    }
    out_.member("additionalProperties", false);
    known_ = outer_known;
    required_ = outer_required;
}

void SchemaWriter::write_definitions() {
    if (quantities_.empty() && !uses_integers_) {
        return;
    }
    out_.begin_object("$defs");
    if (uses_integers_) {
        out_.begin_object("whole_number").member("type", "integer");
        out_.member("minimum", std::numeric_limits<std::int64_t>::min());
        out_.member("maximum", std::numeric_limits<std::int64_t>::max()).end_object();
    }
    for (const auto& [name, quantity] : quantities_) {
        out_.begin_object(name);
        out_.member("description",
                    "A number and a unit, in quotes; units: " +
                        std::string(accepted_units(quantity.dimension)) +
                        (quantity.zero_is_legal ? ". A plain 0 needs no unit." : "."));
        out_.begin_array("anyOf");
        out_.begin_object().member("type", "string");
        out_.member("pattern", quantity_pattern(quantity.dimension)).end_object();
        if (quantity.zero_is_legal) {
            out_.begin_object().member("const", 0).end_object();
        }
        out_.end_array().end_object();
    }
    out_.end_object();
}

} // namespace

std::string schema_of(ObjectAccess& fields, std::string_view title, std::string_view id) {
    JsonWriter out;
    SchemaWriter writer(out);
    out.begin_object().member("$schema", "https://json-schema.org/draft/2020-12/schema");
    if (!id.empty()) {
        out.member("$id", id);
    }
    out.member("title", title);
    writer.write_fields(fields);
    writer.write_definitions();
    out.end_object();
    return out.str();
}

} // namespace shardplan::sim::detail
