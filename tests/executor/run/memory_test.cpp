#include <gtest/gtest.h>

#include "tests/executor/run/memory_runs.hpp"

namespace shardplan::test {
namespace {

/// One layout for each thing that decides what is held; memory_slow_test.cpp has them all.
constexpr const char* layouts_of_each_kind[] = {
    "dp2,mb2",     "dp2,mb1,zero2", "dp2,mb1,zero3",           "tp2,sp,dp1,mb1",
    "cp2,dp1,mb1", "pp2,dp1,mb1",   "pp2,dp1,mb1,sched=zb-h1", "dp2,mb1,rc=selective"};

TEST(PredictedPeaks, AreThoseOfTheAllocatorForEachKindOfLayout) {
    expect_peaks_as_predicted(wider(tiny_llama()), layouts_of_each_kind, exec::Arithmetic::fp32);
}

} // namespace
} // namespace shardplan::test
