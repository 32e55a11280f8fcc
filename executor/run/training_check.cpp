#include "executor/run/training_check.hpp"

#include <string>
#include <utility>

#include "executor/model/check.hpp"
#include "executor/model/share.hpp"

namespace shardplan::exec {

namespace {

/// One thing that is refused.
struct Rule {
    bool broken = false;
    const char* field = "";
    std::string what;
    std::string hint;
};

Status check_rules(std::initializer_list<Rule> rules, ErrorCode code) {
    for (const Rule& rule : rules) {
        if (rule.broken) return Error{code, rule.field, rule.what, rule.hint};
    }
    return sim::Done{};
}

Status check_sizes(const TrainingPlan& plan, Index ranks) {
    const sim::Layout& l = plan.layout;
    const Index samples = Index{l.dp} * l.micro_batch;
    return check_rules(
        {{plan.sequence < 1, "sequence", "a sequence has no tokens", "give at least 1"},
         {plan.global_batch < 1 || plan.global_batch % samples != 0, "global_batch",
          "a step of " + std::to_string(plan.global_batch) + " samples does not split into dp" +
              std::to_string(l.dp) + " x mb" + std::to_string(l.micro_batch),
          "use a multiple of " + std::to_string(samples)},
         {sim::rank_count(l) != ranks, "layout",
          "the layout has " + std::to_string(sim::rank_count(l)) + " ranks, the run " +
              std::to_string(ranks),
          "start " + std::to_string(sim::rank_count(l)) + " ranks"}},
        ErrorCode::bad_input);
}

Status check_layout(const TrainingPlan& plan) {
    const sim::Layout& l = plan.layout;
    return check_rules(
        {{l.offload_activations > 0, "layout/off", "activations are not held off the device",
          "leave off=act out, or recompute"}},
        ErrorCode::unsupported);
}

} // namespace

Index micro_batches_of(const TrainingPlan& plan) {
    return plan.global_batch / (Index{plan.layout.dp} * plan.layout.micro_batch);
}

Status check_training(const TrainingPlan& plan, Index ranks) {
    if (auto s = check_model(plan.model); !s) return s;
    if (auto s = check_sizes(plan, ranks); !s) return s;
    if (auto s = check_layout(plan); !s) return s;
    for (Index rank = 0; rank < ranks; ++rank) {
        auto share = share_of(plan.model, plan.layout, plan.tables, rank);
        if (!share) return std::move(share).error();
    }
    return sim::Done{};
}

} // namespace shardplan::exec
