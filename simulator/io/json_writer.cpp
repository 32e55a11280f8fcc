#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

#include "simulator/io/json.hpp"
#include "simulator/io/json_tree.hpp"
#include "simulator/units/text.hpp"
#include "simulator/units/utf8.hpp"

namespace shardplan::sim {

namespace {

constexpr std::size_t widest_line = 100;

void append_control(std::string& out, char c) {
    switch (c) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        default:
            break;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    out += "\\u00";
    out += digits[byte >> 4U];
    out += digits[byte & 0xFU];
}

void append_quoted(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) {
            out += "\uFFFD";
            text.remove_prefix(1);
            continue;
        }
        const char c = text.front();
        if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\')) {
            append_control(out, c);
        } else {
            out += text.substr(0, length);
        }
        text.remove_prefix(length);
    }
    out += '"';
}

} // namespace

void JsonWriter::new_line(std::size_t depth) {
    if (indent_ == Indent::pretty) {
        text_ += '\n';
        text_.append(2 * depth, ' ');
    }
}

void JsonWriter::before_item() {
    if (key_given_) {
        key_given_ = false;
        return;
    }
    if (levels_.empty()) {
        assert(text_.empty()); // one value per text
        return;
    }
    Level& level = levels_.back();
    assert(!level.is_object); // a member needs its key
    if (level.count++ > 0) {
        text_ += ',';
    }
    new_line(levels_.size());
    level.items.push_back(text_.size());
}

JsonWriter& JsonWriter::key(std::string_view key) {
    assert(!levels_.empty() && levels_.back().is_object && !key_given_);
    Level& level = levels_.back();
    if (level.count++ > 0) {
        text_ += ',';
    }
    new_line(levels_.size());
    level.items.push_back(text_.size());
    append_quoted(text_, key);
    text_ += indent_ == Indent::pretty ? ": " : ":";
    key_given_ = true;
    return *this;
}

JsonWriter& JsonWriter::begin(char bracket) {
    before_item();
    if (!levels_.empty()) {
        levels_.back().has_nested = true;
    }
    Level level;
    level.start = text_.size();
    level.is_object = bracket == '{';
    levels_.push_back(std::move(level));
    text_ += bracket;
    return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
    assert(!levels_.empty() && levels_.back().is_object == (bracket == '}') && !key_given_);
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    if (level.count == 0 || indent_ == Indent::compact) {
        text_ += bracket;
        return *this;
    }
    // Between two items stand a comma, a line end and the indent.
    const std::size_t separator = 2 + 2 * (levels_.size() + 1);
    const std::size_t line_start = text_.rfind('\n', level.start) + 1; // npos + 1 is 0
    const std::size_t in_one_line = level.start - line_start + 2 + text_.size() -
                                    level.items.front() - (level.count - 1) * (separator - 2);
    if (level.has_nested || in_one_line > widest_line) {
        new_line(levels_.size());
        text_ += bracket;
        return *this;
    }
    std::string line(1, text_[level.start]);
    for (std::size_t i = 0; i < level.count; ++i) {
        const std::size_t stop =
            i + 1 < level.count ? level.items[i + 1] - separator : text_.size();
        line += i > 0 ? ", " : "";
        line += std::string_view(text_).substr(level.items[i], stop - level.items[i]);
    }
    line += bracket;
    text_.resize(level.start);
    text_ += line;
    return *this;
}

JsonWriter& JsonWriter::begin_object() { return begin('{'); }
JsonWriter& JsonWriter::end_object() { return end('}'); }
JsonWriter& JsonWriter::begin_array() { return begin('['); }
JsonWriter& JsonWriter::end_array() { return end(']'); }

JsonWriter& JsonWriter::raw(std::string_view json) {
    before_item();
    text_ += json;
    return *this;
}

JsonWriter& JsonWriter::value(std::nullptr_t) { return raw("null"); }
JsonWriter& JsonWriter::value(bool v) { return raw(v ? "true" : "false"); }
JsonWriter& JsonWriter::signed_integer(std::int64_t v) { return raw(std::to_string(v)); }
JsonWriter& JsonWriter::unsigned_integer(std::uint64_t v) { return raw(std::to_string(v)); }

JsonWriter& JsonWriter::value(double v) {
    if (!std::isfinite(v)) {
        return raw("null");
    }
    if (v == 0.0 && std::signbit(v)) {
        return raw("-0.0"); // "-0" would be read as the whole number 0
    }
    return raw(format_exact(v, Dimension::scalar));
}

JsonWriter& JsonWriter::value(std::string_view v) {
    before_item();
    append_quoted(text_, v);
    return *this;
}

std::string JsonWriter::str() const {
    const bool whole = levels_.empty() && !text_.empty();
    return whole && indent_ == Indent::pretty ? text_ + "\n" : text_;
}

namespace {

/// Writes what it visits; gives each field its key, except to elements of a list.
class DescribedWriter final : public FieldVisitor {
public:
    explicit DescribedWriter(JsonWriter& out) : out_(out) {}

    void integer(const FieldMeta& meta, std::int64_t& value) override { begin(meta).value(value); }
    void quantity(const FieldMeta& meta, Dimension dimension, double& base) override {
        begin(meta);
        if (!std::isfinite(base)) {
            out_.value(nullptr);
        } else if (dimension == Dimension::scalar) {
            out_.value(base);
        } else {
            out_.value(format_exact(base, dimension));
        }
    }
    void flag(const FieldMeta& meta, bool& value) override { begin(meta).value(value); }
    void text(const FieldMeta& meta, std::string& value) override { begin(meta).value(value); }
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override {
        begin(meta).value(names[index]);
    }
    void list(const FieldMeta& meta, ListAccess& items) override {
        begin(meta).begin_array();
        for (std::size_t i = 0; i < items.size(); ++i) {
            is_element_ = true;
            items.visit(*this, FieldMeta{}, i);
        }
        out_.end_array();
    }
    void map(const FieldMeta& meta, MapAccess& items) override {
        begin(meta).begin_object();
        for (const std::string& key : items.keys()) {
            FieldMeta entry;
            entry.key = key;
            items.visit(*this, entry, key);
        }
        out_.end_object();
    }
    void object(const FieldMeta& meta, ObjectAccess& fields) override {
        begin(meta).begin_object();
        fields.visit_fields(*this);
        out_.end_object();
    }
    bool optional(const FieldMeta& meta, bool present) override {
        if (!present) {
            begin(meta).value(nullptr);
        }
        return present;
    }

    /// For a value that has its key already.
    void without_key() { is_element_ = true; }

private:
    JsonWriter& begin(const FieldMeta& meta) {
        if (!is_element_) {
            out_.key(meta.key);
        }
        is_element_ = false;
        return out_;
    }

    JsonWriter& out_;
    bool is_element_ = false;
};

} // namespace

JsonWriter& JsonWriter::object(ObjectAccess& fields) {
    DescribedWriter visitor(*this);
    visitor.without_key();
    visitor.object(FieldMeta{}, fields);
    return *this;
}

namespace detail {

void write_node(JsonWriter& writer, const JsonNode& node) {
    if (const auto* array = node.array()) {
        writer.begin_array();
        for (const JsonNode& item : array->items) {
            write_node(writer, item);
        }
        writer.end_array();
    } else if (const auto* object = node.object()) {
        writer.begin_object();
        for (std::size_t i = 0; i < object->keys.size(); ++i) {
            writer.key(object->keys[i]);
            write_node(writer, object->values[i]);
        }
        writer.end_object();
    } else if (const auto* flag = std::get_if<bool>(&node.value)) {
        writer.value(*flag);
    } else if (const auto* whole = std::get_if<std::int64_t>(&node.value)) {
        writer.value(*whole);
    } else if (const auto* number = std::get_if<double>(&node.value)) {
        writer.value(*number);
    } else if (const auto* text = std::get_if<std::string>(&node.value)) {
        writer.value(*text);
    } else {
        writer.value(nullptr);
    }
}

std::string text_of(ListAccess& items) {
    JsonWriter writer(Indent::compact);
    DescribedWriter visitor(writer);
    visitor.without_key();
    visitor.list(FieldMeta{}, items);
    return writer.str();
}

std::string text_of(MapAccess& items) {
    JsonWriter writer(Indent::compact);
    DescribedWriter visitor(writer);
    visitor.without_key();
    visitor.map(FieldMeta{}, items);
    return writer.str();
}

} // namespace detail

} // namespace shardplan::sim
