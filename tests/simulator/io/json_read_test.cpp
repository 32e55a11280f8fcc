#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "simulator/io/json.hpp"
#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

Cart read(const std::string& text, ReadNotes* notes = nullptr) {
    auto cart = read_described<Cart>(text, "cart.json", notes);
    EXPECT_TRUE(cart) << text << "\n" << (cart ? "" : to_text(cart.error()));
    return cart ? *cart : Cart{};
}

Error refused(const std::string& text) {
    const auto cart = read_described<Cart>(text, "cart.json");
    EXPECT_FALSE(cart) << text;
    if (cart) {
        return {};
    }
    EXPECT_EQ(cart.error().where.rfind("cart.json", 0), 0U) << cart.error().where;
    EXPECT_FALSE(cart.error().what.empty()) << text;
    EXPECT_FALSE(cart.error().hint.empty()) << text;
    EXPECT_EQ(to_text(cart.error()).find('\n'), std::string::npos);
    return cart.error();
}

/// A cart with one more key.
Error refused_key(const std::string& key_and_value) {
    return refused("{\"name\": \"a\", " + key_and_value + "}");
}

TEST(Json, FieldsAreReadByTheirKeys) {
    const Cart cart = read(R"({"name": "a", "seats": 2, "memory": "16 GiB", "open": true,
        "colour": "dark_blue", "spare": {"spokes": 3, "turn": "10 us"},
        "wheels": [{"spokes": 5}], "peaks": {"bf16": "989 TFLOP/s"}, "power": "0.7 kW"})");
    EXPECT_EQ(cart.seats, 2);
    EXPECT_EQ(cart.memory, Bytes(17179869184.0));
    EXPECT_TRUE(cart.open);
    EXPECT_EQ(cart.colour, Colour::dark_blue);
    EXPECT_EQ(cart.spare, (Wheel{3, Seconds(10e-6)}));
    ASSERT_EQ(cart.wheels.size(), 1U);
    EXPECT_EQ(cart.wheels[0].spokes, 5);
    EXPECT_EQ(cart.peaks.at("bf16"), FlopRate(989e12));
    EXPECT_EQ(cart.power, 700.0);
}

TEST(Json, WhatIsWrittenIsReadBackEqual) {
    for (const Indent indent : {Indent::compact, Indent::pretty}) {
        for (const Cart& cart : {Cart{}, full_cart()}) {
            EXPECT_EQ(read(write_described(cart, indent)), cart);
        }
    }
}

TEST(Json, UnknownFieldNamesTheNearestKnownOne) {
    const Error error = refused_key(R"("colr": "red")");
    EXPECT_EQ(error.where, "cart.json: /colr");
    EXPECT_EQ(error.what, "there is no field \"colr\" here");
    EXPECT_EQ(error.hint, "did you mean \"colour\"?");
}

TEST(Json, UnknownFieldInsideAListIsFoundByItsPointer) {
    const Error error = refused_key(R"("wheels": [{"spokes": 3}, {"spokes": 3, "trun": "1 s"}])");
    EXPECT_EQ(error.where, "cart.json: /wheels/1/trun");
    EXPECT_EQ(error.hint, "did you mean \"turn\"?");
}

TEST(Json, AMisspeltRequiredKeyIsReportedAsMisspeltNotAsMissing) {
    const Error error = refused(R"({"nmae": "a"})");
    EXPECT_EQ(error.where, "cart.json: /nmae");
    EXPECT_EQ(error.hint, "did you mean \"name\"?");
}

TEST(Json, MissingRequiredKeySaysWhatToAdd) {
    const Error error = refused(R"({"seats": 2})");
    EXPECT_EQ(error.where, "cart.json");
    EXPECT_EQ(error.what, "the key \"name\" is missing");
    EXPECT_EQ(error.hint, "add \"name\": a text in double quotes (What it is called.)");
    EXPECT_EQ(refused_key(R"("wheels": [{}])").where, "cart.json: /wheels/0");
}

TEST(Json, APartWhoseDefaultIsIllegalIsRequired) {
    const auto barrow = read_described<Barrow>(R"({"name": "a"})", "b.json");
    ASSERT_FALSE(barrow);
    EXPECT_EQ(barrow.error().where, "b.json: /wheel");
    EXPECT_EQ(barrow.error().what, "the key \"spokes\" is missing");
    EXPECT_EQ(read_described<Barrow>(R"({"wheels": {"spokes": 2}})", "b.json").error().hint,
              "did you mean \"wheel\"?");
    EXPECT_TRUE(read_described<Barrow>(R"({"wheel": {"spokes": 2}})", "b.json"));
}

TEST(Json, RepeatedKeysAreRefused) {
    const Error error = refused(R"({"name": "a", "spare": {"spokes": 1, "spokes": 2}})");
    EXPECT_EQ(error.where, "cart.json: /spare/spokes");
    EXPECT_NE(error.what.find("stands twice"), std::string::npos);
    EXPECT_EQ(refused(R"({"name": "a", "\u006eame": "b"})").where, "cart.json: /name");
}

TEST(Json, RepeatedKeysAreFoundInLargeObjectsToo) {
    std::string peaks;
    for (int i = 0; i < 1000; ++i) {
        peaks += "\"k" + std::to_string(i) + "\": 0, ";
    }
    EXPECT_EQ(read("{\"name\": \"a\", \"peaks\": {" + peaks + "\"last\": 0}}").peaks.size(), 1001U);
    EXPECT_EQ(refused_key("\"peaks\": {" + peaks + "\"k500\": 0}").where, "cart.json: /peaks/k500");
}

TEST(Json, QuantityWithoutUnitIsRefusedExceptZero) {
    const Error error = refused_key(R"("memory": 80)");
    EXPECT_EQ(error.where, "cart.json: /memory");
    EXPECT_EQ(error.what, "80 has no unit");
    EXPECT_NE(error.hint.find("\"80 GiB\""), std::string::npos);
    EXPECT_EQ(refused_key(R"("loads": ["1 B", 1024])").where, "cart.json: /loads/1");
    EXPECT_EQ(read(R"({"name": "a", "power": 0, "link": 0.0})").link, Bandwidth(0.0));
}

TEST(Json, WrongTypesAreRefusedWithWhatIsThere) {
    EXPECT_EQ(refused_key(R"("seats": "4")").hint, "write 4 without quotes");
    EXPECT_EQ(refused_key(R"("seats": 2.5)").hint, "write 2 or 3");
    EXPECT_EQ(refused_key(R"("slope": "0.5")").what,
              "a number is expected, and this is the text \"0.5\"");
    EXPECT_EQ(refused_key(R"("open": 1)").hint, "write true or false, without quotes");
    EXPECT_EQ(refused_key(R"("memory": true)").what, "an amount is expected, and this is true");
    EXPECT_EQ(refused_key(R"("wheels": {})").hint, "put it in brackets: [ ... ]");
    EXPECT_EQ(refused_key(R"("spare": 3)").hint, "put it in braces: { ... }");
    EXPECT_EQ(refused_key(R"("peaks": [])").where, "cart.json: /peaks");
    EXPECT_EQ(refused_key(R"("colour": 1)").where, "cart.json: /colour");
    EXPECT_EQ(refused(R"({"name": 5})").hint, "put it in double quotes");
    EXPECT_EQ(refused("[1]").where, "cart.json");
}

TEST(Json, UnknownChoiceNamesTheNearestAndAll) {
    const Error error = refused_key(R"("colour": "dark-blue")");
    EXPECT_EQ(error.where, "cart.json: /colour");
    EXPECT_EQ(error.hint, "did you mean \"dark_blue\"? one of \"red\", \"green\", \"dark_blue\"");
}

TEST(Json, NumbersOutsideTheirBoundsAreRefusedWithTheBounds) {
    const Error error = refused_key(R"("seats": 9)");
    EXPECT_EQ(error.what, "9 is above the largest legal value, 8");
    EXPECT_EQ(error.hint, "write a value from 1 to 8");
    EXPECT_EQ(refused_key(R"("slope": -0.5)").hint, "write a value from 0 to 1");
    EXPECT_EQ(refused_key(R"("memory": "1 B")").hint, "write a value from 1 KiB to 1 PB");
    EXPECT_EQ(refused_key(R"("power": "-1 W")").hint, "write a value of at least 0 W");
    EXPECT_EQ(refused_key(R"("memory": 0)").where, "cart.json: /memory");
    EXPECT_EQ(refused_key(R"("degrees": [1, 4096])").where, "cart.json: /degrees/1");
}

TEST(Json, NullStandsForAbsentOnlyWhereTheTypeAllowsIt) {
    EXPECT_FALSE(read(R"({"name": "a", "link": null, "trailer": null, "lamp": null})").link);
    EXPECT_EQ(refused_key(R"("seats": null)").hint, "leave the key out to take the default");
    EXPECT_EQ(refused(R"({"name": null})").hint, "write a text");
}

TEST(Json, DefaultsTakenAreRecordedWithTheirPath) {
    ReadNotes notes;
    read(R"({"name": "a", "wheels": [{"spokes": 3}], "peaks": {}, "named": {"x.y": {"spokes": 2}},
             "slope": 0.25, "grid": []})",
         &notes);
    const std::vector<DefaultTaken> expected = {{"seats", "4"},
                                                {"memory", "80 GiB"},
                                                {"link", "none"},
                                                {"power", "0 W"},
                                                {"open", "false"},
                                                {"colour", "green"},
                                                {"spare.spokes", "8"},
                                                {"spare.turn", "2 s"},
                                                {"wheels[0].turn", "2 s"},
                                                {"degrees", "[1,2]"},
                                                {"loads", "[]"},
                                                {"stripes", "[]"},
                                                {"named.{x.y}.turn", "2 s"},
                                                {"trailer", "none"},
                                                {"lamp", "none"}};
    ASSERT_EQ(notes.defaults_taken.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(notes.defaults_taken[i].path, expected[i].path);
        EXPECT_EQ(notes.defaults_taken[i].value, expected[i].value) << expected[i].path;
    }
}

TEST(Json, AFullFileTakesNoDefaults) {
    ReadNotes notes;
    EXPECT_EQ(read(write_described(full_cart()), &notes), full_cart());
    EXPECT_TRUE(notes.defaults_taken.empty());
}

TEST(Json, NotesForPeopleMayStandInAnyObject) {
    const Cart cart = read(R"({"$schema": "cart.schema.json", "name": "a", "notes": ["x"],
        "comment": 1, "source": {"a": 1}, "spare": {"spokes": 2, "comment": "bent"}})");
    EXPECT_EQ(cart.spare.spokes, 2);
}

TEST(Json, InsideAMapEveryKeyCounts) {
    EXPECT_EQ(read(R"({"name": "a", "named": {"notes": {"spokes": 2}}})").named.size(), 1U);
    EXPECT_EQ(refused_key(R"("peaks": {"comment": "fast"})").where, "cart.json: /peaks/comment");
}

TEST(Json, ByteOrderMarkAndWindowsLineEndsAreAccepted) {
    EXPECT_EQ(read("\xEF\xBB\xBF{\r\n  \"name\": \"a\",\r\n  \"seats\": 3\r\n}\r\n").seats, 3);
}

TEST(Json, WholeNumbersMayBeWrittenWithPointOrExponent) {
    EXPECT_EQ(read(R"({"name": "a", "seats": 4.0, "grid": [[1e6, -0]]})").grid[0][0], 1000000);
}

TEST(Json, IntegersBeyondSixtyFourBitsDoNotWrap) {
    EXPECT_EQ(read(R"({"name": "a", "grid": [[9223372036854775807, -9223372036854775808]]})").grid,
              (std::vector<std::vector<std::int64_t>>{{std::numeric_limits<std::int64_t>::max(),
                                                       std::numeric_limits<std::int64_t>::min()}}));
    for (const auto* number :
         {"9223372036854775808", "18446744073709551616", "1e30", "-9223372036854775809"}) {
        const Error error = refused_key("\"grid\": [[" + std::string(number) + "]]");
        EXPECT_EQ(error.where, "cart.json: /grid/0/0");
        EXPECT_NE(error.what.find("too large"), std::string::npos) << error.what;
    }
}

TEST(Json, KeysAreEscapedInPointers) {
    EXPECT_EQ(refused_key(R"("peaks": {"a/b~c": 5})").where, "cart.json: /peaks/a~1b~0c");
}

TEST(Json, AFileThatStatesOnlyWhatDiffersKeepsTheRest) {
    const auto json = JsonValue::parse(
        R"({"seats": 2, "spare": {"turn": "1 s"}, "degrees": [64], "peaks": {"fp8": "1 PFLOP/s"},
            "trailer": null})",
        "derived.json");
    ASSERT_TRUE(json);
    const auto cart = read_described_over(full_cart(), *json);
    ASSERT_TRUE(cart) << to_text(cart.error());
    Cart expected = full_cart();
    expected.seats = 2;
    expected.spare.turn = Seconds(1.0);
    expected.degrees = {64};
    expected.peaks["fp8"] = FlopRate(1e15);
    expected.trailer.reset();
    EXPECT_EQ(*cart, expected);
}

TEST(Json, NewElementsOfADerivedFileMustBeWhole) {
    const auto over = [](const std::string& text) {
        const auto json = JsonValue::parse(text, "derived.json");
        return read_described_over(full_cart(), *json);
    };
    EXPECT_EQ(over(R"({"wheels": [{"turn": "1 s"}]})").error().where, "derived.json: /wheels/0");
    EXPECT_EQ(over(R"({"named": {"new": {"turn": "1 s"}}})").error().where,
              "derived.json: /named/new");
    const auto changed = over(R"({"named": {"notes": {"turn": "9 s"}}})");
    ASSERT_TRUE(changed) << to_text(changed.error());
    EXPECT_EQ(changed->named.at("notes"), (Wheel{5, Seconds(9.0)}));
}

TEST(Json, AValueInsideALargerTextIsReadWithItsPointer) {
    const auto json = JsonValue::parse(R"({"carts": [{"name": "a", "seats": 99}]})", "all.json");
    const auto cart = read_described<Cart>(json->find("carts")->at(0));
    ASSERT_FALSE(cart);
    EXPECT_EQ(cart.error().where, "all.json: /carts/0/seats");
}

} // namespace
} // namespace shardplan::sim
