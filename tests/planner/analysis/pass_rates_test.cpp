#include "planner/analysis/pass_rates.hpp"

#include <gtest/gtest.h>

namespace shardplan::plan {
namespace {

using sim::StreamKind;
using sim::TaskKind;
using sim::WaitCause;

/// A rank that computes 1000 flops forward in 10 ns, 3 of which are an exchange, and 2000 backward.
sim::Timeline step(sim::TimelineOrigin origin) {
    sim::Timeline out;
    out.origin = origin;
    out.tracks = {{0, 0, 1, StreamKind::compute}, {0, 0, 1, StreamKind::tp}};
    out.spans = {{0, 0, TaskKind::forward, WaitCause::none, 0, 10, 0.0, 1000.0},
                 {0, 1, TaskKind::backward, WaitCause::none, 10, 30, 0.0, 2000.0},
                 {0, 2, TaskKind::optimizer, WaitCause::none, 30, 40, 0.0, 0.0},
                 {1, 3, TaskKind::exchange, WaitCause::none, 5, 8, 64.0, 0.0}};
    return out;
}

TEST(PassRates, LeaveOutWhatLayersExchangeInsideOfMeasuredPasses) {
    const auto rates =
        pass_rates(step(sim::TimelineOrigin::predicted), step(sim::TimelineOrigin::measured));
    ASSERT_EQ(2U, rates.size()) << "the optimizer says no flops";
    EXPECT_EQ((PassRate{0, TaskKind::forward, 1000.0 / 10e-9, 1000.0 / 7e-9}), rates[0]);
    EXPECT_EQ(TaskKind::backward, rates[1].pass);
    EXPECT_DOUBLE_EQ(2000.0 / 20e-9, rates[1].measured);
}

TEST(PassRates, AreNoneWhereTheRunDoesNotSayItsFlops) {
    sim::Timeline measured = step(sim::TimelineOrigin::measured);
    for (sim::Span& span : measured.spans) {
        span.flops = 0.0;
    }
    EXPECT_TRUE(pass_rates(step(sim::TimelineOrigin::predicted), measured).empty());
}

} // namespace
} // namespace shardplan::plan
