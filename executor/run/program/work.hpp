#pragma once

#include "executor/comm/communicator.hpp"
#include "executor/run/program/loaded_plan.hpp"

namespace shardplan::exec {

/// Gives each rank its part of this machine's processors, unless options say how many threads.
/// `launched`: ranks are processes, which their launcher may have bound to some of them.
void share_processors(const ProgramOptions& options, TrainingPlan& plan, bool launched);

/// Versions of the program and what it was built with.
std::map<std::string, std::string> build_versions();

/// What one rank does, from its tokens to the files that are asked for. Rank 0 calls `out` with
/// each record. Every rank of `world` calls it with the same options.
Status do_work(Communicator& world, const ProgramOptions& options, const LoadedPlan& loaded,
               const RecordSink& out);

} // namespace shardplan::exec
