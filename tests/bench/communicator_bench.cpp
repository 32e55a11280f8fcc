#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "executor/comm/threads.hpp"

namespace {

using namespace shardplan;
using exec::Communicator;
using exec::ReduceOp;
using exec::Status;
using sim::Algorithm;

/// What this machine's memory gives right now: one thread copies a buffer of this many bytes.
void MemcpyProbe(benchmark::State& state) {
    const auto bytes = static_cast<std::size_t>(state.range(0));
    std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes);
    for (auto _ : state) {
        std::memcpy(to.data(), from.data(), bytes);
        benchmark::DoNotOptimize(to.data());
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(MemcpyProbe)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);

/// Two ranks, threads of this process; rank 0 measures, and rank 1 follows until it is told to
/// stop. Bytes per second are those of the buffer, as nccl-tests count them.
void all_reduce_on_two_threads(benchmark::State& state, Algorithm algorithm) {
    const auto outcome = exec::run_ranks(2, [&](Communicator& all) -> Status {
        if (Status s = all.set_choice({.algorithm = algorithm}); !s) return s;
        std::vector<float> data(static_cast<std::size_t>(state.range(0)) / sizeof(float));
        // One word says whether another batch follows, so that the loop holds nothing else.
        constexpr int per_batch = 20;
        const auto batch = [&]() -> Status {
            for (int i = 0; i < per_batch; ++i) {
                Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
                if (!status) return status;
            }
            return sim::Done{};
        };
        std::vector<std::int32_t> goes_on = {1};
        if (all.rank() == 0) {
            while (state.KeepRunningBatch(per_batch)) {
                if (Status s = all.broadcast(exec::view(goes_on), 0); !s) return s;
                if (Status s = batch(); !s) return s;
            }
            goes_on[0] = 0;
            return all.broadcast(exec::view(goes_on), 0);
        }
        for (;;) {
            if (Status s = all.broadcast(exec::view(goes_on), 0); !s) return s;
            if (goes_on[0] == 0) return sim::Done{};
            if (Status s = batch(); !s) return s;
        }
    });
    if (!outcome.status()) state.SkipWithError(to_text(outcome.status().error()).c_str());
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
void AllReduceByRingOnTwoThreads(benchmark::State& state) {
    all_reduce_on_two_threads(state, Algorithm::ring);
}
void AllReduceByTreeOnTwoThreads(benchmark::State& state) {
    all_reduce_on_two_threads(state, Algorithm::tree);
}
/// 8 B shows the latency, the others the bandwidth.
void sizes(benchmark::internal::Benchmark* bench) {
    for (const std::int64_t bytes : {8, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20}) {
        bench->Arg(bytes);
    }
    bench->UseRealTime();
}
BENCHMARK(AllReduceByRingOnTwoThreads)->Apply(sizes);
BENCHMARK(AllReduceByTreeOnTwoThreads)->Apply(sizes);

} // namespace
