#include "planner/space/space.hpp"

#include <numeric>
#include <set>
#include <unordered_set>

#include <gtest/gtest.h>

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
        const auto resolved = sim::resolve(given);
        const Walk seen = walk(given, tables);
        std::unordered_set<Layout, sim::LayoutHash> distinct(seen.layouts.begin(),
                                                             seen.layouts.end());
        EXPECT_EQ(distinct.size(), seen.layouts.size());
        for (const Layout& layout : seen.layouts) {
            ASSERT_TRUE(sim::is_legal(given, resolved->values, layout, tables));
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
        for (const Layout& layout : seen.layouts) {
            ASSERT_TRUE(sim::is_legal(given, resolved->values, layout, tables));
        }
    }
}

/// Every combination of small values of every field the space varies, filtered by the rules.
std::set<std::string> by_brute_force(const sim::Scenario& given, const sim::Resolved& resolved) {
    const sim::LayoutTables tables;
    std::set<std::string> texts;
    const std::int64_t devices = sim::device_count(given.cluster);
    Layout l;
    for (std::uint16_t tp = 1; tp <= devices; ++tp) {
        for (std::uint16_t pp = 1; pp <= devices; ++pp) {
            for (std::uint16_t cp = 1; cp <= devices; ++cp) {
                for (std::uint32_t dp = 1; dp <= devices; ++dp) {
                    if (std::int64_t{tp} * pp * cp * dp != devices) {
                        continue;
                    }
                    for (std::uint32_t mb = 1; mb <= resolved.global_batch; ++mb) {
                        for (std::uint32_t bits = 0; bits < 4U * 3U * 8U; ++bits) {
                            l = Layout{};
                            l.tp = tp;
                            l.pp = pp;
                            l.cp = cp;
                            l.dp = dp;
                            l.micro_batch = mb;
                            l.sp = tp > 1;
                            l.recompute = bits % 3U;
                            l.shard = static_cast<sim::Shard>(bits / 3U % 4U);
                            l.chunks = static_cast<std::uint16_t>(1U + bits / 12U);
                            l.schedule = sim::default_schedule(l.chunks);
                            const bool split_alone = dp * cp == 1 && l.shard != sim::Shard::none;
                            if (!split_alone && sim::is_legal(given, resolved, l, tables)) {
                                texts.insert(sim::to_text(l, tables));
                            }
                        }
                    }
                }
            }
        }
    }
    return texts;
}

TEST(Space, MissesNoLegalLayoutOfItsFields) {
    sim::StackProfile stack = generic_stack();
    stack.capabilities.uneven_stages = false;
    const sim::Scenario given = scenario(small_model(8, 4, 2), dgx_h100(1), job(1024, 12), stack);
    const auto resolved = sim::resolve(given);
    const sim::LayoutTables tables;
    std::set<std::string> texts;
    for (const Layout& layout : walk(given, tables).layouts) {
        texts.insert(sim::to_text(layout, tables));
    }
    EXPECT_EQ(texts, by_brute_force(given, resolved->values));
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

TEST(Space, ListsDivisorsInOrder) {
    EXPECT_EQ(divisors_of(1), (std::vector<std::int64_t>{1}));
    EXPECT_EQ(divisors_of(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
    EXPECT_EQ(divisors_of(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
}

} // namespace
} // namespace shardplan::plan
