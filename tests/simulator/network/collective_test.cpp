#include <gtest/gtest.h>

#include "simulator/network/group_path.hpp"

namespace shardplan::test {
namespace {

using sim::Bandwidth;
using sim::Bytes;
using sim::Collective;
using sim::GroupPath;
using sim::PathLevel;
using sim::Seconds;

PathLevel level(std::int64_t members, double rate, double latency = 0.0) {
    PathLevel l;
    l.name = "test";
    l.members = members;
    l.per_rank = Bandwidth(rate);
    l.per_link = Bandwidth(rate);
    l.step_latency = Seconds(latency);
    return l;
}

GroupPath one_tier(std::int64_t ranks, double rate, double latency = 0.0) {
    return {ranks, {level(ranks, rate, latency)}};
}

double seconds(const GroupPath& path, Collective op, double bytes) {
    return collective_time(path, op, Bytes(bytes)).value();
}

TEST(Collective, MovesATensorParallelMessageOfLlama3In149Microseconds) {
    const double s = seconds(one_tier(2, 450e9), Collective::all_reduce, 67108864.0);
    EXPECT_NEAR(s * 1e6, 149.13, 0.01);
}

TEST(Collective, RingAllReduceSendsEveryByteNearlyTwice) {
    EXPECT_DOUBLE_EQ(seconds(one_tier(8, 100e9), Collective::all_reduce, 8e9),
                     2.0 * 7.0 / 8.0 * 8e9 / 100e9);
    EXPECT_DOUBLE_EQ(sent_per_rank(one_tier(8, 100e9), Collective::all_reduce, Bytes(8e9)).value(),
                     14e9);
}

TEST(Collective, AllReduceIsReduceScatterAndAllGather) {
    const GroupPath path = one_tier(8, 100e9, 1e-6);
    EXPECT_DOUBLE_EQ(seconds(path, Collective::all_reduce, 1e9),
                     seconds(path, Collective::reduce_scatter, 1e9) +
                         seconds(path, Collective::all_gather, 1e9));
}

TEST(Collective, PaysLatencyForEveryStepOfARing) {
    const GroupPath path = one_tier(8, 1e15, 2e-6);
    EXPECT_NEAR(seconds(path, Collective::all_gather, 8.0), 7 * 2e-6, 1e-9);
}

TEST(Collective, TakesTheTreeForSmallMessages) {
    const GroupPath path = one_tier(1024, 100e9, 2e-6);
    EXPECT_NEAR(seconds(path, Collective::all_reduce, 8.0), 2 * 10 * 2e-6, 1e-9);
    const double ring = 2.0 * (1023 * 2e-6 + 1023.0 / 1024.0 * 1e12 / 100e9);
    EXPECT_DOUBLE_EQ(seconds(path, Collective::all_reduce, 1e12), ring);
}

TEST(Collective, IsNeverFasterForMoreBytes) {
    const GroupPath path{64, {level(8, 400e9, 1e-6), level(8, 50e9, 5e-6)}};
    for (const Collective op : {Collective::all_reduce, Collective::all_gather,
                                Collective::all_to_all, Collective::send_recv}) {
        double before = 0.0;
        for (double bytes = 1.0; bytes < 1e11; bytes *= 3.0) {
            const double now = seconds(path, op, bytes);
            EXPECT_GE(now, before);
            before = now;
        }
    }
}

TEST(Collective, SharesTheWayOutOfANodeBetweenItsRanks) {
    // eight ranks with a card of 50 GB/s each let a ring through at 400 GB/s
    const GroupPath path{64, {level(8, 900e9), level(8, 50e9)}};
    EXPECT_DOUBLE_EQ(seconds(path, Collective::all_gather, 64e9), 63.0 / 64.0 * 64e9 / 400e9);
}

TEST(Collective, AllToAllOverNodesRunsAtTheRateOfTheCards) {
    const GroupPath path{64, {level(8, 450e9), level(8, 50e9)}};
    EXPECT_DOUBLE_EQ(seconds(path, Collective::all_to_all, 64e9), 56.0 / 64.0 * 64e9 / 50e9);
}

TEST(Collective, ReachesHalfTheBandwidthAtTheHalfSize) {
    GroupPath path = one_tier(2, 100e9);
    path.levels[0].half_size = Bytes(1e6);
    EXPECT_DOUBLE_EQ(seconds(path, Collective::send_recv, 1e6), 2e6 / 100e9);
}

TEST(Collective, LosesMoreTimeToLargerMessagesButASmallerShare) {
    GroupPath path = one_tier(2, 100e9);
    path.levels[0].half_size = Bytes(1e6);
    path.levels[0].ramp = 0.5;
    EXPECT_DOUBLE_EQ(seconds(path, Collective::send_recv, 1e6), 2e6 / 100e9);
    EXPECT_DOUBLE_EQ(seconds(path, Collective::send_recv, 4e6), 4e6 / 100e9 * 1.5);
    EXPECT_DOUBLE_EQ(seconds(path, Collective::send_recv, 100e6), 100e6 / 100e9 * 1.1);
}

TEST(Collective, RampsMoreSlowlyForEveryDoublingOfItsRanks) {
    const auto lost = [](std::int64_t ranks) {
        GroupPath path = one_tier(ranks, 100e9);
        path.levels[0].half_size = Bytes(1e6);
        const double sent = 1e9 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
        return seconds(path, Collective::all_gather, 1e9) - sent / 100e9;
    };
    EXPECT_NEAR(lost(2), 1e6 / 100e9, 1e-12);
    EXPECT_NEAR(lost(8), 3e6 / 100e9, 1e-12);
}

TEST(Collective, CostsNothingAlone) {
    EXPECT_EQ(seconds({}, Collective::all_reduce, 1e9), 0.0);
    EXPECT_EQ(sent_per_rank({}, Collective::all_reduce, Bytes(1e9)).value(), 0.0);
}

TEST(Collective, SendsThroughOneCardHoweverManyTheNodeHas) {
    GroupPath path{16, {level(8, 450e9), level(2, 50e9)}};
    EXPECT_DOUBLE_EQ(seconds(path, Collective::send_recv, 50e9), 1.0);
}

} // namespace
} // namespace shardplan::test
