#include "planner/search/plan.hpp"

#include <algorithm>
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
    void add_least_time_in_any_order(const sim::Layout& layout, sim::Score& score) override {
        evaluator_.add_least_time(layout, workspace_, score, sim::Evaluator::Links::none);
    }
    std::uint16_t most_offload(const sim::Layout& layout, sim::OffloadTier tier,
                               std::uint16_t step) override {
        std::uint16_t share = sim::offload_scale;
        while (share > 0 &&
               !nodes_hold(evaluator_, with_offload(layout, tier, share), workspace_, estimate_)) {
            share = static_cast<std::uint16_t>(share - step);
        }
        return share;
    }
    void add_time(const sim::Layout& layout, sim::Score& score) override {
        evaluator_.add_time(layout, workspace_, score);
    }

private:
    const sim::Evaluator& evaluator_;
    sim::Workspace workspace_;
    sim::Estimate estimate_;
};

} // namespace

bool nodes_hold(const sim::Evaluator& evaluator, const sim::Layout& layout,
                sim::Workspace& workspace, sim::Estimate& scratch) {
    evaluator.evaluate(layout, workspace, scratch);
    const auto& groups = evaluator.scenario().cluster.node_groups;
    return std::all_of(scratch.classes.begin(), scratch.classes.end(), [&](const auto& c) {
        const sim::NodeTemplate& node = groups[static_cast<std::size_t>(c.node_group)].node;
        const auto ranks = static_cast<double>(node.devices);
        return c.host * ranks <= node.host.memory &&
               (c.nvme.value() == 0.0 || c.nvme * ranks <= node.host.nvme);
    });
}

PlanSet plan(const sim::Evaluator& evaluator, const SearchOptions& options) {
    const Space space(evaluator.scenario(), evaluator.resolved(), evaluator.tables());
    return search(space, pricers_of(evaluator), options);
}

PricerFactory pricers_of(const sim::Evaluator& evaluator) {
    return [&evaluator] { return std::make_unique<EvaluatorPricer>(evaluator); };
}

} // namespace shardplan::plan
