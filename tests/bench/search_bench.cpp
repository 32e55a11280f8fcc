#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "planner/import/load_model.hpp"
#include "planner/search/plan.hpp"
#include "planner/space/space.hpp"
#include "simulator/io/catalogue.hpp"

namespace {

using namespace shardplan;

/// A scenario of built-in files.
sim::Scenario built_in(const char* model, const char* cluster, std::int64_t devices,
                       std::int64_t sequence, std::int64_t batch) {
    sim::Job job;
    job.sequence.max = sequence;
    job.global_batch.sequences = batch;
    auto machine = sim::resize(sim::load_cluster(cluster)->value, devices);
    return *sim::assemble_scenario(plan::load_model(model)->model, *machine, job,
                                   *sim::load_stack("megatron-core"), {});
}
sim::Scenario gpt3_on_4096_a100() { return built_in("gpt-3-175b", "dgx-a100", 4096, 2048, 1536); }
sim::Scenario deepseek_on_2048_h100() {
    return built_in("deepseek-v3", "dgx-h100", 2048, 8192, 512);
}

std::vector<sim::Layout> whole_space(const sim::Evaluator& evaluator) {
    std::vector<sim::Layout> layouts;
    plan::for_each_layout(evaluator.scenario(), evaluator.resolved(), evaluator.tables(),
                          [&](const sim::Layout& layout) {
                              layouts.push_back(layout);
                              return plan::Visit::next;
                          });
    return layouts;
}

/// Every legal layout scored once, in the order of the space, with the building of every table
/// inside the clock.
void score_whole_space(benchmark::State& state, const sim::Scenario& scenario) {
    const auto evaluator = sim::Evaluator::make(scenario);
    const std::vector<sim::Layout> layouts = whole_space(*evaluator);
    for (auto _ : state) {
        sim::Workspace workspace;
        for (const sim::Layout& layout : layouts) {
            benchmark::DoNotOptimize(evaluator->score(layout, workspace));
        }
    }
    state.counters["layouts"] = static_cast<double>(layouts.size());
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(layouts.size()));
}
void ScoreSpaceOfGpt3On4096A100(benchmark::State& state) {
    score_whole_space(state, gpt3_on_4096_a100());
}
BENCHMARK(ScoreSpaceOfGpt3On4096A100)->Unit(benchmark::kMillisecond);
void ScoreSpaceOfDeepSeekV3On2048H100(benchmark::State& state) {
    score_whole_space(state, deepseek_on_2048_h100());
}
BENCHMARK(ScoreSpaceOfDeepSeekV3On2048H100)->Unit(benchmark::kMillisecond);

/// A whole search.
void plan_whole_space(benchmark::State& state, const sim::Scenario& scenario) {
    const auto evaluator = sim::Evaluator::make(scenario);
    plan::PlanSet found;
    for (auto _ : state) {
        found = plan::plan(*evaluator, {});
        benchmark::DoNotOptimize(found.plans.data());
    }
    state.counters["legal"] = static_cast<double>(found.counts.legal);
    state.counters["scored"] = static_cast<double>(found.counts.scored);
}
void PlanGpt3On4096A100(benchmark::State& state) { plan_whole_space(state, gpt3_on_4096_a100()); }
BENCHMARK(PlanGpt3On4096A100)->Unit(benchmark::kMillisecond);
void PlanDeepSeekV3On2048H100(benchmark::State& state) {
    plan_whole_space(state, deepseek_on_2048_h100());
}
BENCHMARK(PlanDeepSeekV3On2048H100)->Unit(benchmark::kMillisecond);

} // namespace
