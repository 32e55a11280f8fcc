#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "simulator/io/json.hpp"
#include "simulator/units/result.hpp"

/// The parsed form behind JsonValue and the reader of described types; private to simulator/io.
namespace shardplan::sim::detail {

struct JsonArray;
struct JsonObject;

/// One value; the alternatives stand in the order of JsonKind.
struct JsonNode {
    std::variant<std::monostate, bool, std::int64_t, double, std::string,
                 std::unique_ptr<JsonArray>, std::unique_ptr<JsonObject>>
        value;

    [[nodiscard]] JsonKind kind() const { return static_cast<JsonKind>(value.index()); }
    /// nullptr if this is something else.
    [[nodiscard]] const JsonArray* array() const;
    [[nodiscard]] const JsonObject* object() const;
};

struct JsonArray {
    std::vector<JsonNode> items;
};

/// Members in the order of the text; keys are unique.
struct JsonObject {
    std::vector<std::string> keys;
    std::vector<JsonNode> values;
    std::vector<std::uint32_t> by_key; ///< places sorted by key; empty for a few members

    [[nodiscard]] const JsonNode* find(std::string_view key) const;
};

struct JsonDocument {
    std::string source;
    JsonNode root;
};

Result<std::shared_ptr<const JsonDocument>> parse_json(std::string_view text,
                                                       std::string_view source_name);

/// "/" and the key as a token of a JSON pointer.
std::string pointer_token(std::string_view key);
/// "source: /pointer", or the source alone for the root.
std::string where_text(std::string_view source, std::string_view pointer);

/// "text \"abc\"", "the number 4", "a list": what stands there, for messages.
std::string description(const JsonNode& node);
/// The whole number a node holds, however it is written; the Error says why it holds none.
Result<std::int64_t> to_integer(const JsonNode& node, std::string_view where);

void write_node(JsonWriter& writer, const JsonNode& node);
/// Compact JSON text of a described list or map.
std::string text_of(ListAccess& items);
std::string text_of(MapAccess& items);

} // namespace shardplan::sim::detail
