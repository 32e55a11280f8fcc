#include <algorithm>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/reproduce_notes.hpp"

namespace shardplan::plan {
namespace {

/// What a run proves about its software by having started: every way to split that it uses.
sim::Capabilities everything(sim::Capabilities stated) {
    const auto all = []<class E>(std::vector<E>& list) {
        list.clear();
        for (std::size_t i = 0; i < sim::EnumNames<E>::names.size(); ++i) {
            list.push_back(static_cast<E>(i));
        }
    };
    all(stated.shards);
    all(stated.schedules);
    all(stated.cp_kinds);
    all(stated.recompute);
    all(stated.offload_tiers);
    for (bool* can : {&stated.tensor_parallel, &stated.sequence_parallel, &stated.pipeline_parallel,
                      &stated.expert_parallel, &stated.expert_tensor_parallel, &stated.hybrid_shard,
                      &stated.shard_with_pipeline, &stated.kv_replication, &stated.uneven_stages,
                      &stated.partial_recompute, &stated.adapters}) {
        *can = true;
    }
    stated.interleaving_needs_multiple = false;
    stated.vocab_multiple = std::max<std::int64_t>(stated.vocab_multiple, 1);
    return stated;
}

/// A published layout that the profile of its stack refuses ran all the same: the refusals become
/// notes, and the estimate is made with a stack that allows them. What is left over is a
/// contradiction in the record itself.
sim::Status allow_layout(Reproduction& run) {
    const auto refusals = [&]() -> sim::Result<std::vector<sim::Refusal>> {
        const auto resolved = sim::resolve(run.scenario);
        if (!resolved) {
            return resolved.error();
        }
        return sim::check_layout(run.scenario, resolved->values, run.layout, run.tables);
    };
    auto found = refusals();
    if (!found) {
        return found.error();
    }
    if (found->empty()) {
        return sim::Done{};
    }
    for (const sim::Refusal& refusal : *found) {
        note(run.notes, "layout." + refusal.field, refusal.rule, "allowed, since it ran");
    }
    run.scenario.stack.capabilities = everything(run.scenario.stack.capabilities);
    found = refusals();
    if (!found) {
        return found.error();
    }
    if (!found->empty()) {
        return unusable("layout." + found->front().field, found->front().rule);
    }
    return sim::Done{};
}

} // namespace

sim::Result<Reproduction> Reproducer::reproduce_as_run(const sim::RunRecord& record) {
    auto run = reproduce(record);
    if (!run) {
        return run;
    }
    if (const auto allowed = allow_layout(*run); !allowed) {
        return allowed.error();
    }
    return run;
}

} // namespace shardplan::plan
