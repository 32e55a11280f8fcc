#include "executor/run/level.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using exec::choose_level;

bool all(std::string_view) { return true; }
bool none(std::string_view) { return false; }
bool not_v4(std::string_view level) { return level != "v4"; }

const std::vector<std::string_view> wide = {"v4", "v3"};
const std::vector<std::string_view> narrow = {};

TEST(VectorLevel, IsTheBestThatTheProcessorAndTheInstallationHave) {
    EXPECT_EQ(*choose_level("", wide, all), "v4");
    EXPECT_EQ(*choose_level("", wide, not_v4), "v3");
    EXPECT_EQ(*choose_level("", wide, none), "v1");
    EXPECT_EQ(*choose_level("", narrow, all), "v1");
}

TEST(VectorLevel, IsTheOneAskedFor) {
    EXPECT_EQ(*choose_level("v1", wide, all), "v1");
    EXPECT_EQ(*choose_level("v3", wide, all), "v3");
}

TEST(VectorLevel, RefusesOneThatDoesNotRunHereAndNamesThoseThatDo) {
    const auto missing = choose_level("v4", wide, not_v4);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().where, "SHARDPLAN_LEVEL");
    EXPECT_NE(missing.error().hint.find("v1, v3"), std::string::npos) << missing.error().hint;
    EXPECT_FALSE(choose_level("avx2", wide, all));
    EXPECT_FALSE(choose_level("v3", narrow, all));
}

} // namespace
} // namespace shardplan::test
