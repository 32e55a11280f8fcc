#include <gtest/gtest.h>

#include "tests/executor/run/layouts_to_run.hpp"

namespace shardplan::test {
namespace {

using exec::Arithmetic;

void expect_twenty_steps_of_one_rank(Arithmetic arithmetic, Allowed allowed, Allowed steady) {
    expect_steps_of_one_rank(deeper(tiny_gpt2()), dense_layouts, arithmetic, 20, allowed);
    expect_steps_of_one_rank(deeper(tiny_llama()), dense_layouts, arithmetic, 20, allowed);
    expect_steps_of_one_rank(deeper(tiny_mixtral()), expert_layouts, arithmetic, 20, allowed);
    expect_steps_of_one_rank(deeper(tiny_mixtral()), odd_holders, arithmetic, 20, allowed, 12);
    expect_special_models(arithmetic, 20, steady);
}

TEST(Layouts, TakeTwentyStepsOfOneRankInDouble) {
    expect_twenty_steps_of_one_rank(Arithmetic::fp64, {1e-11, 1e-10}, {1e-11, 1e-10});
}
TEST(Layouts, TakeTwentyStepsOfOneRankInSinglePrecision) {
    expect_twenty_steps_of_one_rank(Arithmetic::fp32, {1e-5, 1e-3}, {1e-5, 1e-3});
}
TEST(Layouts, TakeTwentyStepsOfOneRankInSixteenBits) {
    expect_twenty_steps_of_one_rank(Arithmetic::bf16, {1e-2, 1e-1}, {1e-3, 3e-2});
}

} // namespace
} // namespace shardplan::test
