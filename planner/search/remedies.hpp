#pragma once

#include <string>
#include <vector>

#include "planner/search/plan.hpp"

namespace shardplan::plan {

/// One change that makes a job fit for which no layout does.
struct Remedy {
    std::string change;  ///< "4 nodes instead of 2"
    std::string setting; ///< what to type, empty where the stack would have to change
    std::string layout;  ///< the best one under the change, canonical text
    sim::Seconds step_time;
    std::int64_t devices = 0;
    /// Device seconds per token against the layout that comes closest as things are, as if it
    /// fitted: 0.25 = a quarter dearer.
    double price = 0.0;

    friend bool operator==(const Remedy&, const Remedy&) = default;
};

/// The smallest single changes, each of its kind: a constraint of the job lifted (micro-batch,
/// recomputation, memory cap), sharded parameters or offloaded states in a stack that has them,
/// more nodes, a shorter sequence, an 8-bit optimizer, adapters. Cheapest first; kinds that do not
/// help are left out. `found`: the search that found nothing. `options`: objective, threads and
/// stop token are used.
std::vector<Remedy> remedies(const sim::Evaluator& evaluator, const PlanSet& found,
                             const SearchOptions& options);

} // namespace shardplan::plan
