#include <cstdint>

#include <benchmark/benchmark.h>

#include "simulator/estimate/unit_time.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/network/route.hpp"
#include "tests/support/builders.hpp"

namespace {

using namespace shardplan;

sim::Layout layout_of_65536() {
    sim::Layout layout;
    layout.tp = 8;
    layout.pp = 16;
    layout.cp = 4;
    layout.ep = 8;
    layout.etp = 1;
    layout.dp = 128;
    layout.shard = sim::Shard::all;
    layout.shard_group = 64;
    return layout;
}

sim::Scenario on_65536_devices() {
    sim::Scenario scenario = test::scenario(test::llama_3_70b(), test::dgx_h100(8192),
                                            test::job(8192, 4096), test::megatron_core_stack());
    scenario.fabrics = {*sim::load_fabric("nvswitch_hopper"), *sim::load_fabric("infiniband")};
    return scenario;
}

/// The paths of all dimensions of a layout on 65,536 devices.
void GroupPathsOfALayoutOn65536Devices(benchmark::State& state) {
    const sim::Scenario scenario = on_65536_devices();
    const sim::Layout layout = layout_of_65536();
    for (auto _ : state) {
        benchmark::DoNotOptimize(sim::paths_of(scenario, layout));
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(GroupPathsOfALayoutOn65536Devices);

/// The same where the nodes are joined by a torus of 16 x 16 x 32.
void GroupPathsOfALayoutOnATorusOf65536Devices(benchmark::State& state) {
    sim::Scenario scenario = on_65536_devices();
    scenario.cluster.fabric.levels.clear();
    for (const std::int64_t nodes : {16, 16, 32}) {
        scenario.cluster.fabric.torus.push_back(
            {nodes, {sim::Bandwidth(50e9), {}, {}}, sim::Seconds(5e-7), true});
    }
    const sim::Layout layout = layout_of_65536();
    for (auto _ : state) {
        benchmark::DoNotOptimize(sim::paths_of(scenario, layout));
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(GroupPathsOfALayoutOnATorusOf65536Devices);

/// The way of one message between two of 65,536 devices.
void RouteBetweenTwoOf65536Devices(benchmark::State& state) {
    const sim::Cluster cluster = test::dgx_h100(8192);
    std::int64_t to = 1;
    for (auto _ : state) {
        benchmark::DoNotOptimize(sim::route_between(cluster, 0, to, "bench"));
        to = to % 65535 + 1;
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(RouteBetweenTwoOf65536Devices);

/// One collective over a path that is known.
void CollectiveTimeOnAKnownPath(benchmark::State& state) {
    const sim::Scenario scenario = on_65536_devices();
    const sim::GroupPath path = path_of(scenario, layout_of_65536(), sim::Group::shard);
    double bytes = 1e6;
    for (auto _ : state) {
        benchmark::DoNotOptimize(
            collective_time(path, sim::Collective::all_gather, sim::Bytes(bytes)));
        bytes = bytes < 1e9 ? bytes * 1.1 : 1e6;
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(CollectiveTimeOnAKnownPath);

} // namespace
