#include "planner/cli/table.hpp"

#include <sstream>

#include <gtest/gtest.h>
#include <stdlib.h> // setenv

namespace shardplan::plan::cli {
namespace {

std::string printed(const Table& table, bool color) {
    std::ostringstream out;
    table.print(out, color, 1);
    return out.str();
}

TEST(Table, ColumnsLineUpWithoutSpaceAtTheEnd) {
    Table table({{"name", Align::left}, {"size", Align::right}, {"note", Align::left}});
    table.add({"a", "1", "x"});
    table.add({"long", "1000"});
    EXPECT_EQ(printed(table, false),
              " name  size  note\n"
              " a        1  x\n"
              " long  1000\n");
}

TEST(Table, CountsCharactersNotBytes) {
    Table table({{"", Align::left}, {"", Align::left}});
    table.add({"µs", "a"});
    table.add({"ms", "b"});
    EXPECT_EQ(printed(table, false), " µs  a\n ms  b\n");
}

TEST(Table, ColoursWrapTheTextAndNotTheSpaces) {
    Table table({{"", Align::right}});
    table.add({{"1", Style::good}});
    table.add({"22"});
    EXPECT_EQ(printed(table, true), "  \x1b[32m1\x1b[0m\n 22\n");
}

TEST(Color, IsForTerminalsUnlessNoColorIsSet) {
    ::unsetenv("NO_COLOR");
    EXPECT_TRUE(wants_color(ColorMode::automatic, true));
    EXPECT_FALSE(wants_color(ColorMode::automatic, false));
    ::setenv("NO_COLOR", "", 1);
    EXPECT_TRUE(wants_color(ColorMode::automatic, true));
    ::setenv("NO_COLOR", "1", 1);
    EXPECT_FALSE(wants_color(ColorMode::automatic, true));
    EXPECT_TRUE(wants_color(ColorMode::always, false));
    ::unsetenv("NO_COLOR");
    EXPECT_FALSE(wants_color(ColorMode::never, true));
}

TEST(ScaledCount, ThreeDigitsAndALetter) {
    EXPECT_EQ(scaled_count(812.0), "812");
    EXPECT_EQ(scaled_count(8030261248.0), "8.03 G");
    EXPECT_EQ(scaled_count(12345.0), "12.3 k");
}

} // namespace
} // namespace shardplan::plan::cli
