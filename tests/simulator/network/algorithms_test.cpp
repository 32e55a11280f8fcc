#include "simulator/network/algorithms.hpp"

#include <gtest/gtest.h>

#include "simulator/network/group_path.hpp"

namespace shardplan::test {
namespace {

using sim::Algorithm;
using sim::Bandwidth;
using sim::Bytes;
using sim::Collective;
using sim::GroupPath;
using sim::PathLevel;
using sim::Protocol;
using sim::Seconds;

constexpr std::uint32_t only(Algorithm a) { return 1U << static_cast<unsigned>(a); }

PathLevel network(std::int64_t members, double rate, double step = 0.0) {
    PathLevel l;
    l.name = "network";
    l.members = members;
    l.per_rank = l.per_link = Bandwidth(rate);
    l.step_latency = Seconds(step);
    return l;
}
PathLevel switches(std::int64_t members, double rate, double step = 0.0) {
    PathLevel l = network(members, rate, step);
    l.name = "switches";
    l.is_scaleup = true;
    return l;
}
GroupPath path(std::vector<PathLevel> levels, std::uint32_t algorithms = 0x1F) {
    GroupPath p;
    for (const PathLevel& level : levels) {
        p.ranks *= level.members;
    }
    p.levels = std::move(levels);
    p.algorithms = algorithms;
    return p;
}
double all_reduce(const GroupPath& p, double bytes) {
    return collective_time(p, Collective::all_reduce, Bytes(bytes)).value();
}

TEST(Algorithms, ReductionInTheSwitchSendsEveryByteOnce) {
    PathLevel level = switches(8, 400e9);
    level.in_switch = {0.75, Seconds(10e-6), Bytes(0)};
    const GroupPath p = path({level});
    EXPECT_DOUBLE_EQ(all_reduce(p, 3e9), 10e-6 + 3e9 / 300e9);
    EXPECT_EQ(chosen_line(p, Collective::all_reduce, Bytes(3e9)).algorithm, Algorithm::nvls);
    // four ranks would not fill the links by NCCL's estimate: it takes the ring
    level.members = 4;
    EXPECT_EQ(chosen_line(path({level}), Collective::all_reduce, Bytes(3e9)).algorithm,
              Algorithm::ring);
    level.members = 6;
    EXPECT_EQ(chosen_line(path({level}), Collective::all_reduce, Bytes(3e9)).algorithm,
              Algorithm::nvls);
}

TEST(Algorithms, FewRanksSendMoreThroughTheSwitchThanMany) {
    PathLevel level = switches(5, 400e9);
    level.in_switch = {0.75, Seconds(0), Bytes(0)};
    const std::uint32_t nvls = only(Algorithm::nvls);
    // (1 + 1/5) against (1 + 1/8) of the bytes
    EXPECT_DOUBLE_EQ(all_reduce(path({level}, nvls), 3e9), 3e9 / 300e9 * 1.2 / 1.125);
    // what a larger domain saves its further stage of switches takes
    level.members = 64;
    EXPECT_DOUBLE_EQ(all_reduce(path({level}, nvls), 3e9), 3e9 / 300e9);
}

TEST(Algorithms, ReductionInTheNetworkPassesTheCardsOnce) {
    PathLevel inner = switches(8, 400e9, 1e-6);
    inner.in_switch = {0.75, Seconds(10e-6), Bytes(0)};
    PathLevel outer = network(16, 50e9);
    const std::uint32_t nvls = only(Algorithm::nvls);
    // without it NVLS stays inside a node, and the ring does it
    EXPECT_EQ(chosen_line(path({inner, outer}, nvls), Collective::all_reduce, Bytes(3e9)).algorithm,
              Algorithm::ring);
    outer.in_network = {1.0, Seconds(18e-6), Bytes(0)};
    // the switches inside a node give 300 GB/s, eight cards 400
    EXPECT_DOUBLE_EQ(all_reduce(path({inner, outer}, nvls), 3e9), 28e-6 + 3e9 / 300e9);
    outer.per_rank = Bandwidth(25e9);
    EXPECT_DOUBLE_EQ(all_reduce(path({inner, outer}, nvls), 3e9), 28e-6 + 3e9 / 200e9);
    // without switches that reduce inside: a chain there, half the bandwidth of its ring
    inner.in_switch = {};
    const GroupPath chain = path({inner, outer}, only(Algorithm::collnet_chain));
    EXPECT_DOUBLE_EQ(all_reduce(chain, 3e9), 2 * 7 * 1e-6 + 18e-6 + 3e9 / 200e9);
    const GroupPath direct = path({inner, outer}, only(Algorithm::collnet_direct));
    EXPECT_DOUBLE_EQ(all_reduce(direct, 3e9), 2 * (1e-6 + 7 * 0.4e-6) + 18e-6 + 3e9 / 200e9);
    // gathers are not reduced
    EXPECT_EQ(chosen_line(direct, Collective::all_gather, Bytes(3e9)).algorithm, Algorithm::ring);
}

TEST(Algorithms, ATreeOverSwitchesPassesTheCardsTwiceBeyondTwoNodes) {
    PathLevel inner = switches(8, 1000e9);
    inner.in_switch = {1.0, Seconds(0), Bytes(0)};
    PathLevel outer = network(2, 50e9);
    outer.tree = {1.0, Seconds(20e-6), Bytes(0)};
    const std::uint32_t tree = only(Algorithm::nvls_tree);
    EXPECT_DOUBLE_EQ(all_reduce(path({inner, outer}, tree), 4e9), 2 * 20e-6 + 4e9 / 400e9);
    outer.members = 8;
    EXPECT_DOUBLE_EQ(all_reduce(path({inner, outer}, tree), 4e9), 6 * 20e-6 + 4e9 / 200e9);
}

TEST(Algorithms, SumsTakeTheirTimeWhereTheNetworkSaysSo) {
    PathLevel level = network(4, 10e9);
    const GroupPath free = path({level}, only(Algorithm::ring));
    level.seconds_per_sum = 1e-10;
    const GroupPath paid = path({level}, only(Algorithm::ring));
    const auto added = [&](Collective op) {
        return collective_time(paid, op, Bytes(4e9)).value() -
               collective_time(free, op, Bytes(4e9)).value();
    };
    EXPECT_NEAR(added(Collective::all_reduce), 0.75 * 4e9 * 1e-10, 1e-12);
    EXPECT_NEAR(added(Collective::reduce_scatter), 0.75 * 4e9 * 1e-10, 1e-12);
    EXPECT_NEAR(added(Collective::reduce), 4e9 * 1e-10, 1e-12);
    EXPECT_EQ(added(Collective::all_gather), 0.0);
    EXPECT_EQ(added(Collective::broadcast), 0.0);
    EXPECT_EQ(added(Collective::all_to_all), 0.0);
}

TEST(Algorithms, LatencyOfATreeGrowsWithTheLogarithmOfTheNodes) {
    const auto small = [](std::int64_t nodes) {
        return all_reduce(path({network(nodes, 1e15, 5e-6)}, only(Algorithm::tree)), 8.0);
    };
    EXPECT_NEAR(small(4), 4 * 5e-6, 1e-9);
    EXPECT_NEAR(small(1024), 20 * 5e-6, 1e-9);
}

TEST(Algorithms, SmallMessagesUseTheProtocolWithFlagsAndLargeOnesPlainStores) {
    PathLevel level = switches(8, 240e9, 3.4e-6);
    level.low_latency = {0.4, Seconds(0.6e-6), Bytes(0)};
    level.low_latency_128 = {0.9, Seconds(1.9e-6), Bytes(0)};
    const GroupPath p = path({level}, only(Algorithm::ring));
    const auto protocol = [&](double bytes) {
        return chosen_line(p, Collective::all_reduce, Bytes(bytes)).protocol;
    };
    EXPECT_EQ(protocol(1e3), Protocol::ll);
    EXPECT_EQ(protocol(4e6), Protocol::ll128);
    EXPECT_EQ(protocol(1e9), Protocol::simple);
    EXPECT_NEAR(all_reduce(p, 8.0), 14 * 0.6e-6, 1e-9);
}

TEST(Algorithms, AProtocolThatOneTierLacksIsNotUsed) {
    PathLevel inner = switches(8, 240e9);
    inner.low_latency = {0.5, Seconds(0), Bytes(0)};
    const GroupPath p = path({inner, network(2, 50e9)}, only(Algorithm::ring));
    EXPECT_EQ(chosen_line(p, Collective::all_reduce, Bytes(8)).protocol, Protocol::simple);
}

TEST(Algorithms, HalvingAndDoublingTakesLogarithmicSteps) {
    const GroupPath p = path({network(16, 10e9, 3e-6)}, only(Algorithm::halving_doubling));
    EXPECT_DOUBLE_EQ(all_reduce(p, 16e9), 2.0 * (4 * 3e-6 + 15.0 / 16.0 * 16e9 / 10e9));
    // twelve ranks are no power of two: the odd ones hand everything over first
    const GroupPath odd = path({network(12, 10e9)}, only(Algorithm::halving_doubling));
    EXPECT_DOUBLE_EQ(all_reduce(odd, 12e9), 2.0 * (11.0 / 12.0 + 1.0) * 12e9 / 10e9);
}

TEST(Algorithms, ATorusHasRowsAndColumns) {
    const GroupPath p = path({network(16, 10e9, 1e-6)}, only(Algorithm::torus_2d));
    const double bytes = 16e9;
    EXPECT_DOUBLE_EQ(all_reduce(p, bytes),
                     2.0 * (6 * 1e-6 + (0.75 * bytes + 0.75 * bytes / 4.0) / 10e9));
}

TEST(Algorithms, TheHierarchicalFormSendsAShrunkenPieceOverTheNetwork) {
    const GroupPath p = path({switches(8, 400e9), network(4, 50e9)}, only(Algorithm::hierarchical));
    const double bytes = 32e9;
    EXPECT_DOUBLE_EQ(all_reduce(p, bytes),
                     2.0 * (0.875 * bytes / 400e9 + 0.75 * bytes / 8.0 / 50e9));
}

TEST(Algorithms, AParameterServerIsTheBottleneckUntilThereAreAsManyAsWorkers) {
    GroupPath p = path({network(8, 10e9)}, only(Algorithm::parameter_server));
    EXPECT_DOUBLE_EQ(all_reduce(p, 10e9), 2.0 * 8.0);
    p.servers = 4;
    EXPECT_DOUBLE_EQ(all_reduce(p, 10e9), 2.0 * 2.0);
    p.servers = 16;
    EXPECT_DOUBLE_EQ(all_reduce(p, 10e9), 2.0 * 1.0);
}

TEST(Algorithms, PatServesGathersOfOneRankPerNode) {
    const std::uint32_t both = only(Algorithm::pat) | only(Algorithm::ring);
    const GroupPath far = path({network(64, 50e9, 14e-6)}, both);
    EXPECT_EQ(chosen_line(far, Collective::all_gather, Bytes(1e3)).algorithm, Algorithm::pat);
    EXPECT_EQ(chosen_line(far, Collective::all_gather, Bytes(1e10)).algorithm, Algorithm::ring);
    EXPECT_EQ(chosen_line(far, Collective::all_reduce, Bytes(1e3)).algorithm, Algorithm::ring);
    const GroupPath near = path({switches(8, 400e9), network(8, 50e9, 14e-6)}, both);
    EXPECT_EQ(chosen_line(near, Collective::all_gather, Bytes(1e3)).algorithm, Algorithm::ring);
}

TEST(Algorithms, ARingDoesWhatTheForcedAlgorithmCannot) {
    const GroupPath p = path({network(4, 10e9)}, only(Algorithm::nvls));
    EXPECT_DOUBLE_EQ(collective_time(p, Collective::all_gather, Bytes(4e9)).value(), 0.3);
}

TEST(Algorithms, AChainThroughTheNodesOfAMeshUsesTheLinkThatWouldCloseTheRing) {
    PathLevel mesh = switches(8, 70e9);
    mesh.chain_gain = 8.0 / 7.0;
    const double one = collective_time(path({mesh}), Collective::all_gather, Bytes(8e9)).value();
    const double two =
        collective_time(path({mesh, network(2, 100e9)}), Collective::all_gather, Bytes(8e9))
            .value();
    EXPECT_DOUBLE_EQ(one, 7e9 / 70e9);
    EXPECT_DOUBLE_EQ(two, 7.5e9 / 80e9);
}

TEST(Algorithms, LinesWorkedOutOncePerPathGiveTheSameTimes) {
    PathLevel inner = switches(8, 360e9, 3.4e-6);
    inner.in_switch = {0.75, Seconds(13e-6), Bytes(14e6)};
    inner.low_latency = {0.4, Seconds(0.6e-6), Bytes(0)};
    inner.half_size = Bytes(6e6);
    inner.ramp = 0.9;
    PathLevel outer = network(16, 46e9, 14e-6);
    outer.tree = {1.0, Seconds(20e-6), Bytes(1e6)};
    outer.low_latency = {0.05, Seconds(5e-6), Bytes(0)};
    outer.floor_latency = Seconds(30e-6);
    outer.ramp = 0.65;
    GroupPath p = path({inner, outer});
    GroupPath prepared = p;
    prepared.costs = cost_lines(p);
    for (std::size_t op = 0; op < sim::EnumNames<Collective>::names.size(); ++op) {
        for (double bytes = 1.0; bytes < 1e11; bytes *= 7.0) {
            const auto collective = static_cast<Collective>(op);
            const double seconds = collective_time(p, collective, Bytes(bytes)).value();
            EXPECT_EQ(seconds, collective_time(prepared, collective, Bytes(bytes)).value());
            EXPECT_GE(seconds, 30e-6);
        }
    }
}

} // namespace
} // namespace shardplan::test
