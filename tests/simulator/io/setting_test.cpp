#include "simulator/io/setting.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

Cart set(std::string_view path, std::string_view value) {
    Cart cart = full_cart();
    const Status status = apply_setting(cart, path, value, "--set");
    EXPECT_TRUE(status) << path << "=" << value << ": " << (status ? "" : to_text(status.error()));
    return cart;
}

Error refused(std::string_view path, std::string_view value) {
    Cart cart = full_cart();
    const Status status = apply_setting(cart, path, value, "--set");
    EXPECT_FALSE(status) << path << "=" << value;
    EXPECT_EQ(cart, full_cart()) << "a refused setting must change nothing";
    if (status) {
        return {};
    }
    EXPECT_EQ(status.error().where.rfind("--set", 0), 0U);
    EXPECT_FALSE(status.error().hint.empty()) << status.error().what;
    return status.error();
}

TEST(Setting, EachKindOfFieldIsSetFromText) {
    EXPECT_EQ(set("name", "a, b").name, "a, b");
    EXPECT_EQ(set("seats", "3").seats, 3);
    EXPECT_EQ(set("slope", "0.75").slope, 0.75);
    EXPECT_EQ(set("memory", "16 GiB").memory, Bytes(17179869184.0));
    EXPECT_EQ(set("power", "0.3 kW").power, 300.0);
    EXPECT_FALSE(set("open", "false").open);
    EXPECT_EQ(set("colour", "red").colour, Colour::red);
    EXPECT_EQ(set("link", "400 Gbit/s").link, Bandwidth(50e9));
}

TEST(Setting, OnlyTheFieldNamedChanges) {
    Cart expected = full_cart();
    expected.spare.turn = Seconds(9.0);
    EXPECT_EQ(set("spare.turn", "9 s"), expected);
}

TEST(Setting, ElementsAreReachedByIndexAndKey) {
    EXPECT_EQ(set("wheels[1].spokes", "9").wheels[1].spokes, 9);
    EXPECT_EQ(set("wheels.0.spokes", "9").wheels[0].spokes, 9);
    EXPECT_EQ(set("grid[2][0]", "7").grid[2][0], 7);
    EXPECT_EQ(set("degrees[0]", "4").degrees, (std::vector<std::int64_t>{4, 16, 32}));
    EXPECT_EQ(set("named.notes.spokes", "8").named.at("notes").spokes, 8);
    EXPECT_EQ(set("peaks.{a.b/c~d}", "3 TFLOP/s").peaks.at("a.b/c~d"), FlopRate(3e12));
    EXPECT_EQ(set("peaks.fp8", "2 PFLOP/s").peaks.at("fp8"), FlopRate(2e15));
}

TEST(Setting, WholeListsAreWrittenWithCommasOrAsJson) {
    EXPECT_EQ(set("degrees", "1,2, 4").degrees, (std::vector<std::int64_t>{1, 2, 4}));
    EXPECT_EQ(set("degrees", "[1, 2]").degrees, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(set("loads", "1 GiB,2 GiB").loads[1], Bytes(2147483648.0));
    EXPECT_EQ(set("stripes", "green").stripes, (std::vector<Colour>{Colour::green}));
    EXPECT_TRUE(set("degrees", "").degrees.empty());
    EXPECT_EQ(set("wheels", R"([{"spokes": 2}])").wheels, (std::vector<Wheel>{{2, Seconds(2.0)}}));
}

TEST(Setting, GroupsOfFieldsAreWrittenAsJson) {
    EXPECT_EQ(set("spare", R"({"spokes": 2})").spare.spokes, 2);
    EXPECT_EQ(set("peaks", R"({"new": "1 TFLOP/s"})").peaks.at("new"), FlopRate(1e12));
    EXPECT_EQ(set("named.new", R"({"spokes": 2})").named.at("new").spokes, 2);
    const Error error = refused("spare", "3");
    EXPECT_EQ(error.hint, "name one of its fields: spokes, turn");
}

TEST(Setting, OptionalFieldsAreMadeAndEmptied) {
    EXPECT_FALSE(set("trailer", "null").trailer);
    EXPECT_FALSE(set("link", "null").link);
    Cart cart;
    ASSERT_TRUE(apply_setting(cart, "trailer.spokes", "3", "--set"));
    EXPECT_EQ(cart.trailer->spokes, 3);
    ASSERT_TRUE(apply_setting(cart, "lamp", "red", "--set"));
    EXPECT_EQ(cart.lamp, Colour::red);
    EXPECT_FALSE(cart.link);
}

TEST(Setting, UnknownPathNamesTheNearest) {
    EXPECT_EQ(refused("colr", "red").hint, "did you mean \"colour\"?");
    EXPECT_EQ(refused("turn", "1 s").hint, "did you mean \"spare.turn\"?");
    EXPECT_EQ(refused("spare.spoke", "1").hint, "did you mean \"spare.spokes\"?");
    EXPECT_EQ(refused("spare.seats", "1").code, ErrorCode::not_found);
    EXPECT_EQ(refused("named.none.spokes", "1").code, ErrorCode::not_found);
    refused("wheels.zzzzzzzz", "1");
}

TEST(Setting, APathThatLeadsNowhereDoesNotReachASiblingOfItsParent) {
    EXPECT_EQ(refused("spare.degrees", "1").code, ErrorCode::not_found);
    EXPECT_EQ(refused("wheels[0].degrees", "1").code, ErrorCode::not_found);
    EXPECT_EQ(refused("named.notes.lamp", "red").code, ErrorCode::not_found);
}

TEST(Setting, BadPathsAreRefused) {
    for (const auto* path : {"", ".", "a.", ".seats", "seats.", "wheels[", "wheels[]", "wheels.[0]",
                             "wheels[0]spokes", "{seats", "seats.x", "spare..turn"}) {
        refused(path, "1");
    }
    EXPECT_EQ(refused("wheels[2].spokes", "1").hint, "elements are [0] to [1]");
    EXPECT_EQ(refused("wheels[-1].spokes", "1").hint, "elements are [0] to [1]");
}

TEST(Setting, BadValuesAreRefusedAsInFiles) {
    EXPECT_EQ(refused("seats", "9").hint, "write a value from 1 to 8");
    EXPECT_EQ(refused("memory", "80").what, "80 has no unit");
    EXPECT_EQ(refused("colour", "reed").hint,
              "did you mean \"red\"? one of \"red\", \"green\", \"dark_blue\"");
    EXPECT_EQ(refused("open", "yes").hint, "write true or false");
    EXPECT_EQ(refused("seats", "2.5").hint, "write 2 or 3");
    refused("seats", "four");
    refused("seats", "");
    refused("seats", "99999999999999999999");
    refused("slope", "nan");
    refused("degrees", "1,x");
    refused("degrees", "[1,");
    refused("wheels", R"([{"spokes": 0}])");
    refused("seats", "null");
    EXPECT_EQ(set("seats", "4.0").seats, 4);
    EXPECT_EQ(set("grid[0][0]", "1e6").grid[0][0], 1000000);
}

} // namespace
} // namespace shardplan::sim
