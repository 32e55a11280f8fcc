#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulator/engine/timeline.hpp"
#include "simulator/estimate/kinds.hpp"
#include "simulator/spec/fields.hpp"

/// What really happened in a training run, in the terms of an Estimate and a Simulation.
namespace shardplan::sim {

/// One optimizer step.
struct MeasuredStep {
    std::int64_t step = 0; ///< counted from 1
    double loss = 0.0;     ///< mean cross entropy per token, natural units
    Seconds seconds;       ///< on the slowest rank
    std::int64_t tokens = 0;

    friend bool operator==(const MeasuredStep&, const MeasuredStep&) = default;
};

/// What one rank held, sent and waited for.
struct MeasuredRank {
    std::int64_t rank = 0;
    std::int64_t stage = 0;
    std::string host;
    BytesByKind held;    ///< between two steps
    BytesByKind at_peak; ///< at the instant of the largest sum
    Phase peak_phase = Phase::forward;
    std::map<std::string, BytesByKind> phases; ///< by name: at the largest sum within each
    Bytes offloaded_host;                      ///< states kept in host memory
    Bytes offloaded_disk;
    Bytes process; ///< largest resident memory of its process, which ranks as threads share
    /// Of the median step. `gemm` stands for all passes, which spans do not tell apart; waiting for
    /// another stage and its message are one, `bubble`.
    SecondsByKind seconds;
    std::map<std::string, Bytes> sent; ///< per step, by group: "tp"

    friend bool operator==(const MeasuredRank&, const MeasuredRank&) = default;
};

/// What spans of a measured timeline name: a task as the rank ran it.
struct MeasuredTask {
    TaskKind kind = TaskKind::forward;
    StreamKind stream = StreamKind::compute;
    std::int64_t stage = 0;
    std::int64_t chunk = 0;
    std::int64_t unit = 0;
    std::int64_t micro_batch = -1; ///< -1: once per step

    friend bool operator==(const MeasuredTask&, const MeasuredTask&) = default;
};

/// The same piece of work timed over and over on a machine that does nothing else.
struct NoiseProbe {
    std::int64_t repeats = 0;
    Seconds median;
    double spread = 0.0; ///< 90th less 10th percentile, over the median

    friend bool operator==(const NoiseProbe&, const NoiseProbe&) = default;
};

struct Measurement {
    std::string plan_hash; ///< plan_hash() of scenario and layout
    std::string plan;      ///< file the plan was read from, as it was named
    std::string model;
    std::string layout;  ///< text form
    std::string program; ///< "shardplan-run-cpu"
    std::string backend; ///< "threads", "mpi"
    std::string date;    ///< of the start: "2026-11-29T20:15:00Z"
    std::int64_t ranks = 0;
    std::int64_t threads_per_rank = 0;
    std::vector<std::string> hosts; ///< each once
    std::map<std::string, std::string> versions;
    std::string clock;         ///< what times were read from
    std::int64_t settling = 0; ///< leading steps that count for nothing: memory is touched first
    std::vector<MeasuredStep> steps;
    std::vector<MeasuredRank> per_rank;
    std::optional<NoiseProbe> noise;
    std::int64_t timeline_step = 0; ///< the step that `timeline` shows; 0: none
    std::vector<MeasuredTask> tasks;
    std::optional<Timeline> timeline; ///< measured; its spans name `tasks`

    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The place in `steps` of the median by time of those after the settling ones (of two in the
/// middle the faster one): a step that really ran. Nothing if none is left.
std::optional<std::size_t> median_step(const Measurement& measurement);

/// `tasks` as a Schedule without dependencies, for what labels spans.
Schedule schedule_of(const Measurement& measurement);

void describe(FieldVisitor& v, BytesByKind& x);
void describe(FieldVisitor& v, SecondsByKind& x);
void describe(FieldVisitor& v, TimelineTrack& x);
void describe(FieldVisitor& v, Span& x);
void describe(FieldVisitor& v, Counter& x);
void describe(FieldVisitor& v, Timeline& x);
void describe(FieldVisitor& v, MeasuredStep& x);
void describe(FieldVisitor& v, MeasuredRank& x);
void describe(FieldVisitor& v, MeasuredTask& x);
void describe(FieldVisitor& v, NoiseProbe& x);
void describe(FieldVisitor& v, Measurement& x);

} // namespace shardplan::sim
