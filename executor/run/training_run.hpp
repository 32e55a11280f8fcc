#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "executor/run/trainer.hpp"
#include "simulator/engine/measurement.hpp"

/// A training run from the first step to the last, as one rank takes part in it.
namespace shardplan::exec {

/// What names a run in its records.
struct RunNames {
    std::string plan;      ///< file
    std::string plan_hash; ///< of sim::plan_hash
    std::string model;
    std::string layout; ///< text form
    std::string program;
    std::string backend;
    std::map<std::string, std::string> versions;
    std::int64_t parameters = 0; ///< of the model
};

/// What happens around the steps.
struct RunControl {
    Index steps = 10;           ///< the step to train up to, counted from the very first
    bool timeline = false;      ///< the measurement shows the last step
    bool measure = false;       ///< a measurement is made
    double probe_seconds = 0.1; ///< of the noise, before a measured run; 0: none
    std::function<bool()> stop; ///< asked after each step on every rank; empty: never
    Index hash_every = 0;       ///< steps from one comparison of replicas to the next; 0: none
    std::string save;           ///< folder of checkpoints; empty: none
    Index save_every = 0;       ///< steps; 0: at the end alone
    bool resume = false;        ///< from the latest checkpoint of `save`, if there is one
};

/// One line of output: a JSON object. Called on rank 0.
using RecordSink = std::function<void(const std::string& line)>;

using MakeTrainer = std::function<Result<std::unique_ptr<Trainer>>(Communicator& world)>;

/// How a run ended.
struct RunEnd {
    bool stopped = false; ///< before the last step, because somebody asked for it
    Index steps = 0;      ///< done in this run
    Index step = 0;       ///< the last one, counted from the very first
    std::optional<sim::Measurement> measurement; ///< on rank 0, if asked for
};

/// Trains. Every rank of `world` calls it with the same arguments; `threads`: of each rank's
/// operators. On rank 0 `out` gets a record as the run starts, one for each step, and one at the
/// end, and one for each checkpoint. Errors: the trainer's; those of checkpoints; replicas that
/// differ. After them nothing more is said here.
Result<RunEnd> run_training(Communicator& world, const TrainingPlan& plan, const RunNames& names,
                            const RunControl& control, const MakeTrainer& make,
                            const RecordSink& out);

} // namespace shardplan::exec
