#include <gtest/gtest.h>

#include "tests/executor/run/memory_runs.hpp"

namespace shardplan::test {
namespace {

using exec::Arithmetic;

/// Experts that are chosen by what tokens say: how many rows a rank gets is known where all of them
/// are on one.
constexpr const char* layouts_of_whole_experts[] = {"dp2,mb1", "tp2,dp1,mb1", "tp2,sp,dp1,mb1",
                                                    "cp2,dp1,mb1", "pp2,v2,dp1,mb1,sched=zb-v"};

class PredictedPeaks : public ::testing::TestWithParam<Arithmetic> {};

TEST_P(PredictedPeaks, AreThoseOfTheAllocatorForGpt2) {
    expect_peaks_as_predicted(wider(tiny_gpt2()), dense_layouts, GetParam());
}
TEST_P(PredictedPeaks, AreThoseOfTheAllocatorForLlama) {
    expect_peaks_as_predicted(wider(tiny_llama()), dense_layouts, GetParam());
}
TEST_P(PredictedPeaks, AreThoseOfTheAllocatorForMixtral) {
    expect_peaks_as_predicted(wider(tiny_mixtral(), true), expert_layouts, GetParam());
    expect_peaks_as_predicted(wider(tiny_mixtral()), layouts_of_whole_experts, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Storage, PredictedPeaks,
                         ::testing::Values(Arithmetic::fp32, Arithmetic::bf16), [](const auto& p) {
                             return p.param == Arithmetic::bf16 ? "bf16" : "fp32";
                         });

} // namespace
} // namespace shardplan::test
