#include "simulator/engine/fair_share.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace {

using namespace shardplan::sim;

LinkTable links(std::vector<double> capacity, const std::vector<std::vector<std::uint32_t>>& over) {
    LinkTable table;
    table.capacity = std::move(capacity);
    for (const auto& route : over)
        table.add_route(route);
    return table;
}

TEST(FairShare, TwoFlowsOnOneLinkGetHalfEach) {
    const LinkTable table = links({10.0}, {{0}});
    EXPECT_EQ((std::vector<double>{5.0, 5.0}), max_min_rates(table, {{0, 10.0}, {0, 10.0}}));
}

TEST(FairShare, WhatACappedFlowLeavesGoesToTheOthers) {
    const LinkTable table = links({10.0}, {{0}});
    EXPECT_EQ((std::vector<double>{2.0, 8.0}), max_min_rates(table, {{0, 2.0}, {0, 20.0}}));
}

TEST(FairShare, AFlowOverTwoLinksGetsWhatItsFullerLinkGives) {
    // link 0 holds A and B, link 1 holds A and C: A and B get 2 each, C the rest of link 1
    const LinkTable table = links({4.0, 10.0}, {{0, 1}, {0}, {1}});
    EXPECT_EQ((std::vector<double>{2.0, 2.0, 8.0}),
              max_min_rates(table, {{0, 99.0}, {1, 99.0}, {2, 99.0}}));
}

TEST(FairShare, AFlowThatEndsHandsItsShareOn) {
    const LinkTable table = links({10.0}, {{0}});
    FairShare share(table);
    share.start(0.0, 1, 0, 10.0, 100.0);
    share.start(0.0, 2, 0, 30.0, 100.0);
    EXPECT_EQ(2.0, share.next_end()); // 10 bytes at 5 bytes/s
    EXPECT_EQ(1U, share.finish_next());
    EXPECT_EQ(4.0, share.next_end()); // 20 bytes left at 10 bytes/s
    EXPECT_EQ(10.0, share.load(0));
    EXPECT_EQ(2U, share.finish_next());
    EXPECT_EQ(0U, share.size());
}

TEST(FairShare, AFlowAloneTakesExactlyItsOwnTime) {
    const LinkTable table = links({10.0}, {{0}, {}});
    FairShare share(table);
    share.start(1.0, 7, 0, 6.0, 3.0);
    EXPECT_EQ(3.0, share.next_end());
    share.start(1.0, 8, 1, 6.0, 6.0); // over no link
    EXPECT_EQ(2.0, share.next_end());
    EXPECT_EQ(8U, share.finish_next());
}

TEST(FairShare, SolvedStepByStepEqualsSolvedWhole) {
    std::mt19937 random(11);
    for (int round = 0; round < 60; ++round) {
        LinkTable table;
        const auto count = static_cast<std::uint32_t>(2 + random() % 12);
        for (std::uint32_t i = 0; i < count; ++i) {
            table.capacity.push_back(1.0 + static_cast<double>(random() % 5));
        }
        for (int r = 0; r < 12; ++r) {
            std::vector<std::uint32_t> over;
            for (std::uint32_t i = 0; i < count; ++i) {
                if (random() % 4 == 0) over.push_back(i);
            }
            table.add_route(over);
        }
        FairShare share(table);
        double now = 0.0;
        for (int step = 0; step < 300; ++step) {
            if (share.size() == 0 || (share.size() < 24 && random() % 2 == 0)) {
                share.start(now, 0, static_cast<std::uint32_t>(random() % 12),
                            1.0 + static_cast<double>(random() % 9),
                            0.25 * static_cast<double>(1 + random() % 16));
            } else {
                now = share.next_end();
                share.finish_next();
            }
            std::vector<Demand> demands;
            for (std::size_t i = 0; i < share.size(); ++i)
                demands.push_back(share.demand(i));
            const std::vector<double> whole = max_min_rates(table, demands);
            for (std::size_t i = 0; i < share.size(); ++i) {
                ASSERT_NEAR(whole[i], share.rate(i), 1e-9 * whole[i])
                    << "round " << round << " step " << step;
            }
        }
    }
}

} // namespace
