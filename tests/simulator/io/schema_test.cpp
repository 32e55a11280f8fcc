#include "simulator/io/schema.hpp"

#include <string>

#include <gtest/gtest.h>
#include <regex.h>

#include "simulator/io/json.hpp"
#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

/// POSIX extended expressions agree with ECMA 262 on the few signs the patterns use.
bool matches(const std::string& pattern, const std::string& text) {
    regex_t compiled{};
    EXPECT_EQ(regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB), 0) << pattern;
    const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&compiled);
    return found;
}

JsonValue schema() {
    auto value = JsonValue::parse(schema_of<Cart>("Cart", "https://example.org/cart"), "schema");
    EXPECT_TRUE(value) << to_text(value.error());
    return *value;
}

JsonValue property(std::string_view key) { return *schema().get("properties")->find(key); }

TEST(Schema, NamesItsDialectAndRefusesUnknownKeys) {
    EXPECT_EQ(schema().get("$schema")->as_string().value(),
              "https://json-schema.org/draft/2020-12/schema");
    EXPECT_EQ(schema().get("$id")->as_string().value(), "https://example.org/cart");
    EXPECT_EQ(schema().get("required")->text(), R"(["name"])");
    EXPECT_FALSE(schema().get("additionalProperties")->as_bool().value());
}

TEST(Schema, APartWhoseDefaultIsIllegalIsRequired) {
    const auto barrow = JsonValue::parse(schema_of<Barrow>("Barrow", ""), "schema");
    EXPECT_EQ(barrow->get("required")->text(), R"(["wheel"])");
}

TEST(Schema, EveryFieldIsAPropertyAndSoAreNotesForPeople) {
    const auto keys = schema().get("properties")->keys();
    EXPECT_EQ(keys.size(), 18U + 4U);
    EXPECT_TRUE(schema().get("properties")->find("$schema"));
    EXPECT_TRUE(property("spare").get("properties")->find("comment"));
}

TEST(Schema, NumbersCarryTheirBoundsAndDefaults) {
    EXPECT_EQ(
        property("seats").text(),
        R"({"title":"seats","description":"People it carries.","$ref":"#/$defs/whole_number",)"
        R"("minimum":1,"maximum":8,"default":4})");
    EXPECT_EQ(property("colour").get("enum")->text(), R"(["red","green","dark_blue"])");
}

TEST(Schema, QuantitiesAreTextWithAUnitOrZeroWhereZeroIsLegal) {
    EXPECT_EQ(property("memory").get("$ref")->as_string().value(), "#/$defs/bytes_not_zero");
    EXPECT_EQ(property("memory").get("default")->as_string().value(), "80 GiB");
    EXPECT_EQ(property("memory").get("description")->as_string().value(),
              "Memory on board. From 1 KiB to 1 PB.");
    EXPECT_EQ(property("power").get("$ref")->as_string().value(), "#/$defs/watts");
    const JsonValue watts = *schema().get("$defs")->get("watts")->get("anyOf");
    EXPECT_EQ(watts.size(), 2U);
    const std::string pattern = watts.at(0).get("pattern")->as_string().value();
    EXPECT_TRUE(matches(pattern, "700 W"));
    EXPECT_FALSE(matches(pattern, "700"));
    EXPECT_EQ(schema().get("$defs")->get("bytes_not_zero")->get("anyOf")->size(), 1U);
}

TEST(Schema, OptionalFieldsMayBeNull) {
    EXPECT_EQ(property("lamp").get("anyOf")->text(),
              R"([{"enum":["red","green","dark_blue"]},{"type":"null"}])");
    EXPECT_FALSE(property("lamp").find("default"));
}

TEST(Schema, ListsAndMapsDescribeTheirElements) {
    EXPECT_EQ(property("degrees").get("items")->text(),
              R"({"$ref":"#/$defs/whole_number","minimum":1,"maximum":1024})");
    EXPECT_EQ(property("degrees").get("default")->text(), "[1,2]");
    EXPECT_EQ(property("wheels").get("items")->get("required")->text(), R"(["spokes"])");
    EXPECT_EQ(property("grid").get("items")->get("items")->text(),
              R"({"$ref":"#/$defs/whole_number"})");
    EXPECT_EQ(property("peaks").get("additionalProperties")->text(),
              R"({"$ref":"#/$defs/flop_rate"})");
}

} // namespace
} // namespace shardplan::sim
