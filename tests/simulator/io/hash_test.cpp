#include "simulator/io/hash.hpp"

#include <gtest/gtest.h>

#include "tests/simulator/io/sample_types.hpp"

namespace shardplan::sim {
namespace {

TEST(Hash, IsFnv1aOfSixtyFourBits) {
    // The first three published test vectors of FNV-1a 64: "", "a", "foobar".
    EXPECT_EQ(content_hash(""), "cbf29ce484222325");
    EXPECT_EQ(content_hash("a"), "af63dc4c8601ec8c");
    EXPECT_EQ(content_hash("foobar"), "85944171f73967e8");
}

TEST(Hash, TheFormOfAFileDoesNotMatterAndItsContentDoes) {
    const auto a = read_described<Wheel>(R"({"spokes": 3, "turn": "1000 ms"})", "a");
    const auto b = read_described<Wheel>(R"({ "turn": "1 s", "spokes": 3.0 })", "b");
    EXPECT_EQ(content_hash_of(*a), content_hash_of(*b));
    EXPECT_NE(content_hash_of(*a), content_hash_of(Wheel{4, Seconds(1.0)}));
}

} // namespace
} // namespace shardplan::sim
