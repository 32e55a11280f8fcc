#pragma once

#include "planner/analysis/run_ranking.hpp"
#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {

/// Tables of how predictions rank measured runs; `every_sweep`: also sweep by sweep. Nothing where
/// nothing was ranked.
void print_ranking(const Console& console, const RunRanking& ranking, bool every_sweep);
/// The same as the member "ranking" of the object being written.
void write_ranking(sim::JsonWriter& json, const RunRanking& ranking);

} // namespace shardplan::plan::cli
