#include "simulator/units/result.hpp"

#include <string>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

Result<int> half(int number) {
    if (number % 2 != 0) {
        return Error{ErrorCode::bad_input, "--number", "3 is odd", "write 2 or 4"};
    }
    return number / 2;
}

TEST(Result, HoldsAValueOrTheReasonThereIsNone) {
    EXPECT_EQ(half(4).value(), 2);
    EXPECT_FALSE(half(3));
    EXPECT_EQ(half(3).error().hint, "write 2 or 4");
}

TEST(Result, AnErrorIsOneLineOfWhereWhatAndHint) {
    EXPECT_EQ(to_text(half(3).error()), "--number: 3 is odd (write 2 or 4)");
    EXPECT_EQ(to_text(Error{ErrorCode::bad_input, "", "it failed", ""}), "it failed");
}

TEST(Result, StepsStopAtTheFirstError) {
    EXPECT_EQ(half(8).and_then(half).value(), 2);
    EXPECT_FALSE(half(6).and_then(half));
    EXPECT_FALSE(half(3).and_then(half));
}

} // namespace
} // namespace shardplan::sim
