#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/engine/play.hpp"
#include "simulator/schedule/schedule.hpp"

namespace shardplan::sim {

/// One communication in the two shares that a Schedule gives it.
struct SplitSeconds {
    double waits = 0.0; ///< seconds that compute waits for
    double under = 0.0; ///< seconds that may run under compute
    double bytes = 0.0; ///< one rank sends for both

    [[nodiscard]] double total() const { return waits + under; }
    friend bool operator==(const SplitSeconds&, const SplitSeconds&) = default;
};

/// What a unit costs for one micro-batch, in the steps of its UnitSteps.
struct UnitCosts {
    std::vector<double> forward; ///< seconds of each part of compute; one more than exchanges
    std::vector<double> backward;
    double weight = 0.0; ///< gradients of weights, where they are passes of their own
    std::vector<SplitSeconds> forward_exchanges;
    std::vector<SplitSeconds> backward_exchanges;
    double forward_flops = 0.0;
    double backward_flops = 0.0;
    double weight_flops = 0.0;
    float bandwidth_bound = 0.0F; ///< share of its compute that waits for memory

    friend bool operator==(const UnitCosts&, const UnitCosts&) = default;
};

/// What a stage costs beside its units.
struct StageSeconds {
    SplitSeconds message;         ///< one boundary tensor, either direction
    SplitSeconds gather;          ///< parameters: of all units of the stage, or of all buckets
    SplitSeconds reduce;          ///< gradients: the same
    double replicas = 0.0;        ///< gradients over copies of shards, and of tied tables, per step
    double forward_copies = 0.0;  ///< per micro-batch, on the stream of compute
    double backward_copies = 0.0; ///< the same
    double optimizer = 0.0;
    double offload_forward = 0.0; ///< per micro-batch
    double offload_backward = 0.0;
    double offload_states = 0.0;
    double save = 0.0;

    friend bool operator==(const StageSeconds&, const StageSeconds&) = default;
};

/// A route over links that streams of the stage share; no_route: over none.
struct StageRoutes {
    std::array<std::uint32_t, stream_kind_count> of_stream{};
    std::uint32_t send_up = no_route;   ///< to the stage after it
    std::uint32_t send_down = no_route; ///< to the stage before it

    friend bool operator==(const StageRoutes&, const StageRoutes&) = default;
};

/// Durations by stage and unit, from whoever knows them: the cost model or a measurement.
struct StageCosts {
    std::vector<UnitCosts> units;     ///< by unit kind of the ScheduleInput
    std::vector<StageSeconds> stages; ///< by stage
    /// Share of the compute units that communication under compute takes; 0: none.
    float taken_units = 0.0F;
    float taken_bandwidth = 0.0F;
    /// Besides networks: the processors of a node where ranks share them, one "byte" a second of
    /// compute each.
    LinkTable links;
    std::vector<StageRoutes> routes; ///< by stage; empty: no link is shared

    friend bool operator==(const StageCosts&, const StageCosts&) = default;
};

/// The costs of every task of a schedule made from `input`.
TaskCosts price(const ScheduleInput& input, const Schedule& schedule, const StageCosts& costs);

/// Flops of a task; 0 for communication.
double flops_of(const ScheduleInput& input, const Schedule& schedule, const StageCosts& costs,
                std::size_t task);

} // namespace shardplan::sim
