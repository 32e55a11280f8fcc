#include "simulator/io/setting.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulator/io/json.hpp"
#include "simulator/io/json_reader.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim::detail {

namespace {

/// The keys and indices of a path; nothing if it is not well formed.
std::optional<std::vector<std::string>> split_path(std::string_view path) {
    std::vector<std::string> steps;
    std::size_t i = 0;
    while (i < path.size()) {
        const char c = path[i];
        if (c == '.' && !steps.empty() && i + 1 < path.size() && path[i + 1] != '[') {
            ++i;
        } else if (!steps.empty() && c != '[') {
            return std::nullopt;
        }
        const char open = path[i];
        if (open == '{' || open == '[') {
            const std::size_t close = path.find(open == '{' ? '}' : ']', i);
            if (close == std::string_view::npos) {
                return std::nullopt;
            }
            steps.emplace_back(path.substr(i + 1, close - i - 1));
            i = close + 1;
        } else {
            const std::size_t end = std::min(path.find_first_of(".[", i), path.size());
            steps.emplace_back(path.substr(i, end - i));
            i = end;
        }
        if (steps.back().empty()) {
            return std::nullopt;
        }
    }
    return steps.empty() ? std::nullopt : std::optional(std::move(steps));
}

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The pieces between commas outside of quotes; text without commas is one piece.
std::vector<std::string_view> pieces_of(std::string_view text) {
    std::vector<std::string_view> pieces;
    while (true) {
        const std::size_t comma = text.find(',');
        pieces.push_back(trimmed(text.substr(0, comma)));
        if (comma == std::string_view::npos) {
            return pieces;
        }
        text.remove_prefix(comma + 1);
    }
}

/// Follows the path and sets the value at its end; everything beside the path stays as it is.
class Setter final : public FieldVisitor {
public:
    Setter(std::vector<std::string> steps, std::string_view value, std::string_view where)
        : steps_(std::move(steps)), value_(value), where_(where) {}

    [[nodiscard]] bool found() const { return found_; }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }
    /// The keys at the level where the path led no further.
    [[nodiscard]] const std::vector<std::string>& keys_there() const { return keys_there_; }

    void integer(const FieldMeta& meta, std::int64_t& value) override;
    void quantity(const FieldMeta& meta, Dimension dimension, double& base) override;
    void flag(const FieldMeta& meta, bool& value) override;
    void text(const FieldMeta& meta, std::string& value) override;
    void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                std::size_t& index) override;
    void list(const FieldMeta& meta, ListAccess& items) override;
    void map(const FieldMeta& meta, MapAccess& items) override;
    void object(const FieldMeta& meta, ObjectAccess& fields) override;
    bool optional(const FieldMeta& meta, bool present) override;
    /// The fields of the root.
    void start(ObjectAccess& root) { root.visit_fields(*this); }

private:
    /// Whether the path goes through this field; takes the step if so.
    bool enter(const FieldMeta& meta);
    /// The same for a value that has nothing below it.
    bool enter_leaf(const FieldMeta& meta);
    [[nodiscard]] bool at_end() const { return next_ == steps_.size(); }
    void fail(std::string what, std::string hint) {
        if (!error_) {
            error_ = Error{ErrorCode::bad_input, where_, std::move(what), std::move(hint)};
        }
    }
    void fail(Error error) {
        if (!error_) {
            error_ = std::move(error);
        }
    }
    /// Hands JSON text to the reader of files.
    template <class Read>
    void read_json(const Read& read);
    void element(ListAccess& items, const FieldMeta& meta, std::size_t i, std::string_view value);

    std::vector<std::string> steps_;
    std::size_t next_ = 0;
    std::string_view value_;
    std::string where_;
    bool inside_ = false; ///< the next visit is the value itself, its step taken
    bool found_ = false;
    bool lost_ = false; ///< the path led into a field and not on: fields beside it are not meant
    std::optional<Error> error_;
    std::vector<std::string> keys_there_;
};

bool Setter::enter(const FieldMeta& meta) {
    if (inside_) {
        inside_ = false;
        return true;
    }
    if (found_ || lost_ || error_) {
        return false;
    }
    keys_there_.emplace_back(meta.key);
    if (at_end() || steps_[next_] != meta.key) {
        return false;
    }
    ++next_;
    keys_there_.clear();
    return true;
}

bool Setter::enter_leaf(const FieldMeta& meta) {
    if (!enter(meta)) {
        return false;
    }
    found_ = true;
    if (!at_end()) {
        fail("the path goes on after " + in_quotes(steps_[next_ - 1]) + ", which is a plain value",
             "leave out what follows it");
        return false;
    }
    return true;
}

void Setter::integer(const FieldMeta& meta, std::int64_t& value) {
    if (!enter_leaf(meta)) {
        return;
    }
    std::int64_t number = 0;
    const auto read = std::from_chars(value_.data(), value_.data() + value_.size(), number);
    if (read.ec != std::errc() || read.ptr != value_.data() + value_.size()) {
        // 1e6 and 8.0 are whole numbers too; the file reader decides which.
        auto real = parse_quantity(value_, Dimension::scalar, where_);
        if (!real) {
            const bool in_thousands = read.ec == std::errc() && number > 0 && number < 1'000'000 &&
                                      value_.end() - read.ptr == 1 &&
                                      (*read.ptr == 'k' || *read.ptr == 'K');
            if (in_thousands) {
                return fail({ErrorCode::bad_input, std::string(where_),
                             "counts are written digit by digit, and this is " + in_quotes(value_),
                             "write " + std::to_string(number * 1024) + " or " +
                                 std::to_string(number * 1000)});
            }
            return fail(std::move(real).error());
        }
        const auto whole = to_integer(JsonNode{*real}, where_);
        if (!whole) {
            return fail(whole.error());
        }
        number = *whole;
    }
    if (auto error = integer_bounds_error(meta, number, where_)) {
        return fail(std::move(*error));
    }
    value = number;
}

void Setter::quantity(const FieldMeta& meta, Dimension dimension, double& base) {
    if (!enter_leaf(meta)) {
        return;
    }
    const auto number = parse_quantity(value_, dimension, where_);
    if (!number) {
        return fail(number.error());
    }
    if (auto error = bounds_error(meta, dimension, *number, where_)) {
        return fail(std::move(*error));
    }
    base = *number;
}

void Setter::flag(const FieldMeta& meta, bool& value) {
    if (!enter_leaf(meta)) {
        return;
    }
    if (value_ != "true" && value_ != "false") {
        return fail("true or false is expected, and this is " + in_quotes(value_),
                    "write true or false");
    }
    value = value_ == "true";
}

void Setter::text(const FieldMeta& meta, std::string& value) {
    if (enter_leaf(meta)) {
        value = value_;
    }
}

void Setter::choice(const FieldMeta& meta, std::span<const std::string_view> names,
                    std::size_t& index) {
    if (!enter_leaf(meta)) {
        return;
    }
    const auto found = std::find(names.begin(), names.end(), value_);
    if (found == names.end()) {
        return fail(choice_error(meta, names, value_, where_));
    }
    index = static_cast<std::size_t>(found - names.begin());
}

template <class Read>
void Setter::read_json(const Read& read) {
    const auto json = JsonValue::parse(value_, where_);
    if (!json) {
        return fail(json.error());
    }
    JsonReader reader(where_, "", ReadMode::whole, nullptr);
    reader.next_is(json->node());
    read(reader);
    if (reader.error()) {
        fail(*reader.error());
    }
}

void Setter::element(ListAccess& items, const FieldMeta& meta, std::size_t i,
                     std::string_view value) {
    const std::string_view whole = std::exchange(value_, value);
    inside_ = true;
    items.visit(*this, meta, i);
    inside_ = false;
    value_ = whole;
}

void Setter::list(const FieldMeta& meta, ListAccess& items) {
    if (!enter(meta)) {
        return;
    }
    found_ = true;
    if (!at_end()) {
        const std::string& step = steps_[next_];
        std::size_t index = 0;
        const auto read = std::from_chars(step.data(), step.data() + step.size(), index);
        if (read.ec != std::errc() || read.ptr != step.data() + step.size() ||
            index >= items.size()) {
            const std::string list = in_quotes(meta.key);
            return fail(in_quotes(step) + " is not an element of " + list,
                        items.size() == 0
                            ? "the list is empty: give it whole"
                            : "elements are [0] to [" + std::to_string(items.size() - 1) + "]");
        }
        ++next_;
        found_ = false;
        element(items, meta, index, value_);
        lost_ = !found_;
        return;
    }
    if (!value_.empty() && trimmed(value_).substr(0, 1) == "[") {
        return read_json([&](JsonReader& reader) { reader.list(meta, items); });
    }
    const auto pieces = value_.empty() ? std::vector<std::string_view>{} : pieces_of(value_);
    items.resize(0);
    items.resize(pieces.size());
    for (std::size_t i = 0; i < pieces.size() && !error_; ++i) {
        element(items, meta, i, pieces[i]);
    }
}

void Setter::map(const FieldMeta& meta, MapAccess& items) {
    if (!enter(meta)) {
        return;
    }
    if (at_end()) {
        found_ = true;
        return read_json([&](JsonReader& reader) { reader.map(meta, items); });
    }
    const auto keys = items.keys();
    const std::string key = steps_[next_];
    const bool exists = std::find(keys.begin(), keys.end(), key) != keys.end();
    // A new key is made only for a value given whole; a path that goes on must meet what exists.
    if (!exists && next_ + 1 < steps_.size()) {
        keys_there_ = keys;
        lost_ = true;
        return;
    }
    ++next_;
    inside_ = true;
    FieldMeta entry = meta;
    entry.key = key;
    items.visit(*this, entry, key);
    inside_ = false;
    lost_ = !found_;
}

void Setter::object(const FieldMeta& meta, ObjectAccess& fields) {
    if (!enter(meta)) {
        return;
    }
    if (!at_end()) {
        fields.visit_fields(*this);
        lost_ = !found_;
        return;
    }
    found_ = true;
    if (!value_.empty() && trimmed(value_).substr(0, 1) == "{") {
        return read_json([&](JsonReader& reader) { reader.object(meta, fields); });
    }
    const auto inside = collect_fields(fields, "");
    std::string hint = "name one of its fields";
    for (std::size_t i = 0; i < inside.size() && i < 6; ++i) {
        hint += (i == 0 ? ": " : ", ") + inside[i].path;
    }
    fail(in_quotes(steps_.back()) + " is a group of fields, not one value",
         hint + (inside.size() > 6 ? ", ..." : ""));
}

bool Setter::optional(const FieldMeta& meta, bool present) {
    if (inside_ || found_ || lost_ || error_ || at_end() || steps_[next_] != meta.key) {
        if (!inside_ && !found_ && !lost_ && !error_ && !present) {
            keys_there_.emplace_back(meta.key); // a present one is visited, and adds itself
        }
        return inside_ ? value_ != "null" : present;
    }
    if (next_ + 1 == steps_.size() && value_ == "null") {
        ++next_;
        found_ = true;
        return false;
    }
    return true;
}

Error unknown_path(ObjectAccess& root, const Setter& setter, std::string_view path,
                   std::string_view where) {
    std::vector<std::string> paths;
    for (const FieldInfo& row : collect_fields(root, "")) {
        paths.push_back(row.path);
    }
    Error error{ErrorCode::not_found, std::string(where),
                "there is no field " + in_quotes(path) + " to set", ""};
    const std::string ending = "." + std::string(path);
    for (const std::string& candidate : paths) {
        if (candidate.size() > ending.size() &&
            candidate.compare(candidate.size() - ending.size(), ending.size(), ending) == 0) {
            error.hint = "did you mean " + in_quotes(candidate) + "?";
            return error;
        }
    }
    if (const auto nearest = nearest_name(path, paths)) {
        error.hint = "did you mean " + in_quotes(*nearest) + "?";
    } else {
        error.hint = nearest_hint(path, setter.keys_there());
    }
    return error;
}

} // namespace

Status apply_setting(ObjectAccess& root, std::string_view path, std::string_view value_text,
                     std::string_view where) {
    auto steps = split_path(path);
    if (!steps) {
        return Error{ErrorCode::bad_input, std::string(where),
                     in_quotes(path) + " is not a path to a field",
                     "join keys with dots, such as sequence.mean or node_groups[0].count"};
    }
    Setter setter(std::move(*steps), value_text, where);
    setter.start(root);
    if (setter.error()) {
        return *setter.error();
    }
    if (!setter.found()) {
        return unknown_path(root, setter, path, where);
    }
    return Done{};
}

} // namespace shardplan::sim::detail
