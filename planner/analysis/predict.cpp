#include <algorithm>
#include <utility>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/reproduce_notes.hpp"
#include "planner/analysis/validate.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan {
namespace {

double gib(sim::Bytes bytes) { return bytes.value() / 0x1p30; }

MemoryPicks picks_of(const sim::Estimate& estimate,
                     sim::Band<sim::Bytes> sim::ClassMemory::*figure) {
    MemoryPicks out;
    const auto value = [&](const sim::ClassMemory& c) { return gib((c.*figure).value); };
    out.first = value(estimate.classes.front());
    out.last = value(estimate.classes.back());
    for (const sim::ClassMemory& c : estimate.classes) {
        if (value(c) <= out.max) {
            continue;
        }
        out.max = value(c);
        out.low = (c.*figure).low / (c.*figure).value;
        out.high = (c.*figure).high / (c.*figure).value;
    }
    return out;
}

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

RunPrediction skipped(const sim::RunRecord& record, const sim::Error& error) {
    RunPrediction out;
    out.id = record.id;
    out.skipped = error.what;
    return out;
}

RunPrediction predict(const sim::RunRecord& record, Reproducer& reproducer) {
    auto run = reproducer.reproduce(record);
    if (!run) {
        return skipped(record, run.error());
    }
    if (const auto allowed = allow_layout(*run); !allowed) {
        return skipped(record, allowed.error());
    }
    const auto evaluator = sim::Evaluator::make(std::move(run->scenario), run->tables);
    if (!evaluator) {
        return skipped(record, evaluator.error());
    }
    sim::Workspace workspace;
    sim::Estimate estimate;
    evaluator->evaluate(run->layout, workspace, estimate);

    RunPrediction out;
    out.id = record.id;
    out.notes = std::move(run->notes);
    out.notes.insert(out.notes.end(), evaluator->assumptions().begin(),
                     evaluator->assumptions().end());
    out.step_time_s = estimate.time.total.value.value();
    out.step_time_low_s = estimate.time.total.low.value();
    out.step_time_high_s = estimate.time.total.high.value();
    out.verdict = estimate.verdict;
    if (!estimate.classes.empty()) {
        out.allocated = picks_of(estimate, &sim::ClassMemory::allocated);
        out.reserved = picks_of(estimate, &sim::ClassMemory::reserved);
        out.process = picks_of(estimate, &sim::ClassMemory::process);
    }
    return out;
}

} // namespace

sim::Result<std::vector<RunPrediction>> predict_runs(const std::vector<sim::RunRecord>& records) {
    auto reproducer = Reproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    std::vector<RunPrediction> out;
    out.reserve(records.size());
    for (const sim::RunRecord& record : records) {
        // A broken data file is our fault, not a reason to skip the record.
        if (const auto stack =
                reproducer->stack(record.stack.name, record.stack.version.value_or(""));
            !stack) {
            return stack.error();
        }
        out.push_back(predict(record, *reproducer));
    }
    return out;
}

} // namespace shardplan::plan
