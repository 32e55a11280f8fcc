#include "executor/run/training_check.hpp"

#include <string>
#include <utility>

#include "executor/model/check.hpp"
#include "executor/model/share.hpp"
#include "simulator/spec/model.hpp"

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

/// Chunks that a schedule is made for; 0: any number above 1.
Index chunks_of(sim::ScheduleKind kind) {
    switch (kind) {
        case sim::ScheduleKind::interleaved:
            return 0;
        case sim::ScheduleKind::zb_v:
        case sim::ScheduleKind::dual_pipe:
            return 2;
        default:
            return 1;
    }
}

Status check_pipeline(const TrainingPlan& plan) {
    const sim::Layout& l = plan.layout;
    const Index blocks = sim::block_count(*sim::trunk_of(plan.model));
    const bool mirrored = l.schedule == sim::ScheduleKind::dual_pipe;
    const Index slices = mirrored ? l.pp : Index{l.pp} * l.chunks;
    const Index chunks = chunks_of(l.schedule);
    const std::string name(sim::name_of(l.schedule));
    Index mapped = blocks;
    bool too_few = slices > blocks;
    std::size_t stages = l.pp;
    if (l.stage_map != 0) {
        const sim::StageMap& map = plan.tables.stage_map(l.stage_map);
        stages = map.layers.size();
        mapped = 0;
        too_few = false;
        for (const std::int64_t layers : map.layers) {
            mapped += layers;
            too_few = too_few || layers < (mirrored ? 1 : Index{l.chunks});
        }
    }
    return check_rules(
        {{l.pp == 1 && (l.chunks > 1 || l.schedule != sim::ScheduleKind::one_f_one_b), "layout/pp",
          "chunks and schedules belong to pipelines, and pp is 1", "leave v and sched out"},
         {l.pp > 1 && (chunks == 0 ? l.chunks < 2 : l.chunks != chunks), "layout/sched",
          name + " does not go with v" + std::to_string(l.chunks),
          chunks == 0 ? "use v2 or more" : "use v" + std::to_string(chunks)},
         {mirrored && l.pp % 2 != 0, "layout/sched", "dualpipe pairs stages, and pp is odd",
          "use an even pp"},
         {stages != l.pp || mapped != blocks, "layout/stages",
          "the stages hold " + std::to_string(mapped) + " blocks in " + std::to_string(stages) +
              " stages, the model has " + std::to_string(blocks) + " and the layout pp" +
              std::to_string(l.pp),
          "name as many stages as pp, with all blocks of the model"},
         {too_few, "layout/pp", "a chunk of the " + std::to_string(slices) + " would hold no block",
          "use fewer stages or chunks"}},
        ErrorCode::bad_input);
}

Status check_sharing(const TrainingPlan& plan) {
    const sim::Layout& l = plan.layout;
    const bool offloads =
        l.offload_optimizer > 0 || l.offload_parameters > 0 || l.offload_activations > 0;
    const Index sharers = Index{l.dp} * l.cp;
    return check_rules({{l.shard_group != 0 && sharers % l.shard_group != 0, "layout/zero",
                         "a shard group of " + std::to_string(l.shard_group) +
                             " does not divide dp x cp = " + std::to_string(sharers),
                         "use a group that divides it"},
                        {offloads && l.offload_tier == sim::OffloadTier::none, "layout/off",
                         "a share is to be held off the device, and it is not said where",
                         "use off=opt:1.0:host"}},
                       ErrorCode::bad_input);
}

} // namespace

Index micro_batches_of(const TrainingPlan& plan) {
    return plan.global_batch / (Index{plan.layout.dp} * plan.layout.micro_batch);
}

Status check_training(const TrainingPlan& plan, Index ranks) {
    if (auto s = check_model(plan.model); !s) return s;
    if (auto s = check_sizes(plan, ranks); !s) return s;
    if (auto s = check_pipeline(plan); !s) return s;
    if (auto s = check_sharing(plan); !s) return s;
    for (Index rank = 0; rank < ranks; ++rank) {
        auto share = share_of(plan.model, plan.layout, plan.tables, rank);
        if (!share) return std::move(share).error();
    }
    return sim::Done{};
}

} // namespace shardplan::exec
