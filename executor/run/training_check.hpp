#pragma once

#include "executor/run/trainer.hpp"

namespace shardplan::exec {

/// What no rank can train of a plan on `ranks` ranks, by field; the same on all ranks, and before
/// any of them talks to another.
Status check_training(const TrainingPlan& plan, Index ranks);

/// Samples of a step on one data-parallel rank over those of a pass.
Index micro_batches_of(const TrainingPlan& plan);

} // namespace shardplan::exec
