#include "simulator/io/json_tree.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim::detail {

namespace {

constexpr std::size_t largest_text = std::size_t{64} << 20U;
constexpr std::size_t deepest_level = 64;
constexpr std::size_t most_values = 4'000'000;
/// Objects with more members are searched by a sorted index, the others one by one.
constexpr std::size_t few_members = 16;

/// Builds our tree from the events of the library's parser, whose own tree keeps only the last of
/// repeated keys and whose numbers wrap.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
public:
    TreeBuilder(std::string_view text, std::string_view source, JsonNode& root)
        : text_(text), source_(source), root_(root) {}

    [[nodiscard]] std::optional<Error>& error() { return error_; }

    bool null() override { return add({}) != nullptr; }
    bool boolean(bool v) override { return add({v}) != nullptr; }
    bool number_integer(number_integer_t v) override {
        return add({static_cast<std::int64_t>(v)}) != nullptr;
    }
    bool number_unsigned(number_unsigned_t v) override {
        constexpr auto largest =
            static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
        return (v <= largest ? add({static_cast<std::int64_t>(v)})
                             : add({static_cast<double>(v)})) != nullptr;
    }
    bool number_float(number_float_t v, const string_t& /*as_written*/) override {
        return add({v}) != nullptr;
    }
    bool string(string_t& v) override { return add({std::move(v)}) != nullptr; }
    bool binary(binary_t& /*v*/) override { return false; } // not part of JSON text

    bool start_object(std::size_t /*size*/) override {
        JsonNode* node = add({std::make_unique<JsonObject>()});
        return node != nullptr && open(nullptr, std::get<6>(node->value).get());
    }
    bool key(string_t& v) override {
        open_.back().object->keys.push_back(std::move(v));
        return true;
    }
    bool end_object() override {
        const std::string* repeated = index_keys(*open_.back().object);
        open_.pop_back();
        if (repeated != nullptr) {
            error_ = Error{ErrorCode::bad_input,
                           where_text(source_, pointer() + pointer_token(*repeated)),
                           "the key " + in_quotes(*repeated) + " stands twice in one object",
                           "remove one of the two"};
            return false;
        }
        return true;
    }
    bool start_array(std::size_t /*size*/) override {
        JsonNode* node = add({std::make_unique<JsonArray>()});
        return node != nullptr && open(std::get<5>(node->value).get(), nullptr);
    }
    bool end_array() override {
        open_.pop_back();
        return true;
    }
    bool parse_error(std::size_t position, const std::string& /*last_token*/,
                     const nlohmann::json::exception& problem) override;

private:
    struct Open {
        JsonArray* array;
        JsonObject* object;
    };

    /// Puts a value where the text stands; nullptr if there are too many.
    JsonNode* add(JsonNode node) {
        if (++count_ > most_values) {
            error_ =
                Error{ErrorCode::bad_input, where_text(source_, pointer()),
                      "the text holds more than 4 million values", "split it into several files"};
            return nullptr;
        }
        if (open_.empty()) {
            root_ = std::move(node);
            return &root_;
        }
        auto& siblings =
            open_.back().array != nullptr ? open_.back().array->items : open_.back().object->values;
        siblings.push_back(std::move(node));
        return &siblings.back();
    }

    bool open(JsonArray* array, JsonObject* object) {
        if (open_.size() == deepest_level) {
            error_ = Error{ErrorCode::bad_input, where_text(source_, pointer()),
                           "lists and objects are nested more than 64 levels deep",
                           "no file that is meant for this program is"};
            return false;
        }
        open_.push_back({array, object});
        return true;
    }

    /// Sorts the keys of a large object; the first key that stands twice, if one does.
    static const std::string* index_keys(JsonObject& object);

    /// Where the text stands, without what is not yet begun.
    [[nodiscard]] std::string pointer() const {
        std::string out;
        for (const Open& level : open_) {
            if (level.array != nullptr && !level.array->items.empty()) {
                out += "/" + std::to_string(level.array->items.size() - 1);
            } else if (level.object != nullptr && !level.object->keys.empty()) {
                out += pointer_token(level.object->keys.back());
            }
        }
        return out;
    }

    std::string_view text_;
    std::string_view source_;
    JsonNode& root_;
    std::vector<Open> open_;
    std::size_t count_ = 0;
    std::optional<Error> error_;
};

const std::string* TreeBuilder::index_keys(JsonObject& object) {
    const auto& keys = object.keys;
    if (keys.size() <= few_members) {
        for (std::size_t i = 1; i < keys.size(); ++i) {
            const auto here = keys.begin() + static_cast<std::ptrdiff_t>(i);
            if (std::find(keys.begin(), here, *here) != here) {
                return &*here;
            }
        }
        return nullptr;
    }
    object.by_key.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        object.by_key[i] = static_cast<std::uint32_t>(i);
    }
    std::sort(object.by_key.begin(), object.by_key.end(),
              [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    const auto repeated =
        std::adjacent_find(object.by_key.begin(), object.by_key.end(),
                           [&](std::uint32_t a, std::uint32_t b) { return keys[a] == keys[b]; });
    return repeated == object.by_key.end() ? nullptr : &keys[*repeated];
}

/// "source:line:column" of a byte; both count from 1.
std::string line_and_column(std::string_view text, std::size_t offset, std::string_view source) {
    const std::string_view before = text.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') + 1; // npos + 1 is 0
    return std::string(source) + ":" + std::to_string(line) + ":" +
           std::to_string(offset - line_start + 1);
}

bool starts_with_any(std::string_view text, const auto& words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return text.substr(0, word.size()) == word; });
}

/// What people most often do wrong at the place where parsing stopped.
std::string syntax_hint(std::string_view text, std::size_t offset) {
    const std::string_view rest = text.substr(offset);
    constexpr std::array<std::string_view, 5> not_finite = {"NaN", "Infinity", "-Infinity", "nan",
                                                            "inf"};
    constexpr std::array<std::string_view, 3> python = {"True", "False", "None"};
    constexpr std::array<std::string_view, 3> comment = {"//", "/*", "#"};
    if (starts_with_any(rest, not_finite) || rest.substr(0, 4) == "-inf") {
        return "NaN and infinities are not JSON: write a finite number or leave the key out";
    }
    if (starts_with_any(rest, python)) {
        return "JSON spells these true, false and null";
    }
    if (starts_with_any(rest, comment)) {
        return "JSON has no comments: use a key \"notes\"";
    }
    if (!rest.empty() && rest.front() == '\'') {
        return "use double quotes";
    }
    const std::size_t last = text.substr(0, offset).find_last_not_of(" \t\r\n");
    if (last != std::string_view::npos && text[last] == ',' &&
        (rest.empty() || rest.front() == '}' || rest.front() == ']')) {
        return "remove the comma before it";
    }
    if (rest.empty()) {
        return "the text ends too early: is it cut off, or a bracket or quote not closed?";
    }
    return "look for a missing comma, quote or bracket just before this place";
}

bool belongs_to_a_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '+' || c == '_';
}

/// The start of the word or string that the library stopped in. `read`: the text up to and with
/// the byte that did not fit.
std::size_t start_of_token(std::string_view read, std::string_view token,
                           std::string_view message) {
    if (!token.empty() && token.front() == '"' && read.size() >= token.size() &&
        read.substr(read.size() - token.size()) == token &&
        message.find("unexpected string literal") != std::string_view::npos) {
        return read.size() - token.size();
    }
    std::size_t start = read.size() - 1;
    const bool broken_word = message.find("invalid literal") != std::string_view::npos ||
                             message.find("invalid number") != std::string_view::npos;
    if (broken_word && start > 0 && !belongs_to_a_word(read[start]) &&
        belongs_to_a_word(read[start - 1])) {
        --start;
    }
    while (start > 0 && belongs_to_a_word(read[start]) && belongs_to_a_word(read[start - 1])) {
        --start;
    }
    return start;
}

/// The Error for a problem the library found after reading `position` bytes.
Error syntax_error(std::string_view text, std::string_view source, std::size_t position,
                   std::string_view token, std::string_view message, bool overflow) {
    const auto says = [&](std::string_view words) {
        return message.find(words) != std::string_view::npos;
    };
    const bool at_end = position > text.size() || position == 0;
    const std::size_t last = at_end ? text.size() : position - 1;
    const auto fail = [&](std::size_t offset, std::string what, std::string hint) {
        return Error{ErrorCode::bad_input, line_and_column(text, offset, source), std::move(what),
                     std::move(hint)};
    };
    if (says("UTF-8")) {
        return fail(last, "the text is not UTF-8", "save the file as UTF-8");
    }
    if (says("control character")) {
        return fail(last, "a line end or control character stands inside quotes",
                    "close the quotes before it, or write \\n or \\t");
    }
    if (says("invalid string") && !at_end) {
        return fail(last, "a backslash or \\u inside quotes has no meaning here",
                    "write two backslashes for one");
    }
    if (at_end) {
        return text.empty() ? fail(0, "the text is empty", "write a JSON object")
                            : fail(last, "this is not JSON: the text ends inside a value",
                                   syntax_hint(text, last));
    }
    const std::size_t start = start_of_token(text.substr(0, position), token, message);
    if (overflow) {
        return fail(start, "a number is too large for any computation", "check its exponent");
    }
    const std::string_view rest = text.substr(start);
    const std::size_t word = std::min<std::size_t>(rest.find_first_of(" \t\r\n,:]}"), rest.size());
    return fail(start,
                "this is not JSON: " + in_quotes(rest.substr(0, std::max<std::size_t>(1, word))) +
                    " does not belong here",
                syntax_hint(text, start));
}

bool TreeBuilder::parse_error(std::size_t position, const std::string& last_token,
                              const nlohmann::json::exception& problem) {
    constexpr int number_overflow = 406; // the library's number of this exception
    error_ = syntax_error(text_, source_, position, last_token, problem.what(),
                          problem.id == number_overflow);
    return false;
}

} // namespace

const JsonArray* JsonNode::array() const {
    const auto* held = std::get_if<std::unique_ptr<JsonArray>>(&value);
    return held != nullptr ? held->get() : nullptr;
}

const JsonObject* JsonNode::object() const {
    const auto* held = std::get_if<std::unique_ptr<JsonObject>>(&value);
    return held != nullptr ? held->get() : nullptr;
}

const JsonNode* JsonObject::find(std::string_view key) const {
    if (by_key.empty()) {
        const auto found = std::find(keys.begin(), keys.end(), key);
        return found == keys.end() ? nullptr
                                   : &values[static_cast<std::size_t>(found - keys.begin())];
    }
    const auto found = std::lower_bound(
        by_key.begin(), by_key.end(), key,
        [&](std::uint32_t i, std::string_view wanted) { return keys[i] < wanted; });
    return found == by_key.end() || keys[*found] != key ? nullptr : &values[*found];
}

Result<std::shared_ptr<const JsonDocument>> parse_json(std::string_view text,
                                                       std::string_view source_name) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.substr(0, byte_order_mark.size()) == byte_order_mark) {
        text.remove_prefix(byte_order_mark.size());
    }
    if (text.size() > largest_text) {
        return Error{ErrorCode::bad_input, std::string(source_name),
                     "the text is larger than 64 MiB", "split it into several files"};
    }
    // The library takes a zero byte for the end, and would not see what follows.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
        return Error{ErrorCode::bad_input, line_and_column(text, zero, source_name),
                     "the text holds a zero byte", "save the file as UTF-8 text"};
    }
    auto document = std::make_shared<JsonDocument>();
    document->source = source_name;
    TreeBuilder builder(text, source_name, document->root);
    bool whole = false;
    try {
        whole = nlohmann::json::sax_parse(text, &builder);
    } catch (const std::exception& problem) {
        return Error{ErrorCode::bad_input, std::string(source_name),
                     std::string("this cannot be read as JSON: ") + problem.what(),
                     "check that it is the file you mean"};
    }
    if (builder.error()) {
        return std::move(*builder.error());
    }
    if (!whole) {
        return Error{ErrorCode::bad_input, std::string(source_name), "this is not JSON",
                     "check that it is the file you mean"};
    }
    return std::shared_ptr<const JsonDocument>(std::move(document));
}

} // namespace shardplan::sim::detail
