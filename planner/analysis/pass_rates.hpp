#pragma once

#include <vector>

#include "simulator/engine/timeline.hpp"

namespace shardplan::plan {

/// Flops per second of one kind of pass on one rank of a stage, what its layers exchange left out.
struct PassRate {
    std::int64_t stage = 0;
    sim::TaskKind pass = sim::TaskKind::forward;
    double predicted = 0.0;
    double measured = 0.0;

    friend bool operator==(const PassRate&, const PassRate&) = default;
};

/// By stage, then pass: those whose flops both timelines of a step know. Empty: there are none.
std::vector<PassRate> pass_rates(const sim::Timeline& predicted, const sim::Timeline& measured);

} // namespace shardplan::plan
