#include <chrono>
#include <memory>
#include <thread>

#include <benchmark/benchmark.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "tests/bench/gpt2_step.hpp"

/// A training step on one rank, all cores, and where its time goes.
namespace {

using namespace shardplan;
using Clock = std::chrono::steady_clock;

/// Adds up the time of what a step does most.
class Timed : public exec::CpuKernels<float> {
public:
    using exec::CpuKernels<float>::CpuKernels;

    struct Share {
        double seconds = 0.0;
        double flops = 0.0;
    };
    Share products, attention, optimizer;

    void product(exec::ProductForm form, exec::ProductShape s, const float* a, const float* b,
                 float* c, bool accumulate) override {
        const Clock::time_point start = Clock::now();
        CpuKernels::product(form, s, a, b, c, accumulate);
        add(products, start, 2.0 * static_cast<double>(s.m * s.n * s.k));
    }
    void attention_forward(const exec::AttentionShape& s, const float* q, const float* k,
                           const float* v, float* out, float* lse) override {
        const Clock::time_point start = Clock::now();
        CpuKernels::attention_forward(s, q, k, v, out, lse);
        add(attention, start, 2.0 * pair_flops(s));
    }
    void attention_backward(const exec::AttentionShape& s, const float* q, const float* k,
                            const float* v, const float* out, const float* lse, const float* dout,
                            float* dq, float* dk, float* dv) override {
        const Clock::time_point start = Clock::now();
        CpuKernels::attention_backward(s, q, k, v, out, lse, dout, dq, dk, dv);
        add(attention, start, 5.0 * pair_flops(s));
    }
    void adamw(const exec::AdamWStep& step, exec::Index count, float factor, const float* gradient,
               float* parameter, float* first, float* second) override {
        const Clock::time_point start = Clock::now();
        CpuKernels::adamw(step, count, factor, gradient, parameter, first, second);
        add(optimizer, start, 0.0);
    }
    void restart() { products = attention = optimizer = {}; }

private:
    /// One product over the pairs of a causal mask.
    static double pair_flops(const exec::AttentionShape& s) {
        const auto length = static_cast<double>(s.queries);
        return 2.0 * static_cast<double>(s.sequences * s.heads * s.head_dim) * length *
               (length + 1.0) / 2.0;
    }
    static void add(Share& share, Clock::time_point start, double flops) {
        share.seconds += std::chrono::duration<double>(Clock::now() - start).count();
        share.flops += flops;
    }
};

/// Arguments: samples, tokens of each, 16-bit storage or not.
void StepOfGpt2OnOneRank(benchmark::State& state) {
    const auto threads = static_cast<int>(std::thread::hardware_concurrency());
    const auto kernels = std::make_shared<Timed>(threads);
    test::Gpt2Step step(kernels, state.range(0), state.range(1),
                        state.range(2) == 0 ? exec::Storage::scalar : exec::Storage::bf16);
    bool fine = step.run(); // takes its memory
    kernels->restart();
    const Clock::time_point start = Clock::now();
    for (auto _ : state) {
        fine = step.run() && fine;
    }
    if (!fine) state.SkipWithError("the step failed");
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double steps = static_cast<double>(state.iterations());
    state.counters["tokens/s"] = static_cast<double>(step.tokens()) * steps / seconds;
    state.counters["products_%"] = 100.0 * kernels->products.seconds / seconds;
    state.counters["attention_%"] = 100.0 * kernels->attention.seconds / seconds;
    state.counters["adamw_%"] = 100.0 * kernels->optimizer.seconds / seconds;
    state.counters["products_Gflop/s"] = kernels->products.flops / kernels->products.seconds / 1e9;
    state.counters["attention_Gflop/s"] =
        kernels->attention.flops / kernels->attention.seconds / 1e9;
}
BENCHMARK(StepOfGpt2OnOneRank)
    ->Args({4, 64, 0})
    ->Args({1, 1024, 0})
    ->Args({1, 1024, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

} // namespace
