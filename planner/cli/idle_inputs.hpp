#pragma once

#include <vector>

#include "planner/cli/options.hpp"
#include "simulator/estimate/evaluator.hpp"

/// What somebody typed and what changes no figure: a setting of something that the layout does not
/// use, or a term of a layout that has nothing to do. Found by pricing the layout without it.
namespace shardplan::plan::cli {

/// Where the question is asked: a search reads more of an input than one estimate does.
enum class Asked { estimate, plan };

/// One warning ("no-effect") for each --set, --feature and flag of the job without which the
/// Estimate would be the same. Left out: what says again what holds anyway, what only names or
/// describes, and what other questions read (the calendar, the search, legality). `estimate` is
/// that of `layout` under `evaluator`, annotated.
std::vector<sim::Warning> inputs_without_effect(const ScenarioOptions& options,
                                                const sim::Evaluator& evaluator,
                                                const sim::Layout& layout,
                                                const sim::Estimate& estimate, Asked asked);

/// The same for the terms of a layout that was typed.
std::vector<sim::Warning> terms_without_effect(const sim::Evaluator& evaluator,
                                               const sim::Layout& layout,
                                               const sim::Estimate& estimate);

} // namespace shardplan::plan::cli
