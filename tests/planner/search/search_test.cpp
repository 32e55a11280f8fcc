#include "planner/search/search.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "planner/search/findings.hpp"
#include "planner/search/plan.hpp"
#include "tests/planner/search/data_parallel_only.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;
using sim::Bytes;
using sim::Layout;
using sim::Score;
using sim::Seconds;
using sim::Verdict;

/// A space of Llama-3-8B on two nodes with everything it refers to.
struct Bench {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(2), job(8192, 64), megatron_core_stack());
    sim::Resolved resolved = sim::resolve(given)->values;
    sim::LayoutTables tables;
    Space space{given, resolved, tables};
};

/// Made-up costs that a person can follow: a step takes 10 s over tp and 10 ms per stage and kind
/// of recomputation; memory is 10 bytes per sequence of a micro-batch, out of 40.
Score simple_score(const Layout& layout) {
    Score score;
    score.step_time = Seconds(10.0 / layout.tp + 0.01 * (layout.pp + layout.recompute));
    score.peak = Bytes(10.0 * layout.micro_batch);
    score.usable = Bytes(40.0);
    score.deciding = sim::TensorKind::activations;
    score.verdict = layout.micro_batch <= 2   ? Verdict::fits
                    : layout.micro_batch <= 4 ? Verdict::borderline
                                              : Verdict::does_not_fit;
    score.hopeless = score.verdict == Verdict::does_not_fit;
    return score;
}

/// Prices by a function. The bound of a step time is 0.9 of it.
class MadeUpPricer final : public Pricer {
public:
    using Function = std::function<Score(const Layout&)>;
    explicit MadeUpPricer(Function function) : function_(std::move(function)) {}

    Score memory(const Layout& layout) override {
        Score score = function_(layout);
        score.step_time = Seconds();
        score.money_per_million_tokens = 0.0;
        return score;
    }
    void add_least_time(const Layout& layout, Score& score) override {
        score.step_time = 0.9 * function_(layout).step_time;
    }
    void add_time(const Layout& layout, Score& score) override { score = function_(layout); }

private:
    Function function_;
};
PricerFactory made_up(MadeUpPricer::Function function) {
    return [function] { return std::make_unique<MadeUpPricer>(function); };
}

class Recorder final : public ProgressSink {
public:
    void report(const Progress& progress) override {
        fractions.push_back(progress.fraction);
        phase = progress.phase;
    }
    std::vector<double> fractions;
    std::string phase;
};

TEST(Search, RanksByTheObjectiveAndFitsBeforeBorderline) {
    const Bench bench;
    SearchOptions options;
    options.top = 5000;
    options.fold = false;
    const PlanSet found = search(bench.space, made_up(simple_score), options);
    ASSERT_EQ(static_cast<std::int64_t>(found.plans.size()),
              found.counts.fits + found.counts.borderline - found.counts.cut_by_dominance);
    bool borderline_seen = false;
    for (std::size_t i = 0; i < found.plans.size(); ++i) {
        const bool borderline = found.plans[i].score.verdict == Verdict::borderline;
        ASSERT_FALSE(borderline_seen && !borderline) << i;
        if (i > 0 && borderline == borderline_seen) {
            const Plan& before = found.plans[i - 1];
            const Plan& now = found.plans[i];
            ASSERT_LE(before.score.step_time, now.score.step_time);
            if (before.score.step_time == now.score.step_time) {
                ASSERT_LT(before.text, now.text);
            }
        }
        borderline_seen = borderline;
    }
    EXPECT_TRUE(borderline_seen);
    EXPECT_EQ(found.plans.front().layout.tp, 8);
    EXPECT_EQ(found.plans.front().layout.pp, 1);
}

TEST(Search, KeepsTheTopOfTheWholeRanking) {
    const Bench bench;
    SearchOptions options;
    options.top = 5000;
    options.fold = false;
    const PlanSet all = search(bench.space, made_up(simple_score), options);
    options.top = 7;
    const PlanSet few = search(bench.space, made_up(simple_score), options);
    ASSERT_EQ(few.plans.size(), 7U);
    EXPECT_TRUE(std::equal(few.plans.begin(), few.plans.end(), all.plans.begin()));
    EXPECT_EQ(few.front, all.front);
    EXPECT_LT(few.counts.scored, all.counts.scored);
    EXPECT_EQ(few.counts.fits, all.counts.fits);
}

TEST(Search, PutsEveryLegalLayoutInOneBox) {
    const Bench bench;
    SearchOptions options;
    options.top = 1;
    const PlanSet found = search(bench.space, made_up(simple_score), options);
    const SearchCounts& c = found.counts;
    EXPECT_EQ(c.scored + c.cut_by_memory + c.cut_by_time + c.cut_by_dominance, c.legal);
    EXPECT_EQ(c.fits + c.borderline + c.does_not_fit, c.legal);
    EXPECT_GT(c.scored, 0);
    EXPECT_GT(c.cut_by_memory, 0);
    EXPECT_GT(c.cut_by_time, 0);
    EXPECT_GT(c.cut_by_dominance, 0);
    const std::int64_t refused =
        std::accumulate(c.refused.begin(), c.refused.end(), std::int64_t{0},
                        [](std::int64_t sum, const RefusedBy& by) { return sum + by.layouts; });
    EXPECT_EQ(c.candidates, c.legal + refused);
    ASSERT_EQ(found.reasons.size(), 1U);
    EXPECT_EQ(found.reasons[0], (Reason{sim::TensorKind::activations, c.does_not_fit}));
    EXPECT_TRUE(found.closest.empty());
    EXPECT_FALSE(found.stopped);
}

TEST(Search, GivesTheSameAnswerOnAnyNumberOfThreads) {
    const auto evaluator = sim::Evaluator::make(
        scenario(mixtral_8x7b(), dgx_h100(8), job(4096, 256), megatron_core_stack()));
    SearchOptions options;
    const PlanSet one = plan(*evaluator, options);
    EXPECT_FALSE(one.plans.empty());
    for (const std::size_t threads : {2U, 7U}) {
        options.threads = threads;
        EXPECT_EQ(plan(*evaluator, options), one) << threads;
    }
}

TEST(Search, FoldsPlansThatDifferInChunksOrRecomputationOnly) {
    const auto of = [](std::uint16_t chunks, std::uint32_t recompute, double seconds, double peak) {
        Plan plan;
        plan.layout.pp = 4;
        plan.layout.chunks = chunks;
        plan.layout.schedule = sim::default_schedule(chunks);
        plan.layout.recompute = recompute;
        plan.score.step_time = Seconds(seconds);
        plan.score.peak = Bytes(peak);
        plan.score.usable = Bytes(40.0);
        return plan;
    };
    std::vector<Plan> plans = {
        of(4, 0, 1.000, 20.0), // the best
        of(2, 0, 1.005, 20.0), // folded: slower, and no less memory
        of(2, 1, 1.008, 10.0), // stays: less memory
        of(1, 0, 1.050, 20.0), // stays: 5 % apart
    };
    EXPECT_EQ(fold(plans, sim::Objective::time), 1);
    ASSERT_EQ(plans.size(), 3U);
    EXPECT_EQ(plans[1].layout.recompute, 1U);
    EXPECT_EQ(plans[2].layout.chunks, 1);
}

TEST(Search, FoldsAPlanThatSharesStatesInOtherGroupsForNothing) {
    const auto of = [](std::uint32_t group, double seconds, double peak) {
        Plan plan;
        plan.layout.dp = 64;
        plan.layout.shard = sim::Shard::optimizer;
        plan.layout.shard_group = group;
        plan.score.step_time = Seconds(seconds);
        plan.score.peak = Bytes(peak);
        plan.score.usable = Bytes(40.0);
        return plan;
    };
    std::vector<Plan> plans = {
        of(8, 1.000, 20.0), // the best
        of(4, 1.002, 24.0), // folded: slower, and more memory
        of(0, 1.003, 18.0), // stays: less memory
    };
    EXPECT_EQ(fold(plans, sim::Objective::time), 1);
    ASSERT_EQ(plans.size(), 2U);
    EXPECT_EQ(plans[1].layout.shard_group, 0U);
}

TEST(Search, FoldsALayoutInASlowerRankOrderHoweverSlow) {
    const auto of = [](std::uint8_t order, double seconds) {
        Plan plan;
        plan.layout.pp = 4;
        plan.layout.order = order;
        plan.score.step_time = Seconds(seconds);
        plan.score.usable = Bytes(40.0);
        return plan;
    };
    std::vector<Plan> plans = {of(1, 1.0), of(0, 1.5)};
    EXPECT_EQ(fold(plans, sim::Objective::time), 1);
    ASSERT_EQ(plans.size(), 1U);
    EXPECT_EQ(plans[0].layout.order, 1);
}

/// No share less than what is found fits, and no number of blocks less beside it.
TEST(Search, OffloadsAndRecomputesNoMoreThanItMust) {
    sim::Scenario given = data_parallel_only();
    const auto evaluator = sim::Evaluator::make(given);
    const PlanSet found = plan(*evaluator, {});
    ASSERT_GT(found.counts.fits, 0);
    sim::Workspace workspace;
    for (const Plan& one : found.plans) {
        Layout layout = one.layout;
        ASSERT_GT(layout.offload_optimizer, 0) << one.text;
        layout.offload_optimizer =
            static_cast<std::uint16_t>(layout.offload_optimizer - offload_step);
        layout.offload_tier =
            layout.offload_optimizer > 0 ? layout.offload_tier : sim::OffloadTier::none;
        EXPECT_NE(evaluator->score(layout, workspace).verdict, one.score.verdict) << one.text;
        if (one.layout.recompute > 3) {
            layout = one.layout;
            --layout.recompute;
            EXPECT_NE(evaluator->score(layout, workspace).verdict, one.score.verdict) << one.text;
        }
    }
}

TEST(Search, OffloadsAllStatesOrNoneWhereTheStackCannotSplitThem) {
    sim::Scenario given = data_parallel_only();
    given.stack.capabilities.offload_tiers = {sim::OffloadTier::none, sim::OffloadTier::host};
    const auto shares = [&](sim::PartOffload part) {
        given.stack.capabilities.part_offload = part;
        const auto evaluator = sim::Evaluator::make(given);
        std::set<std::uint16_t> out;
        for (const Plan& one : plan(*evaluator, {}).plans) {
            out.insert(one.layout.offload_optimizer);
        }
        return out;
    };
    EXPECT_EQ(shares(sim::PartOffload::never), (std::set<std::uint16_t>{1000}));
    EXPECT_EQ(shares(sim::PartOffload::zero3), (std::set<std::uint16_t>{1000})); // no zero3 here
    const std::set<std::uint16_t> any = shares(sim::PartOffload::any);
    ASSERT_FALSE(any.empty());
    EXPECT_LT(*any.begin(), 1000);
    const auto evaluator = sim::Evaluator::make(given);
    Layout all;
    all.dp = 8;
    all = with_offload(all, sim::OffloadTier::host, sim::offload_scale);
    sim::Workspace workspace;
    const Bytes host = evaluator->estimate(all, workspace).classes.front().host;
    for (sim::NodeGroup& group : given.cluster.node_groups) {
        group.node.host.memory = host * 8.0 * 0.99; // holds most of the states, not all
    }
    EXPECT_EQ(shares(sim::PartOffload::never), std::set<std::uint16_t>{});
    EXPECT_FALSE(shares(sim::PartOffload::any).empty());
}

TEST(Search, FrontHoldsWhatNothingElseBeatsInTimeMemoryAndCost) {
    const sim::LayoutTables tables;
    Front front(tables);
    const auto offer = [&](std::uint32_t micro_batch, double seconds, double peak) {
        Layout layout;
        layout.micro_batch = micro_batch;
        Score score;
        score.step_time = Seconds(seconds);
        score.peak = Bytes(peak);
        front.offer(layout, score);
    };
    offer(1, 2.0, 10.0);
    offer(2, 1.0, 20.0);
    offer(3, 2.0, 20.0); // beaten by both
    offer(4, 1.5, 9.0);  // beats the first
    offer(5, 1.0, 20.0); // equal to the second, later by text
    const std::vector<Plan> plans = front.plans();
    ASSERT_EQ(plans.size(), 2U);
    EXPECT_EQ(plans[0].layout.micro_batch, 2U);
    EXPECT_EQ(plans[1].layout.micro_batch, 4U);
}

TEST(Search, SaysWhatIsMissingWhenNothingFits) {
    const Bench bench;
    const PlanSet found = search(bench.space, made_up([](const Layout& layout) {
                                     Score score = simple_score(layout);
                                     score.peak = Bytes(100.0 - layout.tp);
                                     score.verdict = Verdict::does_not_fit;
                                     score.deciding = layout.pp == 1
                                                          ? sim::TensorKind::optimizer_states
                                                          : sim::TensorKind::logits;
                                     return score;
                                 }),
                                 {});
    EXPECT_TRUE(found.plans.empty());
    EXPECT_EQ(found.counts.does_not_fit, found.counts.legal);
    ASSERT_EQ(found.reasons.size(), 2U);
    EXPECT_GE(found.reasons[0].layouts, found.reasons[1].layouts);
    EXPECT_EQ(found.reasons[0].layouts + found.reasons[1].layouts, found.counts.legal);
    ASSERT_EQ(found.closest.size(), 3U);
    EXPECT_EQ(found.closest[0].plan.layout.tp, 8);
    EXPECT_EQ(found.closest[0].shortfall, Bytes(52.0));
    EXPECT_LE(found.closest[0].shortfall, found.closest[1].shortfall);
}

TEST(Search, ComparesWhatTheUserAskedFor) {
    Layout layout;
    layout.tp = 8;
    Score score;
    score.step_time = Seconds(2.0);
    score.peak = Bytes(30.0);
    score.usable = Bytes(40.0);
    EXPECT_EQ(objective_value(sim::Objective::time, layout, score), 2.0);
    EXPECT_EQ(objective_value(sim::Objective::headroom, layout, score), -10.0);
    EXPECT_EQ(objective_value(sim::Objective::cost, layout, score), 16.0); // device seconds
    score.money_per_million_tokens = 0.5;
    EXPECT_EQ(objective_value(sim::Objective::cost, layout, score), 0.5);
}

TEST(Search, ReportsProgressUpToTheEnd) {
    const Bench bench;
    Recorder recorder;
    SearchOptions options;
    options.progress = &recorder;
    search(bench.space, made_up(simple_score), options);
    ASSERT_FALSE(recorder.fractions.empty());
    EXPECT_TRUE(std::is_sorted(recorder.fractions.begin(), recorder.fractions.end()));
    EXPECT_EQ(recorder.fractions.back(), 1.0);
    EXPECT_EQ(recorder.phase, "search");
}

TEST(Search, GivesWhatItHasWhenStopped) {
    const Bench bench;
    for (const std::size_t threads : {1U, 3U}) {
        std::stop_source source;
        std::atomic<int> calls = 0;
        SearchOptions options;
        options.threads = threads;
        options.stop = source.get_token();
        const PlanSet found = search(bench.space, made_up([&](const Layout& layout) {
                                         if (++calls == 300) {
                                             source.request_stop();
                                         }
                                         return simple_score(layout);
                                     }),
                                     options);
        EXPECT_TRUE(found.stopped);
        EXPECT_LT(found.counts.fits + found.counts.borderline + found.counts.does_not_fit,
                  found.counts.legal);
        EXPECT_FALSE(found.plans.empty());
    }
}

} // namespace
} // namespace shardplan::plan
