#include "planner/search/plan.hpp"

#include <memory>

namespace shardplan::plan {

namespace {

class EvaluatorPricer final : public Pricer {
public:
    explicit EvaluatorPricer(const sim::Evaluator& evaluator) : evaluator_(evaluator) {}

    sim::Score memory(const sim::Layout& layout) override {
        return evaluator_.score_memory(layout, workspace_);
    }
    void add_least_time(const sim::Layout& layout, sim::Score& score) override {
        evaluator_.add_least_time(layout, workspace_, score);
    }
    void add_time(const sim::Layout& layout, sim::Score& score) override {
        evaluator_.add_time(layout, workspace_, score);
    }

private:
    const sim::Evaluator& evaluator_;
    sim::Workspace workspace_;
};

} // namespace

PlanSet plan(const sim::Evaluator& evaluator, const SearchOptions& options) {
    const Space space(evaluator.scenario(), evaluator.resolved(), evaluator.tables());
    return search(space, pricers_of(evaluator), options);
}

PricerFactory pricers_of(const sim::Evaluator& evaluator) {
    return [&evaluator] { return std::make_unique<EvaluatorPricer>(evaluator); };
}

} // namespace shardplan::plan
