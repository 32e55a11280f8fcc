#include "planner/cli/empty_value.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace shardplan::plan::cli {
namespace {

TEST(EmptyValue, IsNamedByItsFlag) {
    const std::vector<std::vector<std::string>> lines = {
        {"plan", "-m", "llama-3-8b", "--stack", ""}, {"plan", "--stack=", "-m", "llama-3-8b"}};
    for (const auto& line : lines) {
        const auto error = empty_value(line);
        ASSERT_TRUE(error) << line[1];
        EXPECT_EQ(error->where, "--stack");
        EXPECT_NE(error->hint.find("leave the flag out"), std::string::npos);
    }
    EXPECT_EQ(empty_value({"model", ""})->where, "command line");
}

TEST(EmptyValue, IsNotASettingThatEndsInAnEqualsSign) {
    EXPECT_FALSE(empty_value({"plan", "--set", "stack.note="}));
    EXPECT_FALSE(empty_value({"plan", "--set=stack.note="}));
    EXPECT_FALSE(empty_value({"plan", "-m", "llama-3-8b", "--json"}));
    EXPECT_FALSE(empty_value({}));
}

} // namespace
} // namespace shardplan::plan::cli
