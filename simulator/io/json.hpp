#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

/// JSON in and out; the library behind it is seen in .cpp files only.
///
/// Accepted text: RFC 8259 JSON in UTF-8, with or without a byte order mark, any line ends, at most
/// 64 MiB, 64 levels deep, 4 million values. Repeated keys, comments, NaN and infinities are
/// errors. `Error::where` is "source: /json/pointer", or "source:line:column" where the text is not
/// JSON.
namespace shardplan::sim {

namespace detail {
struct JsonDocument;
struct JsonNode;
} // namespace detail

// --- looking into JSON of any shape ----------------------------------------------------------

/// `integer` is a whole number that fits 64 bits with sign and was written without point or
/// exponent; any other number is `number`.
enum class JsonKind { null, boolean, integer, number, string, array, object };

/// A value inside a parsed text: cheap to copy, keeps the whole text's tree alive, never changes.
class JsonValue {
public:
    /// `source_name` (a file name or a flag) begins the `where` of every Error.
    static Result<JsonValue> parse(std::string_view text, std::string_view source_name);

    [[nodiscard]] JsonKind kind() const;
    [[nodiscard]] bool is_null() const { return kind() == JsonKind::null; }
    [[nodiscard]] bool is_bool() const { return kind() == JsonKind::boolean; }
    /// A whole number or not.
    [[nodiscard]] bool is_number() const;
    [[nodiscard]] bool is_string() const { return kind() == JsonKind::string; }
    [[nodiscard]] bool is_array() const { return kind() == JsonKind::array; }
    [[nodiscard]] bool is_object() const { return kind() == JsonKind::object; }

    /// The member of an object; nothing if there is none or this is not an object. A member that
    /// is null is found.
    [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
    /// The member of an object, or an Error with the nearest key.
    [[nodiscard]] Result<JsonValue> get(std::string_view key) const;
    /// Element i of an array or value i of an object, in the order of the text; `i < size()`.
    [[nodiscard]] JsonValue at(std::size_t i) const;
    /// Number of elements or members; 0 for anything else.
    [[nodiscard]] std::size_t size() const;
    /// The keys of an object in the order of the text; empty for anything else.
    [[nodiscard]] std::vector<std::string> keys() const;

    /// A whole number, however written (4096, 4096.0, 4e3); an Error if it is not a number, not
    /// whole or beyond 64 bits (beyond 2^53 when written with point or exponent).
    [[nodiscard]] Result<std::int64_t> as_int() const;
    [[nodiscard]] Result<double> as_double() const;
    [[nodiscard]] Result<std::string> as_string() const;
    [[nodiscard]] Result<bool> as_bool() const;

    /// RFC 6901 pointer from the root of the text; empty for the root.
    [[nodiscard]] const std::string& pointer() const { return pointer_; }
    /// "source: /json/pointer", for errors of the caller's own about this value.
    [[nodiscard]] std::string where() const;
    /// The name given to `parse`.
    [[nodiscard]] const std::string& source_name() const;
    /// The value as JSON text on one line.
    [[nodiscard]] std::string text() const;

    /// For the reader of described types.
    [[nodiscard]] const detail::JsonNode& node() const { return *node_; }

private:
    JsonValue(std::shared_ptr<const detail::JsonDocument> document, const detail::JsonNode* node,
              std::string pointer)
        : document_(std::move(document)), node_(node), pointer_(std::move(pointer)) {}

    std::shared_ptr<const detail::JsonDocument> document_;
    const detail::JsonNode* node_;
    std::string pointer_;
};

// --- reading described types -----------------------------------------------------------------

/// A field that was not in the text.
struct DefaultTaken {
    std::string path;  ///< as in `--set`: "sequence.mean", "node_groups[0].count"
    std::string value; ///< what stands in for it, as a person would write it; "none" if nothing

    friend bool operator==(const DefaultTaken&, const DefaultTaken&) = default;
};

/// What a reader decided on its own.
struct ReadNotes {
    std::vector<DefaultTaken> defaults_taken;

    friend bool operator==(const ReadNotes&, const ReadNotes&) = default;
};

namespace detail {
/// `over`: `fields` hold a whole value already, so that no key of it is required.
enum class ReadMode { whole, over };
Status read_object(std::string_view text, std::string_view source_name, ObjectAccess& fields,
                   ReadMode mode, ReadNotes* notes);
Status read_object(const JsonValue& value, ObjectAccess& fields, ReadMode mode, ReadNotes* notes);
} // namespace detail

/// Reads a described type and refuses: keys it does not know (naming the nearest it does), repeated
/// keys, wrong types, numbers outside their bounds, quantities without unit (except 0), unknown
/// choices, missing required keys. A key that is absent takes the default, which goes to `notes` if
/// given; null stands for absent where the field is optional in its type, else it is refused.
///
/// The keys "$schema", "comment", "notes" and "source" may stand in any object that has no field of
/// that name, with any value; they are for people and are not kept. Inside a map (an object whose
/// keys are names chosen by the writer) every key counts.
template <Described T>
Result<T> read_described(std::string_view json_text, std::string_view source_name,
                         ReadNotes* notes = nullptr) {
    T value{};
    FieldsOf<T> fields(value);
    const Status status =
        detail::read_object(json_text, source_name, fields, detail::ReadMode::whole, notes);
    if (!status) {
        return status.error();
    }
    return value;
}

/// The same from a value inside a larger text.
template <Described T>
Result<T> read_described(const JsonValue& json, ReadNotes* notes = nullptr) {
    T value{};
    FieldsOf<T> fields(value);
    const Status status = detail::read_object(json, fields, detail::ReadMode::whole, notes);
    if (!status) {
        return status.error();
    }
    return value;
}

/// `base` with the fields that stand in `json` replaced: for files that state only what differs.
/// No key of `base` is required, and fields that are absent are not defaults. Lists are replaced
/// whole, maps key by key.
template <Described T>
Result<T> read_described_over(T base, const JsonValue& json) {
    FieldsOf<T> fields(base);
    const Status status = detail::read_object(json, fields, detail::ReadMode::over, nullptr);
    if (!status) {
        return status.error();
    }
    return base;
}

// --- writing ---------------------------------------------------------------------------------

enum class Indent {
    compact, ///< one line, no spaces
    pretty,  ///< two spaces a level; small lists and objects of plain values on one line
};

/// Writes JSON of any shape, keys in the order they are given. Numbers are written with the fewest
/// digits that read back to the same double; NaN and infinities become null; bytes that are not
/// UTF-8 become U+FFFD. Calls must nest properly and give a key to each member of an object.
class JsonWriter {
public:
    explicit JsonWriter(Indent indent = Indent::pretty) : indent_(indent) {}

    JsonWriter& begin_object();
    JsonWriter& begin_object(std::string_view key) { return this->key(key).begin_object(); }
    JsonWriter& end_object();
    JsonWriter& begin_array();
    JsonWriter& begin_array(std::string_view key) { return this->key(key).begin_array(); }
    JsonWriter& end_array();

    /// The key of the value that comes next.
    JsonWriter& key(std::string_view key);

    JsonWriter& value(std::nullptr_t);
    JsonWriter& value(bool v);
    JsonWriter& value(double v);
    JsonWriter& value(std::string_view v);
    JsonWriter& value(const std::string& v) { return value(std::string_view(v)); }
    JsonWriter& value(const char* v) { return value(std::string_view(v)); }
    template <std::integral I>
    requires(!std::same_as<I, bool>) JsonWriter& value(I v) {
        if constexpr (std::is_signed_v<I>) {
            return signed_integer(v);
        } else {
            return unsigned_integer(v);
        }
    }
    /// A described value, as `write_described` writes it.
    template <Described T>
    JsonWriter& value(const T& v) {
        T copy = v; // describe() takes a mutable value
        FieldsOf<T> fields(copy);
        return object(fields);
    }
    template <class T>
    JsonWriter& value(const std::optional<T>& v) {
        return v ? value(*v) : value(nullptr);
    }
    /// A value as it was read, on one line.
    JsonWriter& value(const JsonValue& v) { return raw(v.text()); }

    /// `key` and `value` in one call.
    template <class V>
    JsonWriter& member(std::string_view key, const V& v) {
        this->key(key);
        return value(v);
    }

    /// The text so far; whole once every begin has its end. `pretty` text ends with a line end.
    [[nodiscard]] std::string str() const;

    /// For `value` of described types: the fields in the order of `describe`, none left out,
    /// quantities as exact text with unit, optional fields that are absent as null.
    JsonWriter& object(ObjectAccess& fields);

private:
    struct Level {
        std::size_t start = 0;          ///< offset of the bracket in text_
        std::vector<std::size_t> items; ///< offsets of the items in text_, pretty only
        std::size_t count = 0;
        bool is_object = false;
        bool has_nested = false;
    };

    JsonWriter& signed_integer(std::int64_t v);
    JsonWriter& unsigned_integer(std::uint64_t v);
    JsonWriter& raw(std::string_view json);
    JsonWriter& begin(char bracket);
    JsonWriter& end(char bracket);
    void before_item();
    void new_line(std::size_t depth);

    Indent indent_;
    std::string text_;
    std::vector<Level> levels_;
    bool key_given_ = false;
};

/// A described value as JSON text; `read_described` turns it back into an equal value, as long as
/// no number in it is NaN or infinite (those become null, which the reader refuses).
template <Described T>
std::string write_described(const T& value, Indent indent = Indent::pretty) {
    return JsonWriter(indent).value(value).str();
}

} // namespace shardplan::sim
