#include "simulator/io/json_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim::detail {

namespace {

constexpr std::size_t longest_list = 1'000'000;

/// What to write for a quantity: "a number", "a time with its unit, such as ...".
std::string expected_quantity(Dimension dimension) {
    if (dimension == Dimension::scalar) {
        return "a number";
    }
    return "a number with its unit in quotes; accepted units: " +
           std::string(accepted_units(dimension));
}

std::string expected_choice(std::span<const std::string_view> names) {
    std::string out = "one of";
    for (std::size_t i = 0; i < names.size(); ++i) {
        out += (i == 0 ? " \"" : ", \"") + std::string(names[i]) + "\"";
    }
    return out;
}

Error out_of_bounds(const FieldMeta& meta, const std::string& value, const std::string& lo,
                    const std::string& hi, bool is_below, std::string_view where) {
    std::string hint = "write a value ";
    if (std::isinf(meta.hi)) {
        hint += "of at least " + lo;
    } else if (std::isinf(meta.lo)) {
        hint += "of at most " + hi;
    } else {
        hint += "from " + lo + " to " + hi;
    }
    return {ErrorCode::bad_input, std::string(where),
            value + (is_below ? " is below the smallest legal value, " + lo
                              : " is above the largest legal value, " + hi),
            std::move(hint)};
}

} // namespace

std::span<const std::string_view> annotation_keys() {
    static constexpr std::array<std::string_view, 4> keys = {"$schema", "comment", "notes",
                                                             "source"};
    return keys;
}

std::optional<Error> bounds_error(const FieldMeta& meta, Dimension dimension, double value,
                                  std::string_view where) {
    if (value >= meta.lo && value <= meta.hi) {
        return std::nullopt;
    }
    return out_of_bounds(meta, format_exact(value, dimension), format_exact(meta.lo, dimension),
                         format_exact(meta.hi, dimension), value < meta.lo, where);
}

std::optional<Error> integer_bounds_error(const FieldMeta& meta, std::int64_t value,
                                          std::string_view where) {
    const auto number = static_cast<double>(value);
    if (number >= meta.lo && number <= meta.hi) {
        return std::nullopt;
    }
    return out_of_bounds(meta, std::to_string(value), format_exact(meta.lo, Dimension::scalar),
                         format_exact(meta.hi, Dimension::scalar), number < meta.lo, where);
}

Error choice_error(const FieldMeta& meta, std::span<const std::string_view> names,
                   std::string_view given, std::string_view where) {
    const auto nearest = nearest_name(given, names);
    const std::string label(meta.label.empty() ? meta.key : meta.label);
    return {ErrorCode::bad_input, std::string(where),
            in_quotes(given) + " is not a choice for " + (label.empty() ? "this" : label),
            (nearest ? "did you mean \"" + *nearest + "\"? " : "") + expected_choice(names)};
}

std::string path_step(std::string_view key) {
    const bool plain = !key.empty() && key.find_first_of(".[]{}") == std::string_view::npos;
    return plain ? "." + std::string(key) : ".{" + std::string(key) + "}";
}

// --- where we are ----------------------------------------------------------------------------

std::string JsonReader::where(const FieldMeta& meta) const {
    std::string pointer = base_pointer_;
    for (const std::string& step : pointer_steps_) {
        pointer += step;
    }
    if (!at_element_ && !meta.key.empty()) {
        pointer += pointer_token(meta.key);
    }
    return where_text(source_, pointer);
}

void JsonReader::fail(Error error) {
    if (!error_) {
        error_ = std::move(error);
    }
}

void JsonReader::note_default(const FieldMeta& meta, std::string value) {
    if (notes_ == nullptr || mode_ == ReadMode::over) {
        return;
    }
    std::string path;
    for (const std::string& step : path_steps_) {
        path += step;
    }
    path += path_step(meta.key);
    notes_->defaults_taken.push_back({path.substr(1), std::move(value)}); // no dot in front
}

void JsonReader::report_missing(const FieldMeta& meta, std::string_view expected) {
    Scope* scope = scope_;
    while (scope->json == nullptr && scope->outer != nullptr) {
        scope = scope->outer;
    }
    if (scope->missing) {
        return;
    }
    std::string hint = "add " + in_quotes(meta.key) + ": " + std::string(expected);
    hint += meta.doc.empty() ? "" : " (" + std::string(meta.doc) + ")";
    const FieldMeta object; // the key itself stands nowhere
    scope->missing = Error{ErrorCode::bad_input, where(object),
                           "the key " + in_quotes(meta.key) + " is missing", std::move(hint)};
}

void JsonReader::check_default(const FieldMeta& meta, std::string_view expected, double value,
                               std::string text) {
    if (mode_ == ReadMode::whole && !(value >= meta.lo && value <= meta.hi)) {
        return report_missing(meta, expected);
    }
    note_default(meta, std::move(text));
}

const JsonNode* JsonReader::take(const FieldMeta& meta, std::string_view expected) {
    default_stands_ = false;
    if (error_) {
        return nullptr;
    }
    at_element_ = element_ != nullptr;
    if (at_element_) {
        return std::exchange(element_, nullptr);
    }
    scope_->known.emplace_back(meta.key);
    const JsonNode* node = scope_->json != nullptr ? scope_->json->find(meta.key) : nullptr;
    if (node != nullptr) {
        return node;
    }
    if (meta.required && scope_->json != nullptr && mode_ == ReadMode::whole) {
        report_missing(meta, expected);
        return nullptr;
    }
    default_stands_ = true;
    return nullptr;
}

void JsonReader::wrong_type(const FieldMeta& meta, const JsonNode& node, std::string_view expected,
                            std::string hint) {
    if (node.kind() == JsonKind::null) {
        hint = meta.required ? "write " + std::string(expected)
                             : "leave the key out to take the default";
    }
    fail({ErrorCode::bad_input, where(meta),
          std::string(expected) + " is expected, and this is " + description(node),
          std::move(hint)});
}

// --- plain values ----------------------------------------------------------------------------

void JsonReader::integer(const FieldMeta& meta, std::int64_t& value) {
    const JsonNode* node = take(meta, "a whole number");
    if (node == nullptr) {
        if (keeps_default()) {
            check_default(meta, "a whole number", static_cast<double>(value),
                          std::to_string(value));
        }
        return;
    }
    if (node->kind() == JsonKind::null) {
        return wrong_type(meta, *node, "a whole number", "");
    }
    auto read = to_integer(*node, where(meta));
    if (!read) {
        return fail(std::move(read).error());
    }
    if (auto error = integer_bounds_error(meta, *read, where(meta))) {
        return fail(std::move(*error));
    }
    value = *read;
}

void JsonReader::quantity(const FieldMeta& meta, Dimension dimension, double& base) {
    const JsonNode* node = take(meta, expected_quantity(dimension));
    if (node == nullptr) {
        if (keeps_default()) {
            check_default(meta, expected_quantity(dimension), base, format_exact(base, dimension));
        }
        return;
    }
    double number = 0.0;
    const auto* whole = std::get_if<std::int64_t>(&node->value);
    const auto* real = std::get_if<double>(&node->value);
    const auto* words = std::get_if<std::string>(&node->value);
    if (whole != nullptr || real != nullptr) {
        number = whole != nullptr ? static_cast<double>(*whole) : *real;
        if (dimension != Dimension::scalar && number != 0.0) {
            // Refused, with the words text without unit gets.
            auto read =
                parse_quantity(format_exact(number, Dimension::scalar), dimension, where(meta));
            return fail(std::move(read).error());
        }
    } else if (words != nullptr && dimension != Dimension::scalar) {
        auto read = parse_quantity(*words, dimension, where(meta));
        if (!read) {
            return fail(std::move(read).error());
        }
        number = *read;
    } else {
        std::string hint = dimension == Dimension::scalar ? "write it without quotes"
                                                          : "write " + expected_quantity(dimension);
        return wrong_type(meta, *node, dimension == Dimension::scalar ? "a number" : "an amount",
                          std::move(hint));
    }
    if (auto error = bounds_error(meta, dimension, number, where(meta))) {
        return fail(std::move(*error));
    }
    base = number;
}

void JsonReader::flag(const FieldMeta& meta, bool& value) {
    const JsonNode* node = take(meta, "true or false");
    if (node == nullptr) {
        if (keeps_default()) {
            note_default(meta, value ? "true" : "false");
        }
        return;
    }
    const auto* read = std::get_if<bool>(&node->value);
    if (read == nullptr) {
        return wrong_type(meta, *node, "true or false", "write true or false, without quotes");
    }
    value = *read;
}

void JsonReader::text(const FieldMeta& meta, std::string& value) {
    const JsonNode* node = take(meta, "a text in double quotes");
    if (node == nullptr) {
        if (keeps_default()) {
            note_default(meta, value);
        }
        return;
    }
    const auto* read = std::get_if<std::string>(&node->value);
    if (read == nullptr) {
        return wrong_type(meta, *node, "a text", "put it in double quotes");
    }
    value = *read;
}

void JsonReader::choice(const FieldMeta& meta, std::span<const std::string_view> names,
                        std::size_t& index) {
    const JsonNode* node = take(meta, expected_choice(names));
    if (node == nullptr) {
        if (keeps_default()) {
            note_default(meta, std::string(names[index]));
        }
        return;
    }
    const auto* read = std::get_if<std::string>(&node->value);
    if (read == nullptr) {
        return wrong_type(meta, *node, "a name", "write " + expected_choice(names));
    }
    const auto found = std::find(names.begin(), names.end(), *read);
    if (found == names.end()) {
        return fail(choice_error(meta, names, *read, where(meta)));
    }
    index = static_cast<std::size_t>(found - names.begin());
}

// --- lists, maps, objects --------------------------------------------------------------------

template <class Visit>
void JsonReader::descend(std::string pointer_step, std::string path_step, const Visit& visit) {
    pointer_steps_.push_back(std::move(pointer_step));
    path_steps_.push_back(std::move(path_step));
    visit();
    pointer_steps_.pop_back();
    path_steps_.pop_back();
}

void JsonReader::list(const FieldMeta& meta, ListAccess& items) {
    const JsonNode* node = take(meta, "a list in brackets");
    if (node == nullptr) {
        if (keeps_default()) {
            note_default(meta, text_of(items));
        }
        return;
    }
    const bool is_element = at_element_;
    const auto* array = node->array();
    if (array == nullptr) {
        return wrong_type(meta, *node, "a list", "put it in brackets: [ ... ]");
    }
    if (array->items.size() > longest_list) {
        return fail({ErrorCode::bad_input, where(meta), "the list has more than a million elements",
                     "no list that is meant for this program has"});
    }
    // Elements are new, so that all their required keys must be there.
    const ReadMode outer = std::exchange(mode_, ReadMode::whole);
    items.resize(0);
    const auto read_items = [&] {
        for (std::size_t i = 0; i < array->items.size() && !error_; ++i) {
            items.resize(i + 1); // one by one: an early Error must not cost the memory of all
            const std::string index = std::to_string(i);
            FieldMeta element = meta;
            element.key = index;
            descend("/" + index, "[" + index + "]", [&] {
                element_ = &array->items[i];
                items.visit(*this, element, i);
            });
        }
    };
    if (is_element) {
        read_items();
    } else {
        descend(pointer_token(meta.key), path_step(meta.key), read_items);
    }
    mode_ = outer;
}

void JsonReader::map(const FieldMeta& meta, MapAccess& items) {
    const JsonNode* node = take(meta, "an object in braces");
    if (node == nullptr) {
        if (keeps_default()) {
            note_default(meta, text_of(items));
        }
        return;
    }
    const bool is_element = at_element_;
    const auto* object = node->object();
    if (object == nullptr) {
        return wrong_type(meta, *node, "an object", "put it in braces: { ... }");
    }
    const auto before = items.keys();
    const auto read_entries = [&] {
        for (std::size_t i = 0; i < object->keys.size() && !error_; ++i) {
            const std::string& key = object->keys[i];
            const bool is_new = std::find(before.begin(), before.end(), key) == before.end();
            const ReadMode outer = std::exchange(mode_, is_new ? ReadMode::whole : mode_);
            FieldMeta entry = meta;
            entry.key = key;
            descend(pointer_token(key), path_step(key), [&] {
                element_ = &object->values[i];
                items.visit(*this, entry, key);
            });
            mode_ = outer;
        }
    };
    if (is_element) {
        read_entries();
    } else {
        descend(pointer_token(meta.key), path_step(meta.key), read_entries);
    }
}

void JsonReader::object(const FieldMeta& meta, ObjectAccess& fields) {
    const JsonNode* node = take(meta, "an object in braces");
    if (node == nullptr && !keeps_default()) {
        return;
    }
    const bool is_element = node != nullptr && at_element_;
    const auto* json = node != nullptr ? node->object() : nullptr;
    if (node != nullptr && json == nullptr) {
        return wrong_type(meta, *node, "an object", "put it in braces: { ... }");
    }
    // A Constant stated over another one is confirmed or not by its own words.
    auto* constant = dynamic_cast<FieldsOf<Constant>*>(&fields);
    if (constant != nullptr && json != nullptr &&
        std::find(json->keys.begin(), json->keys.end(), "origin") != json->keys.end()) {
        constant->value().unconfirmed = false;
    }
    // An absent object is visited too: each of its defaults is noted.
    if (is_element) {
        visit_scope(json, fields);
    } else {
        descend(pointer_token(meta.key), path_step(meta.key), [&] { visit_scope(json, fields); });
    }
}

void JsonReader::visit_scope(const JsonObject* json, ObjectAccess& fields) {
    Scope scope{json, scope_, {}, std::nullopt};
    Scope* const outer = std::exchange(scope_, &scope);
    fields.visit_fields(*this);
    finish(scope);
    scope_ = outer;
}

void JsonReader::finish(Scope& scope) {
    if (error_ || scope.json == nullptr) {
        return;
    }
    const auto annotations = annotation_keys();
    for (const std::string& key : scope.json->keys) {
        const bool known =
            std::find(scope.known.begin(), scope.known.end(), key) != scope.known.end() ||
            std::find(annotations.begin(), annotations.end(), key) != annotations.end();
        if (!known) {
            FieldMeta stranger;
            stranger.key = key;
            at_element_ = false;
            // Before what is missing: a misspelt key explains both.
            return fail({ErrorCode::bad_input, where(stranger),
                         "there is no field " + in_quotes(key) + " here",
                         nearest_hint(key, scope.known)});
        }
    }
    if (scope.missing) {
        fail(std::move(*scope.missing));
    }
}

bool JsonReader::optional(const FieldMeta& meta, bool present) {
    if (error_) {
        return present;
    }
    if (element_ != nullptr) {
        if (element_->kind() == JsonKind::null) {
            element_ = nullptr;
            return false;
        }
        return true;
    }
    const JsonNode* node = scope_->json != nullptr ? scope_->json->find(meta.key) : nullptr;
    if (node != nullptr && node->kind() != JsonKind::null) {
        return true;
    }
    if (node == nullptr && present) {
        return true; // the visit of the value finds it absent and keeps the default
    }
    scope_->known.emplace_back(meta.key);
    if (node == nullptr) {
        note_default(meta, "none");
    }
    return false;
}

Status read_object(const JsonValue& value, ObjectAccess& fields, ReadMode mode, ReadNotes* notes) {
    JsonReader reader(value.source_name(), value.pointer(), mode, notes);
    reader.next_is(value.node());
    reader.object(FieldMeta{}, fields);
    if (reader.error()) {
        return *reader.error();
    }
    return Done{};
}

Status read_object(std::string_view text, std::string_view source_name, ObjectAccess& fields,
                   ReadMode mode, ReadNotes* notes) {
    const auto value = JsonValue::parse(text, source_name);
    if (!value) {
        return value.error();
    }
    return read_object(*value, fields, mode, notes);
}

} // namespace shardplan::sim::detail
