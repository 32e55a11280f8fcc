#include "simulator/io/json.hpp"

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

#include "simulator/io/json_tree.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::sim {

namespace detail {

std::string pointer_token(std::string_view key) {
    std::string out = "/";
    for (const char c : key) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            const bool printable = static_cast<unsigned char>(c) >= 0x20;
            out += printable ? c : '?'; // a message stays on one line
        }
    }
    return out;
}

std::string where_text(std::string_view source, std::string_view pointer) {
    std::string out(source);
    if (!pointer.empty()) {
        out += out.empty() ? "" : ": ";
        out += pointer;
    }
    return out;
}

std::string description(const JsonNode& node) {
    switch (node.kind()) {
        case JsonKind::null:
            return "null";
        case JsonKind::boolean:
            return std::get<bool>(node.value) ? "true" : "false";
        case JsonKind::integer:
            return "the number " + std::to_string(std::get<std::int64_t>(node.value));
        case JsonKind::number:
            return "the number " + format_exact(std::get<double>(node.value), Dimension::scalar);
        case JsonKind::string:
            return "the text " + in_quotes(std::get<std::string>(node.value));
        case JsonKind::array:
            return "a list";
        case JsonKind::object:
            break;
    }
    return "an object";
}

Result<std::int64_t> to_integer(const JsonNode& node, std::string_view where) {
    if (const auto* whole = std::get_if<std::int64_t>(&node.value)) {
        return *whole;
    }
    if (const auto* number = std::get_if<double>(&node.value)) {
        constexpr double exact = 0x1p53; // beyond it neighbours of a double are not whole numbers
        if (std::abs(*number) > exact) {
            return Error{ErrorCode::bad_input, std::string(where),
                         description(node) + " is too large for a count",
                         "write a whole number of at most 9223372036854775807, digit by digit"};
        }
        if (*number == std::floor(*number)) {
            return static_cast<std::int64_t>(*number);
        }
        return Error{ErrorCode::bad_input, std::string(where),
                     "a whole number is expected, and " + description(node) + " is not one",
                     "write " + std::to_string(static_cast<std::int64_t>(std::floor(*number))) +
                         " or " + std::to_string(static_cast<std::int64_t>(std::ceil(*number)))};
    }
    std::string hint = "write a number such as 8";
    if (const auto* text = std::get_if<std::string>(&node.value)) {
        std::int64_t meant = 0;
        const auto read = std::from_chars(text->data(), text->data() + text->size(), meant);
        if (read.ec == std::errc() && read.ptr == text->data() + text->size()) {
            hint = "write " + *text + " without quotes";
        }
    }
    return Error{ErrorCode::bad_input, std::string(where),
                 "a whole number is expected, and this is " + description(node), std::move(hint)};
}

} // namespace detail

Result<JsonValue> JsonValue::parse(std::string_view text, std::string_view source_name) {
    auto document = detail::parse_json(text, source_name);
    if (!document) {
        return std::move(document).error();
    }
    const detail::JsonNode* root = &document.value()->root;
    return JsonValue(std::move(document).value(), root, "");
}

JsonKind JsonValue::kind() const { return node_->kind(); }

bool JsonValue::is_number() const {
    return kind() == JsonKind::integer || kind() == JsonKind::number;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
    const auto* object = node_->object();
    const auto* member = object != nullptr ? object->find(key) : nullptr;
    if (member == nullptr) {
        return std::nullopt;
    }
    return JsonValue(document_, member, pointer_ + detail::pointer_token(key));
}

Result<JsonValue> JsonValue::get(std::string_view key) const {
    if (auto member = find(key)) {
        return std::move(*member);
    }
    if (!is_object()) {
        return Error{ErrorCode::bad_input, where(),
                     "an object with the key " + in_quotes(key) + " is expected, and this is " +
                         detail::description(*node_),
                     "write { " + in_quotes(key) + ": ... }"};
    }
    const auto nearest = nearest_name(key, node_->object()->keys);
    return Error{ErrorCode::bad_input, where(), "the key " + in_quotes(key) + " is missing",
                 nearest ? "add it, or is " + in_quotes(*nearest) + " meant to be it?" : "add it"};
}

JsonValue JsonValue::at(std::size_t i) const {
    assert(i < size());
    if (const auto* array = node_->array()) {
        return {document_, &array->items[i], pointer_ + "/" + std::to_string(i)};
    }
    const auto* object = node_->object();
    return {document_, &object->values[i], pointer_ + detail::pointer_token(object->keys[i])};
}

std::size_t JsonValue::size() const {
    if (const auto* array = node_->array()) {
        return array->items.size();
    }
    const auto* object = node_->object();
    return object != nullptr ? object->values.size() : 0;
}

std::vector<std::string> JsonValue::keys() const {
    const auto* object = node_->object();
    return object != nullptr ? object->keys : std::vector<std::string>{};
}

Result<std::int64_t> JsonValue::as_int() const { return detail::to_integer(*node_, where()); }

Result<double> JsonValue::as_double() const {
    if (const auto* whole = std::get_if<std::int64_t>(&node_->value)) {
        return static_cast<double>(*whole);
    }
    if (const auto* number = std::get_if<double>(&node_->value)) {
        return *number;
    }
    return Error{ErrorCode::bad_input, where(),
                 "a number is expected, and this is " + detail::description(*node_),
                 "write a number such as 0.5, without quotes"};
}

Result<std::string> JsonValue::as_string() const {
    if (const auto* text = std::get_if<std::string>(&node_->value)) {
        return *text;
    }
    return Error{ErrorCode::bad_input, where(),
                 "a text is expected, and this is " + detail::description(*node_),
                 "write a text in double quotes"};
}

Result<bool> JsonValue::as_bool() const {
    if (const auto* flag = std::get_if<bool>(&node_->value)) {
        return *flag;
    }
    return Error{ErrorCode::bad_input, where(),
                 "true or false is expected, and this is " + detail::description(*node_),
                 "write true or false, without quotes"};
}

std::string JsonValue::where() const { return detail::where_text(document_->source, pointer_); }

const std::string& JsonValue::source_name() const { return document_->source; }

std::string JsonValue::text() const {
    JsonWriter writer(Indent::compact);
    detail::write_node(writer, *node_);
    return writer.str();
}

} // namespace shardplan::sim
