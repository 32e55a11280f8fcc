#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "simulator/engine/expand.hpp"
#include "simulator/engine/fair_share.hpp"
#include "simulator/engine/play.hpp"
#include "simulator/engine/simulate.hpp"
#include "tests/support/builders.hpp"

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

/// 96 x (1 TFLOP at 400 TFLOP/s, then an all-reduce of 64 MiB in 1.2 ms) on 1,024 ranks.
/// 0: one rank for all; 1: every rank on its own, each with a speed of its own.
void ComputeAndAllReduceOn1024Ranks(benchmark::State& state) {
    sim::ScheduleInput in;
    in.shape = {sim::ScheduleKind::gpipe, 1, 1, 1};
    sim::UnitSteps unit;
    unit.forward.assign(96, {sim::StreamKind::tp, true, sim::UnitSteps::Under::none});
    in.unit_kinds = {unit};
    in.units = {{{0}}};
    in.optimizer = false;
    const sim::RankGrid grid{1024, 1, 1, 1024};
    const sim::Stragglers stragglers{0.02, 1};
    std::int64_t events = 0;
    for (auto _ : state) {
        const auto schedule = sim::make_schedule(in);
        sim::TaskCosts costs;
        for (std::size_t i = 0; i < schedule->size(); ++i) {
            const sim::TaskKind kind = schedule->kind[i];
            costs.seconds.push_back(kind == sim::TaskKind::forward    ? 1e12 / 400e12
                                    : kind == sim::TaskKind::exchange ? 1.2e-3
                                                                      : 0.0);
        }
        if (state.range(0) == 0) {
            sim::slow_down(*schedule, grid, stragglers, costs);
            events = sim::play(sim::graph_of(*schedule), costs)->events;
        } else {
            const sim::TaskGraph graph = sim::expand(*schedule, grid);
            events = sim::play(graph, sim::expand_costs(*schedule, costs, graph, grid, stragglers))
                         ->events;
        }
    }
    state.counters["events"] = static_cast<double>(events);
}
BENCHMARK(ComputeAndAllReduceOn1024Ranks)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

sim::ModelSpec llama_3_405b() {
    sim::ModelSpec model = test::llama_3_70b();
    sim::Part& trunk = model.parts.front();
    trunk.hidden = 16384;
    trunk.runs.front().count = 126;
    for (sim::BlockKind& kind : model.block_kinds) {
        kind.attention.heads = 128;
        kind.ffn.width = 53248;
    }
    return model;
}

/// One step with per-layer exchanges, overlap with contention, spans and memory over time. Nodes
/// of 8; 0: Llama-3 405B on 16,384 H100, one layer less on either end; else: Llama-3 70B at a fixed
/// shape of layout on as many nodes.
void SimulateStep(benchmark::State& state) {
    const std::int64_t nodes = state.range(0);
    const bool large = nodes == 0;
    sim::LayoutTables tables;
    const auto parsed = sim::parse_layout(
        large ? "tp8,sp,pp16,v4,dp128,mb1,zero1,stages=7-8-8-8-8-8-8-8-8-8-8-8-8-8-8-7"
              : "tp8,sp,pp8,v2,mb1,zero1",
        "layout", tables);
    const std::int64_t devices = large ? 16384 : 8 * nodes;
    const sim::Scenario scenario =
        test::scenario(large ? llama_3_405b() : test::llama_3_70b(), test::dgx_h100(devices / 8),
                       test::job(8192, large ? 2048 : 32 * devices / 64), test::generic_stack());
    const auto layout = sim::complete_layout(*parsed, devices, "layout");
    const auto evaluator = sim::Evaluator::make(scenario, tables);
    std::int64_t events = 0;
    double seconds = 0.0;
    std::size_t spans = 0;
    for (auto _ : state) {
        const auto s = sim::simulate(*evaluator, *layout);
        events = s->events;
        seconds = s->step.value();
        spans = s->timeline.spans.size();
    }
    state.counters["events"] = static_cast<double>(events);
    state.counters["spans"] = static_cast<double>(spans);
    state.counters["step_s"] = seconds;
}
BENCHMARK(SimulateStep)
    ->Arg(0)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond);

} // namespace
