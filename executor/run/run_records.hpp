#pragma once

#include <string>
#include <vector>

#include "executor/run/training_run.hpp"
#include "simulator/engine/measurement.hpp"

/// The lines a training program writes: JSON objects with a member "event".
namespace shardplan::exec {

/// What every rank tells all others after a step.
struct StepFacts {
    double stop = 0.0; ///< 1: somebody asked this rank to stop
    double seconds = 0.0;
    double communication = 0.0; ///< share of them
    double held = 0.0;          ///< bytes
    double peak = 0.0;          ///< bytes

    friend bool operator==(const StepFacts&, const StepFacts&) = default;
};

/// The largest of a fact over all ranks.
double largest(const std::vector<StepFacts>& all, double StepFacts::*fact);

/// Where and when a run starts.
struct RunStart {
    const std::vector<std::string>& hosts; ///< of each rank
    std::string date;
    Index begins_after_step = 0;
};

std::string start_record(const RunNames& names, const TrainingPlan& plan, const RunControl& control,
                         const RunStart& start);
std::string step_record(const TrainStep& step, const std::vector<StepFacts>& all);
std::string save_record(Index step, const std::string& path);
/// `measured`: its steps.
std::string end_record(const RunEnd& end, const sim::Measurement& measured);

/// The record of a run that failed: {"event": "error", "rank": ..., "where": ...}.
std::string error_record(const Error& error, int rank);

} // namespace shardplan::exec
