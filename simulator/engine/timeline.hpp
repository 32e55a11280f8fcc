#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/estimate/kinds.hpp"
#include "simulator/schedule/schedule.hpp"

namespace shardplan::sim {

/// What a task is counted as; gemm stands for all of compute. `stream`: whose exchange it is.
TimeKind time_kind_of(TaskKind kind, StreamKind stream);

/// Why a span did not start earlier.
enum class WaitCause : std::uint8_t {
    none,     ///< it started at time 0
    stream,   ///< the task before it on its stream
    pipeline, ///< a pass of another stage
    message,  ///< a boundary tensor on its way
    exchange, ///< tensor, context or expert communication
    gather,   ///< parameters
    reduce,   ///< gradients
    offload,
    optimizer,
};
inline constexpr std::size_t wait_cause_count = 9;
template <>
struct EnumNames<WaitCause> {
    static constexpr std::array<std::string_view, wait_cause_count> names = {
        "none",   "stream", "pipeline", "message",  "exchange",
        "gather", "reduce", "offload",  "optimizer"};
};

/// Where the spans of a timeline come from.
enum class TimelineOrigin : std::uint8_t { predicted, measured };
template <>
struct EnumNames<TimelineOrigin> {
    static constexpr std::array<std::string_view, 2> names = {"predicted", "measured"};
};

/// A row of spans that do not overlap.
struct TimelineTrack {
    std::int32_t stage = 0;
    std::int64_t rank = 0;  ///< the rank, or the example rank of the class it stands for
    std::int64_t ranks = 1; ///< ranks that it stands for
    StreamKind stream = StreamKind::compute;

    friend bool operator==(const TimelineTrack&, const TimelineTrack&) = default;
};

/// Something that ran from t0 to t1.
struct Span {
    std::uint32_t track = 0;
    std::uint32_t task = 0; ///< of the Schedule; spans of a measured timeline too
    TaskKind op = TaskKind::forward;
    WaitCause cause = WaitCause::none;
    std::int64_t t0 = 0; ///< ns
    std::int64_t t1 = 0; ///< ns
    double bytes = 0.0;  ///< sent by one rank
    double flops = 0.0;

    friend bool operator==(const Span&, const Span&) = default;
};

/// A quantity over time: it has `values[i]` from `t[i]` on.
struct Counter {
    std::string name; ///< "memory", "load of nvswitch"
    std::int32_t stage = 0;
    std::vector<std::int64_t> t; ///< ns, rising
    std::vector<double> values;

    friend bool operator==(const Counter&, const Counter&) = default;
};

/// When things happen in one step, predicted or measured.
struct Timeline {
    TimelineOrigin origin = TimelineOrigin::predicted;
    std::int64_t clock_error = 0; ///< ns by which the clocks of ranks may differ; 0 if predicted
    std::vector<TimelineTrack> tracks;
    std::vector<Span> spans; ///< by track, then time
    std::vector<Counter> counters;
    std::int64_t dropped = 0; ///< spans that were left out

    friend bool operator==(const Timeline&, const Timeline&) = default;
};

/// Seconds to whole nanoseconds, nearest.
std::int64_t nanoseconds(double seconds);

} // namespace shardplan::sim
