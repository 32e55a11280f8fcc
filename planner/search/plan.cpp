#include "planner/search/plan.hpp"

namespace shardplan::plan {

PlanSet plan(const sim::Evaluator& evaluator, const SearchOptions& options) {
    const Space space(evaluator.scenario(), evaluator.resolved(), evaluator.tables());
    sim::Workspace workspace;
    return search(
        space, [&](const sim::Layout& layout) { return evaluator.score(layout, workspace); },
        options);
}

} // namespace shardplan::plan
