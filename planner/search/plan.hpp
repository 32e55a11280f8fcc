#pragma once

#include "planner/search/search.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan {

/// Searches the layouts of the evaluator's scenario. `options.objective` decides, not the job's,
/// which the caller copies unless a flag names another. Layouts of the answer point into the
/// evaluator's tables.
PlanSet plan(const sim::Evaluator& evaluator, const SearchOptions& options);

/// Pricers of a search, each with caches of its own. Keeps a reference to the evaluator.
PricerFactory pricers_of(const sim::Evaluator& evaluator);

/// Do host memory and local storage of every node hold what all its devices keep there? `scratch`
/// is overwritten.
bool nodes_hold(const sim::Evaluator& evaluator, const sim::Layout& layout,
                sim::Workspace& workspace, sim::Estimate& scratch);

} // namespace shardplan::plan
