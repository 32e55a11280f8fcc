#include "planner/space/space.hpp"

#include <numeric>
#include <set>
#include <unordered_set>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;
using sim::Layout;

struct Walk {
    std::vector<Layout> layouts;
    SpaceCounts counts;
};

Walk walk(const sim::Scenario& given, const sim::LayoutTables& tables = {}) {
    const auto resolved = sim::resolve(given);
    EXPECT_TRUE(resolved.has_value());
    Walk out;
    out.counts = for_each_layout(given, resolved->values, tables, [&](const Layout& layout) {
        out.layouts.push_back(layout);
        return Visit::next;
    });
    return out;
}

std::int64_t refused(const SpaceCounts& counts) {
    return std::accumulate(counts.refused.begin(), counts.refused.end(), std::int64_t{0});
}

TEST(Space, EnumeratesEachLegalLayoutOnce) {
    for (const sim::Scenario& given :
         {scenario(llama_3_8b(), dgx_h100(2), job(8192, 128), megatron_core_stack()),
          scenario(mixtral_8x7b(), dgx_h100(2), job(4096, 96)),
          scenario(llama_3_8b(), dgx_h100(1), job(8192, 64), fsdp2_stack())}) {
        const sim::LayoutTables tables;
        const Walk seen = walk(given, tables);
        std::unordered_set<Layout, sim::LayoutHash> distinct(seen.layouts.begin(),
                                                             seen.layouts.end());
        EXPECT_EQ(distinct.size(), seen.layouts.size());
        for (const Layout& layout : seen.layouts) {
            ASSERT_EQ(sim::normal_form(layout), layout);
        }
        EXPECT_GT(seen.layouts.size(), 20U);
    }
}

TEST(Space, AccountsForEveryCandidate) {
    const Walk seen = walk(scenario(mixtral_8x7b(), dgx_h100(2), job(4096, 96)));
    EXPECT_EQ(seen.counts.candidates, seen.counts.legal + refused(seen.counts));
    EXPECT_EQ(seen.counts.legal, static_cast<std::int64_t>(seen.layouts.size()));
    EXPECT_EQ(seen.counts.visited, seen.counts.legal);
    EXPECT_EQ(seen.counts.skipped, 0);
    EXPECT_GT(refused(seen.counts), 0);
}

/// The closed form against every rule on every candidate.
TEST(Space, CountsInClosedFormWhatTheRulesSayOfEachLayout) {
    for (const sim::Scenario& given :
         {scenario(mixtral_8x7b(), dgx_h100(2), job(4096, 96)),
          scenario(llama_3_8b(), dgx_h100(2), job(8192, 128), megatron_core_stack()),
          scenario(small_model(6, 4, 2), dgx_h100(1), job(1024, 24), fsdp2_stack())}) {
        const auto resolved = sim::resolve(given);
        const sim::LayoutTables tables;
        const Space space(given, resolved->values, tables);
        const SpaceCounts counts = space.count();
        EXPECT_EQ(counts.candidates, counts.legal + refused(counts));
        const Walk seen = walk(given, tables);
        EXPECT_EQ(counts.legal, static_cast<std::int64_t>(seen.layouts.size()));
        const sim::Legality rules(given, resolved->values);
        for (const Layout& layout : seen.layouts) {
            ASSERT_FALSE(rules.first_broken(layout, tables));
        }
    }
}

TEST(Space, KeepsToTheConstraintsOfTheJob) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(2), job(8192, 128));
    given.job.constraints.tp = {2, 4};
    given.job.constraints.recompute = sim::RecomputePolicy::full;
    const Walk seen = walk(given);
    EXPECT_FALSE(seen.layouts.empty());
    for (const Layout& layout : seen.layouts) {
        ASSERT_TRUE(layout.tp == 2 || layout.tp == 4);
        ASSERT_EQ(layout.recompute, 2U);
    }
}

TEST(Space, UsesFewerNodesOnlyWhereSomeMayIdle) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(3), job(8192, 48));
    std::set<std::int64_t> used;
    for (const Layout& layout : walk(given).layouts) {
        used.insert(sim::rank_count(layout));
    }
    EXPECT_EQ(used, (std::set<std::int64_t>{24}));
    given.job.constraints.idle_devices = true;
    used.clear();
    for (const Layout& layout : walk(given).layouts) {
        used.insert(sim::rank_count(layout));
    }
    EXPECT_EQ(used, (std::set<std::int64_t>{8, 16, 24}));
}

TEST(Space, LeavesOutLargerMicroBatchesOnRequestAndCountsThem) {
    const sim::Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    const auto resolved = sim::resolve(given);
    const sim::LayoutTables tables;
    const Walk whole = walk(given, tables);
    std::uint32_t largest = 0;
    const SpaceCounts counts =
        for_each_layout(given, resolved->values, tables, [&](const Layout& layout) {
            largest = std::max(largest, layout.micro_batch);
            return layout.micro_batch >= 2 ? Visit::skip_larger_micro_batches : Visit::next;
        });
    EXPECT_EQ(largest, 2U);
    EXPECT_EQ(counts.legal, whole.counts.legal);
    EXPECT_EQ(counts.visited + counts.skipped, counts.legal);
    EXPECT_GT(counts.skipped, 0);
}

TEST(Space, StopsWhenAsked) {
    const sim::Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(8192, 64));
    const auto resolved = sim::resolve(given);
    int seen = 0;
    for_each_layout(given, resolved->values, {},
                    [&](const Layout&) { return ++seen == 5 ? Visit::stop : Visit::next; });
    EXPECT_EQ(seen, 5);
}

/// 64 devices in nodes of 8 below one switch: tp, pp and dp can each lie inside the nodes.
TEST(Space, CountsRankOrdersWithEqualLinksOnce) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(8), job(4096, 64));
    const auto orders_of = [&](std::vector<std::string> named) {
        given.stack.capabilities.rank_orders = std::move(named);
        const auto resolved = sim::resolve(given);
        const sim::LayoutTables tables;
        const Space space(given, resolved->values, tables);
        std::set<std::string> texts;
        space.visit_blocks({8, 2, 1, 4}, [&](const Block& block) {
            for (const std::uint8_t order : block.orders) {
                texts.insert(sim::order_text(order));
            }
            return true;
        });
        return texts;
    };
    EXPECT_EQ(orders_of({"tp-cp-ep-dp-pp"}), (std::set<std::string>{"tp-cp-ep-dp-pp"}));
    const std::set<std::string> any = orders_of({"any"});
    EXPECT_TRUE(any.contains("tp-cp-ep-dp-pp"));
    EXPECT_TRUE(any.contains("cp-ep-dp-tp-pp")); // dp inside a node, tp over two
    // tp fills a node, so that what follows lies outside in any order: one class
    EXPECT_FALSE(any.contains("tp-cp-ep-pp-dp"));
    EXPECT_LT(any.size(), 7U);
}

TEST(Space, ShardGroupsStayInsideANode) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(2), job(4096, 64));
    std::set<std::pair<int, std::uint32_t>> seen; // tp, group
    for (const Layout& layout : walk(given).layouts) {
        if (layout.pp == 1 && layout.cp == 1) {
            seen.emplace(layout.tp, layout.shard_group);
        }
    }
    EXPECT_TRUE(seen.contains({1, 8U}));
    EXPECT_TRUE(seen.contains({2, 4U}));
    EXPECT_FALSE(seen.contains({2, 8U})); // all of dp
    EXPECT_FALSE(seen.contains({4, 4U}));
    EXPECT_TRUE(seen.contains({8, 0U}));
    EXPECT_FALSE(seen.contains({8, 2U}));
}

/// Under FSDP both keep whole parameters from the forward to the backward pass.
TEST(Space, LeavesOutZero3ThatStaysGatheredWhereZero2IsTheSame) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(2), job(4096, 64));
    given.stack.capabilities.fully_sharded = true;
    const auto stays = [&] {
        const Walk seen = walk(given);
        return std::count_if(seen.layouts.begin(), seen.layouts.end(),
                             [](const Layout& layout) { return !layout.reshard; });
    };
    EXPECT_EQ(stays(), 0);
    const auto evaluator = sim::Evaluator::make(given);
    sim::Workspace workspace;
    Layout zero2;
    zero2.dp = 16;
    zero2.shard = sim::Shard::optimizer_gradients;
    Layout zero3 = zero2;
    zero3.shard = sim::Shard::all;
    zero3.reshard = false;
    EXPECT_EQ(evaluator->score(zero2, workspace), evaluator->score(zero3, workspace));
    std::erase(given.stack.capabilities.shards, sim::Shard::optimizer_gradients);
    EXPECT_GT(stays(), 0);
}

TEST(Space, TakesEveryScheduleOfTheStackWithItsChunks) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(4096, 64));
    given.stack.capabilities.schedules = {sim::ScheduleKind::gpipe, sim::ScheduleKind::zb_h1,
                                          sim::ScheduleKind::zb_v};
    std::set<std::pair<sim::ScheduleKind, int>> seen;
    for (const Layout& layout : walk(given).layouts) {
        if (layout.pp > 1) {
            seen.emplace(layout.schedule, layout.chunks);
        }
    }
    EXPECT_EQ(seen, (std::set<std::pair<sim::ScheduleKind, int>>{{sim::ScheduleKind::gpipe, 1},
                                                                 {sim::ScheduleKind::zb_h1, 1},
                                                                 {sim::ScheduleKind::zb_v, 2}}));
}

TEST(Space, ListsDivisorsInOrder) {
    EXPECT_EQ(divisors_of(1), (std::vector<std::int64_t>{1}));
    EXPECT_EQ(divisors_of(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
    EXPECT_EQ(divisors_of(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
}

} // namespace
} // namespace shardplan::plan
