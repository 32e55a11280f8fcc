#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/engine/measurement.hpp"
#include "simulator/estimate/evaluator.hpp"

/// A run that was measured beside what is predicted for its layout, term by term.
namespace shardplan::plan {

/// One figure as predicted and as measured, in seconds or bytes.
struct MeasuredTerm {
    std::string name;
    double predicted = 0.0;
    std::optional<double> measured; ///< absent: the run cannot tell

    [[nodiscard]] bool known() const { return measured.has_value(); }
    /// By how much the prediction is off; 0 where nothing was measured.
    [[nodiscard]] double off() const { return measured ? predicted - *measured : 0.0; }
    friend bool operator==(const MeasuredTerm&, const MeasuredTerm&) = default;
};

/// Device memory of the ranks of one class. Measured: the rank of it that held most.
struct MeasuredMemory {
    std::int64_t stage = 0;
    std::int64_t rank = 0;             ///< that was measured
    std::vector<MeasuredTerm> held;    ///< between two steps, by kind of tensor
    std::vector<MeasuredTerm> at_peak; ///< at the worst instant, by kind of tensor
    MeasuredTerm allocated;            ///< at the worst instant, all kinds inside the allocator
    std::vector<MeasuredTerm> phases;  ///< at the worst instant of each phase, all such kinds
    sim::Phase predicted_phase = sim::Phase::forward;
    sim::Phase measured_phase = sim::Phase::forward;

    friend bool operator==(const MeasuredMemory&, const MeasuredMemory&) = default;
};

/// The term of a table that is off by most.
struct FurthestTerm {
    std::string name;
    double predicted = 0.0;
    double measured = 0.0;
    double share = 0.0; ///< what it is off by, over the measured whole of its table

    friend bool operator==(const FurthestTerm&, const FurthestTerm&) = default;
};

struct MeasuredComparison {
    sim::Band<sim::Seconds> predicted;
    sim::Seconds measured;      ///< median step
    double spread = 0.0;        ///< of the steps: 90th less 10th percentile, over the median
    std::int64_t steps = 0;     ///< that count
    std::int64_t time_rank = 0; ///< the rank whose time is shown: the one that computes longest
    std::vector<MeasuredTerm> time;
    std::vector<MeasuredMemory> memory; ///< by class
    std::vector<MeasuredTerm> sent; ///< bytes in a step by dimension, of the rank that sends most
    std::optional<FurthestTerm> furthest_time, furthest_memory, furthest_sent;

    friend bool operator==(const MeasuredComparison&, const MeasuredComparison&) = default;
};

/// Errors: the layout has other ranks than took part; no step counts.
sim::Result<MeasuredComparison> compare_measurement(const sim::Evaluator& evaluator,
                                                    const sim::Layout& layout,
                                                    const sim::Measurement& measurement);

} // namespace shardplan::plan
