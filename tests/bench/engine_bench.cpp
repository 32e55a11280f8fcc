#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "simulator/engine/fair_share.hpp"
#include "simulator/engine/play.hpp"

namespace {

using namespace shardplan;

/// A pipeline of `stages` under 1F1B, every pass 8 units of compute, messages on streams of their
/// own: task completions per second without contention.
void PlayTasksWithoutContention(benchmark::State& state) {
    const auto stages = static_cast<std::int32_t>(state.range(0));
    sim::ScheduleInput in;
    in.shape = {sim::ScheduleKind::one_f_one_b, stages, 1, 16384 / stages};
    in.unit_kinds = {sim::UnitSteps{}};
    in.units.assign(static_cast<std::size_t>(stages), {std::vector<std::uint16_t>(8, 0)});
    in.messages_block = false;
    in.messages_under = true;
    const auto schedule = sim::make_schedule(in);
    const sim::TaskGraph graph = sim::graph_of(*schedule);
    sim::TaskCosts costs;
    std::mt19937 random(1);
    for (std::size_t i = 0; i < graph.size(); ++i) {
        costs.seconds.push_back(1e-3 + 1e-9 * static_cast<double>(random() % 1000));
    }
    std::size_t queue = 0;
    for (auto _ : state) {
        const auto played = sim::play(graph, costs);
        queue = played->largest_queue;
        benchmark::DoNotOptimize(played->makespan);
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(graph.size()));
    state.counters["queue"] = static_cast<double>(queue);
    state.counters["tasks"] = static_cast<double>(graph.size());
}
BENCHMARK(PlayTasksWithoutContention)
    ->Arg(4)
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

/// Flows of 2 to 4 random links out of as many links as flows, one ends and one starts.
void FlowEventsOnSharedLinks(benchmark::State& state) {
    const auto flows = static_cast<std::uint32_t>(state.range(0));
    std::mt19937 random(3);
    sim::LinkTable table;
    const std::uint32_t links = flows / 2;
    for (std::uint32_t i = 0; i < links; ++i) {
        table.capacity.push_back(25e9 * (1.0 + static_cast<double>(random() % 4)));
    }
    for (std::uint32_t r = 0; r < 4 * flows; ++r) {
        std::vector<std::uint32_t> over;
        const auto hops = 2 + static_cast<std::uint32_t>(random() % 3);
        while (over.size() < hops) {
            const auto link = static_cast<std::uint32_t>(random() % links);
            if (std::find(over.begin(), over.end(), link) == over.end()) over.push_back(link);
        }
        table.add_route(over);
    }
    sim::FairShare share(table);
    double now = 0.0;
    std::uint32_t id = 0;
    const auto start = [&] {
        share.start(now, id++, static_cast<std::uint32_t>(random() % (4 * flows)),
                    1e6 * (1.0 + static_cast<double>(random() % 64)), 50e9);
    };
    while (share.size() < flows)
        start();
    for (auto _ : state) {
        now = share.next_end();
        share.finish_next();
        start();
    }
    state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(FlowEventsOnSharedLinks)->Arg(64)->Arg(256);

} // namespace
