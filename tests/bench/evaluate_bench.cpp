#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "simulator/estimate/evaluator.hpp"
#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;

/// A probe of the machine, to read the other figures by: dependent additions and divisions, and
/// sums over 8 MiB.
void MachineProbeArithmetic(benchmark::State& state) {
    double x = 1.0;
    for (auto _ : state) {
        for (int i = 0; i < 1000; ++i)
            x = 1.0 + 1.0 / (x + 1.0);
        benchmark::DoNotOptimize(x);
    }
    state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(MachineProbeArithmetic);

void MachineProbeMemory(benchmark::State& state) {
    const std::vector<double> values(1U << 20U, 1.0);
    for (auto _ : state) {
        double sum = 0.0;
        for (const double v : values)
            sum += v;
        benchmark::DoNotOptimize(sum);
    }
    state.SetBytesProcessed(state.iterations() *
                            static_cast<std::int64_t>(values.size() * sizeof(double)));
}
BENCHMARK(MachineProbeMemory);

struct Case {
    std::unique_ptr<sim::Evaluator> evaluator;
    sim::Layout layout;
};

Case make_case(const sim::Scenario& scenario, std::string_view text) {
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(text, "layout", tables);
    const auto layout =
        sim::complete_layout(*parsed, sim::device_count(scenario.cluster), "layout");
    auto evaluator = sim::Evaluator::make(scenario, tables);
    return {std::make_unique<sim::Evaluator>(std::move(*evaluator)), *layout};
}

Case llama_70b() {
    return make_case(test::scenario(test::llama_3_70b(), test::dgx_h100(64), test::job(8192, 1024),
                                    test::megatron_core_stack()),
                     "tp8,sp,pp4,mb1,zero1");
}
Case gpt3() {
    return make_case(test::scenario(test::gpt3_175b(), test::dgx_a100(128), test::job(2048, 1536),
                                    test::megatron_core_stack()),
                     "tp8,sp,pp16,mb1,zero1,rc=selective");
}

/// Full Estimates of one layout with warm caches, per second.
void evaluate_warm(benchmark::State& state, const Case& given) {
    sim::Workspace workspace;
    sim::Estimate estimate;
    given.evaluator->evaluate(given.layout, workspace, estimate);
    for (auto _ : state) {
        given.evaluator->evaluate(given.layout, workspace, estimate);
        benchmark::DoNotOptimize(estimate.time.total.value);
    }
    state.SetItemsProcessed(state.iterations());
}
void EvaluateWarmLlama70bOn512H100(benchmark::State& state) { evaluate_warm(state, llama_70b()); }
BENCHMARK(EvaluateWarmLlama70bOn512H100);
void EvaluateWarmGpt3With16Stages(benchmark::State& state) { evaluate_warm(state, gpt3()); }
BENCHMARK(EvaluateWarmGpt3With16Stages);

void ScoreWarmLlama70bOn512H100(benchmark::State& state) {
    const Case given = llama_70b();
    sim::Workspace workspace;
    for (auto _ : state) {
        benchmark::DoNotOptimize(given.evaluator->score(given.layout, workspace));
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ScoreWarmLlama70bOn512H100);

/// The first Estimate of a layout, with everything it needs.
void EvaluateColdLlama70bOn512H100(benchmark::State& state) {
    const Case given = llama_70b();
    for (auto _ : state) {
        sim::Workspace workspace;
        sim::Estimate estimate;
        given.evaluator->evaluate(given.layout, workspace, estimate);
        benchmark::DoNotOptimize(estimate.time.total.value);
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(EvaluateColdLlama70bOn512H100);

} // namespace
