#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "simulator/io/json.hpp"
#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

Error refused(const std::string& text) {
    const auto value = JsonValue::parse(text, "a.json");
    EXPECT_FALSE(value) << text;
    if (value) {
        return {};
    }
    EXPECT_FALSE(value.error().what.empty());
    EXPECT_FALSE(value.error().hint.empty()) << value.error().what;
    EXPECT_EQ(value.error().where.rfind("a.json", 0), 0U);
    EXPECT_EQ(to_text(value.error()).find('\n'), std::string::npos);
    return value.error();
}

JsonValue parsed(const std::string& text) {
    auto value = JsonValue::parse(text, "a.json");
    EXPECT_TRUE(value) << (value ? "" : to_text(value.error()));
    return value ? *value : *JsonValue::parse("null", "");
}

TEST(JsonText, SyntaxErrorsNameLineAndColumn) {
    EXPECT_EQ(refused("{\n  \"a\": 1\n  \"b\": 2\n}").where, "a.json:3:3");
    EXPECT_EQ(refused("{\"a\": tru}").where, "a.json:1:7");
    EXPECT_EQ(refused("{\"a\": 1").where, "a.json:1:8");
    EXPECT_EQ(refused("[1] x").where, "a.json:1:5");
    EXPECT_EQ(refused("").where, "a.json:1:1");
}

TEST(JsonText, CommonSlipsGetTheirOwnHint) {
    EXPECT_NE(refused("{\"a\": NaN}").hint.find("NaN and infinities"), std::string::npos);
    EXPECT_NE(refused("[-Infinity]").hint.find("NaN and infinities"), std::string::npos);
    EXPECT_NE(refused("[Infinity]").hint.find("NaN and infinities"), std::string::npos);
    EXPECT_NE(refused("[nan]").hint.find("NaN and infinities"), std::string::npos);
    EXPECT_NE(refused("{\"a\": True}").hint.find("true, false and null"), std::string::npos);
    EXPECT_NE(refused("{\"a\": 1} // x").hint.find("no comments"), std::string::npos);
    EXPECT_NE(refused("# x\n{}").hint.find("no comments"), std::string::npos);
    EXPECT_NE(refused("{'a': 1}").hint.find("double quotes"), std::string::npos);
    EXPECT_NE(refused("{\"a\": 1,}").hint.find("comma"), std::string::npos);
    EXPECT_NE(refused("[1,\n]").hint.find("comma"), std::string::npos);
    EXPECT_NE(refused("{\"a\": \"b").hint.find("cut off"), std::string::npos);
    EXPECT_NE(refused("[1e999]").what.find("too large"), std::string::npos);
    EXPECT_NE(refused("[\"a\nb\"]").what.find("line end"), std::string::npos);
    EXPECT_NE(refused("[\"C:\\data\"]").hint.find("two backslashes"), std::string::npos);
}

TEST(JsonText, TextThatIsNotUtf8IsRefused) {
    EXPECT_EQ(refused("[\"\xFF\"]").what, "the text is not UTF-8");
    EXPECT_EQ(refused("[\"\xED\xA0\x80\"]").what, "the text is not UTF-8"); // a lone surrogate
}

TEST(JsonText, NothingHidesBehindAZeroByte) {
    EXPECT_EQ(refused(std::string("[1]\0 junk", 9)).what, "the text holds a zero byte");
}

TEST(JsonText, DeepNestingIsRefusedAndNotFollowed) {
    EXPECT_EQ(parsed(std::string(64, '[') + std::string(64, ']')).size(), 1U);
    EXPECT_NE(refused(std::string(65, '[') + std::string(65, ']')).what.find("64 levels"),
              std::string::npos);
    EXPECT_NE(refused(std::string(1'000'000, '[')).what.find("64 levels"), std::string::npos);
    std::string objects;
    for (int i = 0; i < 100'000; ++i) {
        objects += "{\"a\":";
    }
    EXPECT_NE(refused(objects).what.find("64 levels"), std::string::npos);
}

TEST(JsonText, HugeTextIsRefused) {
    const std::string spaces((std::size_t{64} << 20U) + 1, ' ');
    EXPECT_NE(refused(spaces).what.find("64 MiB"), std::string::npos);
}

TEST(JsonText, TooManyValuesAreRefused) {
    std::string text = "[";
    for (int i = 0; i < 4'000'001; ++i) {
        text += "0,";
    }
    text += "0]";
    EXPECT_NE(refused(text).what.find("4 million"), std::string::npos);
}

TEST(JsonValue, ShowsWhatTheTextHolds) {
    const JsonValue value = parsed(
        R"({"i": 5, "n": 2.5, "s": "x", "b": true, "z": null, "l": [1, [2]], "o": {"k": 1}})");
    EXPECT_TRUE(value.is_object());
    EXPECT_EQ(value.size(), 7U);
    EXPECT_EQ(value.keys(), (std::vector<std::string>{"i", "n", "s", "b", "z", "l", "o"}));
    EXPECT_EQ(value.find("i")->as_int().value(), 5);
    EXPECT_EQ(value.find("i")->as_double().value(), 5.0);
    EXPECT_EQ(value.find("n")->as_double().value(), 2.5);
    EXPECT_EQ(value.find("s")->as_string().value(), "x");
    EXPECT_TRUE(value.find("b")->as_bool().value());
    EXPECT_TRUE(value.find("z")->is_null());
    EXPECT_FALSE(value.find("absent"));
    EXPECT_EQ(value.find("l")->at(1).at(0).as_int().value(), 2);
    EXPECT_EQ(value.find("l")->at(1).at(0).pointer(), "/l/1/0");
    EXPECT_EQ(value.at(6).pointer(), "/o");
    EXPECT_EQ(value.text(), R"({"i":5,"n":2.5,"s":"x","b":true,"z":null,"l":[1,[2]],"o":{"k":1}})");
}

TEST(JsonValue, OutlivesTheTextAndItsParent) {
    std::optional<JsonValue> inner;
    {
        const std::string text = R"({"a": {"b": "kept"}})";
        inner = parsed(text).find("a")->find("b");
    }
    EXPECT_EQ(inner->as_string().value(), "kept");
}

TEST(JsonValue, WrongTypesAreErrorsWithAPointer) {
    const JsonValue value = parsed(R"({"a": {"b": "8"}})");
    const auto number = value.find("a")->find("b")->as_int();
    ASSERT_FALSE(number);
    EXPECT_EQ(number.error().where, "a.json: /a/b");
    EXPECT_EQ(number.error().hint, "write 8 without quotes");
    EXPECT_FALSE(value.as_double());
    EXPECT_FALSE(value.as_string());
    EXPECT_FALSE(value.as_bool());
    EXPECT_EQ(value.as_bool().error().where, "a.json");
}

TEST(JsonValue, AMissingKeyNamesTheNearest) {
    const auto value = parsed(R"({"hidden_size": 1})").get("hidden_sise");
    ASSERT_FALSE(value);
    EXPECT_NE(value.error().hint.find("\"hidden_size\""), std::string::npos);
    EXPECT_FALSE(parsed("[1]").get("a"));
}

TEST(JsonWriter, KeepsTheOrderOfKeysAndEscapesText) {
    JsonWriter out(Indent::compact);
    out.begin_object().member("z", 1).member("a", "x\"\\\n\x02").member("t", true);
    out.begin_array("l").value(0.5).value(nullptr).value(std::int64_t{-7}).end_array();
    out.member("big", std::uint64_t{18446744073709551615U}).begin_object("e").end_object();
    out.member("none", std::optional<int>()).end_object();
    EXPECT_EQ(out.str(),
              R"({"z":1,"a":"x\"\\\n\u0002","t":true,"l":[0.5,null,-7],"big":18446744073709551615,)"
              R"("e":{},"none":null})");
}

TEST(JsonWriter, NumbersThatAreNotFiniteBecomeNull) {
    JsonWriter out(Indent::compact);
    out.begin_array().value(std::nan("")).value(std::numeric_limits<double>::infinity());
    EXPECT_EQ(out.end_array().str(), "[null,null]");
}

TEST(JsonWriter, DoublesReadBackExactly) {
    for (const double number : {0.1, 1.0 / 3.0, 1e22, 5e-324, -0.0, 9007199254740993.0,
                                std::numeric_limits<double>::max()}) {
        JsonWriter out(Indent::compact);
        const double back = parsed(out.value(number).str()).as_double().value();
        EXPECT_EQ(back, number);
        EXPECT_EQ(std::signbit(back), std::signbit(number));
    }
}

TEST(JsonWriter, BytesThatAreNotUtf8AreReplaced) {
    JsonWriter out(Indent::compact);
    out.value(std::string("a\xFF\xC0\x80\xED\xA0\x80 \u00B5 \U0001F600 \xF0\x9F"));
    EXPECT_EQ(parsed(out.str()).as_string().value(),
              "a\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD \u00B5 \U0001F600 \uFFFD\uFFFD");
}

TEST(JsonWriter, PrettyTextPutsShortGroupsOnOneLine) {
    JsonWriter out;
    out.begin_object().member("a", 1).begin_array("l").value(1).value(2).end_array();
    out.begin_object("o").member("x", 1).member("y", "z").end_object();
    out.begin_array("deep").begin_array().value(3).end_array().end_array().end_object();
    EXPECT_EQ(out.str(),
              "{\n"
              "  \"a\": 1,\n"
              "  \"l\": [1, 2],\n"
              "  \"o\": {\"x\": 1, \"y\": \"z\"},\n"
              "  \"deep\": [\n"
              "    [3]\n"
              "  ]\n"
              "}\n");
}

TEST(JsonWriter, PrettyTextBreaksLongGroupsAtAHundredColumns) {
    JsonWriter out;
    out.begin_object().begin_array("l");
    for (int i = 0; i < 40; ++i) {
        out.value("item");
    }
    out.end_array().begin_array("short").value(1).end_array().end_object();
    const std::string text = out.str();
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        EXPECT_LE(end - at, 100U);
        at = end + 1;
    }
    EXPECT_NE(text.find("\n    \"item\",\n"), std::string::npos);
    EXPECT_EQ(parsed(text).find("l")->size(), 40U);
}

TEST(JsonWriter, DescribedValuesGoAmongOthers) {
    JsonWriter out(Indent::compact);
    out.begin_object().member("wheel", Wheel{3, Seconds(10e-6)});
    out.begin_array("all").value(Wheel{4, Seconds(1.0)}).end_array().end_object();
    EXPECT_EQ(out.str(),
              R"({"wheel":{"spokes":3,"turn":"10 us"},"all":[{"spokes":4,"turn":"1 s"}]})");
}

TEST(JsonWriter, DescribedFieldsComeInOrderAndNoneIsLeftOut) {
    const std::string text = write_described(Cart{}, Indent::compact);
    EXPECT_EQ(text,
              R"({"name":"","seats":4,"slope":0.5,"memory":"80 GiB","link":null,"power":"0 W",)"
              R"("open":false,"colour":"green","spare":{"spokes":8,"turn":"2 s"},"wheels":[],)"
              R"("degrees":[1,2],"loads":[],"grid":[],"stripes":[],"peaks":{},"named":{},)"
              R"("trailer":null,"lamp":null})");
}

} // namespace
} // namespace shardplan::sim
