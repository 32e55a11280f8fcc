#pragma once

#include <string>

#include "simulator/engine/measurement.hpp"

namespace shardplan::test {

/// A run of two ranks under dp2, 100 ms a step: 60 ms passes, 10 ms optimizer, 25 ms waiting for
/// gradients and 5 ms nothing; the first step settles. One step is shown, in two spans of passes.
inline sim::Measurement run_of_two(const std::string& layout = "dp2,mb1") {
    using sim::Seconds;
    sim::Measurement m;
    m.plan_hash = "0000000000000000";
    m.layout = layout;
    m.program = "shardplan-run-cpu";
    m.backend = "threads";
    m.ranks = 2;
    m.threads_per_rank = 1;
    m.hosts = {"here"};
    m.clock = "steady clock";
    m.settling = 1;
    m.steps = {{1, 5.0, Seconds(0.3), 512},
               {2, 4.5, Seconds(0.1), 512},
               {3, 4.0, Seconds(0.11), 512},
               {4, 3.5, Seconds(0.1), 512}};
    for (std::int64_t r = 0; r < 2; ++r) {
        sim::MeasuredRank rank;
        rank.rank = r;
        rank.host = "here";
        rank.held[sim::TensorKind::weights] = sim::Bytes(1000.0);
        rank.at_peak = rank.held;
        rank.at_peak[sim::TensorKind::activations] = sim::Bytes(500.0 + static_cast<double>(r));
        rank.peak_phase = sim::Phase::backward;
        rank.phases["backward"] = rank.at_peak;
        rank.seconds[sim::TimeKind::gemm] = Seconds(r == 0 ? 0.05 : 0.06);
        rank.seconds[sim::TimeKind::optimizer] = Seconds(0.01);
        rank.seconds[sim::TimeKind::dp_comm] = Seconds(r == 0 ? 0.035 : 0.025);
        rank.seconds[sim::TimeKind::overhead] = Seconds(0.005);
        rank.sent["dp_cp"] = sim::Bytes(2000.0);
        m.per_rank.push_back(rank);
    }
    m.timeline_step = 4;
    m.tasks = {{sim::TaskKind::forward, sim::StreamKind::compute, 0, 0, 0, 0},
               {sim::TaskKind::backward, sim::StreamKind::compute, 0, 0, 0, 0}};
    sim::Timeline timeline;
    timeline.origin = sim::TimelineOrigin::measured;
    timeline.tracks = {{0, 0, 1, sim::StreamKind::compute}, {0, 1, 1, sim::StreamKind::compute}};
    for (std::uint32_t track = 0; track < 2; ++track) {
        timeline.spans.push_back(
            {track, 0, sim::TaskKind::forward, sim::WaitCause::none, 0, 20'000'000, 0.0, 0.0});
        timeline.spans.push_back({track, 1, sim::TaskKind::backward, sim::WaitCause::stream,
                                  20'000'000, 60'000'000, 0.0, 0.0});
    }
    m.timeline = timeline;
    return m;
}

} // namespace shardplan::test
