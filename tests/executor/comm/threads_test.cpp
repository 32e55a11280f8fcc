#include "executor/comm/threads.hpp"

#include <gtest/gtest.h>

#include "tests/executor/comm/conformance.hpp"

namespace shardplan::test {
namespace {

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, DoEveryCollectiveByEveryAlgorithm) {
    const auto outcome = exec::run_ranks(GetParam(), check_everything);
    EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

} // namespace
} // namespace shardplan::test
