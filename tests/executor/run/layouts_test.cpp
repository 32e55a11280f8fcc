#include <gtest/gtest.h>

#include "tests/executor/run/layouts_to_run.hpp"

/// Every kind of layout takes the steps that one rank takes; layouts_slow_test.cpp takes more.
namespace shardplan::test {
namespace {

using exec::Arithmetic;

TEST(Layouts, TakeTheFirstStepsOfOneRank) {
    constexpr Allowed allowed{1e-11, 1e-10};
    expect_steps_of_one_rank(deeper(tiny_gpt2()), dense_layouts, Arithmetic::fp64, 2, allowed);
    expect_steps_of_one_rank(deeper(tiny_mixtral()), expert_layouts, Arithmetic::fp64, 2, allowed);
    expect_steps_of_one_rank(deeper(tiny_mixtral()), odd_holders, Arithmetic::fp64, 2, allowed, 12);
}

TEST(Layouts, TakeTheFirstStepsOfOneRankWithAllThatABlockMayHave) {
    expect_special_models(Arithmetic::fp64, 2, {1e-11, 1e-10});
}

} // namespace
} // namespace shardplan::test
