#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "tests/bench/gpt2_step.hpp"

#ifdef SHARDPLAN_BENCH_HAS_OPENBLAS
#include <cblas.h>
#endif

/// The matrix products of a training step of GPT-2 124M, by our kernels and by OpenBLAS in turn.
namespace {

using namespace shardplan;
using Clock = std::chrono::steady_clock;

struct Product {
    exec::ProductForm form = exec::ProductForm::nn;
    exec::ProductShape shape;
    bool accumulate = false;
    int calls = 0; ///< of a step
    std::vector<double> ours, other;

    [[nodiscard]] double flops() const {
        return 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    }
    [[nodiscard]] std::string name() const {
        const char* forms[] = {"nn", "nt", "tn"};
        return std::string(forms[static_cast<int>(form)]) + (accumulate ? "+_" : "_") +
               std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" +
               std::to_string(shape.k);
    }
};

/// Writes down what a step multiplies.
class Recorder : public exec::CpuKernels<float> {
public:
    using exec::CpuKernels<float>::CpuKernels;
    std::vector<Product> products;

    void product(exec::ProductForm form, exec::ProductShape s, const float* a, const float* b,
                 float* c, bool accumulate) override {
        CpuKernels::product(form, s, a, b, c, accumulate);
        for (Product& p : products) {
            if (p.form == form && p.shape == s && p.accumulate == accumulate) {
                ++p.calls;
                return;
            }
        }
        products.push_back({form, s, accumulate, 1, {}, {}});
    }
};

std::vector<Product> products_of_step(exec::Index samples, exec::Index sequence) {
    const auto threads = static_cast<int>(std::thread::hardware_concurrency());
    const auto recorder = std::make_shared<Recorder>(threads);
    test::Gpt2Step step(recorder, samples, sequence, exec::Storage::scalar);
    if (!step.run()) return {};
    return recorder->products;
}

#ifdef SHARDPLAN_BENCH_HAS_OPENBLAS
void openblas(const Product& p, const float* a, const float* b, float* c) {
    const auto integer = [](exec::Index i) { return static_cast<int>(i); };
    const exec::ProductShape& s = p.shape;
    const bool left = p.form == exec::ProductForm::tn;
    const bool right = p.form == exec::ProductForm::nt;
    cblas_sgemm(CblasRowMajor, left ? CblasTrans : CblasNoTrans, right ? CblasTrans : CblasNoTrans,
                integer(s.m), integer(s.n), integer(s.k), 1.0F, a, integer(left ? s.m : s.k), b,
                integer(right ? s.k : s.n), p.accumulate ? 1.0F : 0.0F, c, integer(s.n));
}
#endif

double median(std::vector<double> values) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

template <class Work>
double seconds_of(const Work& work) {
    const Clock::time_point start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Operands of one product, cut out of common memory.
struct Operands {
    exec::Buffer<float> a, b, c;

    explicit Operands(const std::vector<Product>& products) {
        exec::Index as = 0, bs = 0, cs = 0;
        for (const Product& p : products) {
            as = std::max(as, p.shape.m * p.shape.k);
            bs = std::max(bs, p.shape.k * p.shape.n);
            cs = std::max(cs, p.shape.m * p.shape.n);
        }
        for (const auto& [buffer, count] : {std::pair{&a, as}, {&b, bs}, {&c, cs}}) {
            buffer->reset(count);
            for (exec::Index i = 0; i < count; ++i) {
                (*buffer)[i] = static_cast<float>(i % 1021) * 1e-3F - 0.5F;
            }
        }
    }
};

/// Rates over the whole step, and of each shape ours over OpenBLAS's: medians of the rounds.
void report(benchmark::State& state, const std::vector<Product>& products) {
    double flops = 0.0, ours = 0.0, other = 0.0;
    for (const Product& p : products) {
        flops += p.calls * p.flops();
        ours += p.calls * median(p.ours);
        other += p.calls * median(p.other);
    }
    state.counters["Gflop/s"] = flops / ours * 1e-9;
    if (other == 0.0) return;
    state.counters["OpenBLAS_Gflop/s"] = flops / other * 1e-9;
    state.counters["of_OpenBLAS_%"] = 100.0 * other / ours;
    for (const Product& p : products) {
        state.counters[p.name() + "_%"] = 100.0 * median(p.other) / median(p.ours);
    }
}

/// Arguments: samples, tokens of each, threads.
void ProductsOfGpt2(benchmark::State& state) {
    const auto threads = static_cast<int>(state.range(2));
    std::vector<Product> products = products_of_step(state.range(0), state.range(1));
    if (products.empty()) state.SkipWithError("the step failed");
    Operands x(products);
    exec::CpuKernels<float> kernels(threads);
    for (auto _ : state) {
        const auto ours = [&](const Product& p) {
            kernels.product(p.form, p.shape, x.a.data(), x.b.data(), x.c.data(), p.accumulate);
        };
        ours(products.front()); // wakes threads
        for (Product& p : products) {
            p.ours.push_back(seconds_of([&] { ours(p); }));
        }
#ifdef SHARDPLAN_BENCH_HAS_OPENBLAS
        openblas_set_num_threads(threads);
        const auto other = [&](const Product& p) {
            openblas(p, x.a.data(), x.b.data(), x.c.data());
        };
        other(products.front());
        for (Product& p : products) {
            p.other.push_back(seconds_of([&] { other(p); }));
        }
        // its threads look for more to do for a while before they sleep
        if (threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
#endif
    }
    report(state, products);
#ifdef SHARDPLAN_BENCH_HAS_OPENBLAS
    state.SetLabel(std::string("OpenBLAS's kernels: ") + openblas_get_corename());
#endif
}
BENCHMARK(ProductsOfGpt2)
    ->ArgNames({"samples", "tokens", "threads"})
    ->ArgsProduct({{4}, {64}, {1, 2}})
    ->ArgsProduct({{1}, {1024}, {1, 2}})
    ->MinTime(5.0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

} // namespace
