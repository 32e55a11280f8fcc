#pragma once

#include "executor/run/program/options.hpp"
#include "executor/run/trainer.hpp"
#include "executor/run/training_run.hpp"
#include "simulator/io/document.hpp"

namespace shardplan::exec {

/// A plan file as the executor runs it.
struct LoadedPlan {
    TrainingPlan plan;
    sim::Scenario scenario; ///< that the plan was made for
    RunNames names;         ///< without program, back end and versions
    std::string device;     ///< that a rank stands for
    std::string network;    ///< between machines
};

/// Reads the plan that options name, and fills in how they want it trained. Errors: the file's; a
/// plan it does not hold; another number of ranks than `ranks` (0: any); jobs that the executor
/// does not do (adapters, formats, optimizers), by the field of the job.
sim::Result<LoadedPlan> load_plan(const ProgramOptions& options, Index ranks);

/// What is said where `ranks` took part in place of as many as the layout has.
sim::Error wrong_rank_count(const LoadedPlan& loaded, Index ranks);

/// The tokens of a run: the file's, or as many made-up ones as all steps need. Errors: the file's;
/// a model whose vocabulary is too small for bytes.
sim::Result<TokenSource> tokens_of(const ProgramOptions& options, const TrainingPlan& plan);

} // namespace shardplan::exec
