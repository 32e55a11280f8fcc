#include <algorithm>
#include <utility>

#include "planner/analysis/reproduce.hpp"
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

RunPrediction skipped(const sim::RunRecord& record, const sim::Error& error) {
    RunPrediction out;
    out.id = record.id;
    out.skipped = error.what;
    return out;
}

RunPrediction predict(const sim::RunRecord& record, Reproducer& reproducer) {
    auto run = reproducer.reproduce_as_run(record);
    if (!run) {
        return skipped(record, run.error());
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
