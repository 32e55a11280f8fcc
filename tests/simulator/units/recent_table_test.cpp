#include "simulator/units/recent_table.hpp"

#include <string>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

TEST(RecentTable, GivesBackWhatItTookUntilAnotherKeyNeedsThePlace) {
    RecentTable<int, std::string> table(16);
    EXPECT_EQ(table.find(1, 1), nullptr);
    table.take(1, 1) = "one";
    ASSERT_NE(table.find(1, 1), nullptr);
    EXPECT_EQ(*table.find(1, 1), "one");
    EXPECT_EQ(table.find(17, 17), nullptr); // of the same place
    EXPECT_EQ(table.take(17, 17), "one");   // whose memory is used again
    EXPECT_EQ(table.find(1, 1), nullptr);
}

TEST(RecentTable, GrowsWhileKeysPushOneAnotherOut) {
    RecentTable<std::size_t, std::size_t> table(1024);
    const auto known = [&](std::size_t keys) {
        std::size_t found = 0;
        for (std::size_t key = 0; key < keys; ++key) {
            const std::size_t* value = table.find(key, key);
            if (value == nullptr) continue;
            EXPECT_EQ(*value, 2 * key);
            ++found;
        }
        return found;
    };
    for (int round = 0; round < 3; ++round) {
        for (std::size_t key = 0; key < 1024; ++key) {
            if (table.find(key, key) == nullptr) table.take(key, key) = 2 * key;
        }
    }
    EXPECT_EQ(known(1024), 1024U);
    // but no further than it may
    for (std::size_t key = 1024; key < 4096; ++key)
        table.take(key, key) = 2 * key;
    EXPECT_EQ(known(4096), 1024U);
    table.clear();
    EXPECT_EQ(known(4096), 0U);
}

} // namespace
} // namespace shardplan::sim
