#include "planner/search/search.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

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

/// Made-up costs that a person can follow: a step takes 10 s over tp and 10 ms per stage; memory is
/// 10 bytes per sequence of a micro-batch, out of 40.
Score simple_score(const Layout& layout) {
    Score score;
    score.step_time = Seconds(10.0 / layout.tp + 0.01 * layout.pp);
    score.peak = Bytes(10.0 * layout.micro_batch);
    score.usable = Bytes(40.0);
    score.deciding = sim::TensorKind::activations;
    score.verdict = layout.micro_batch <= 2   ? Verdict::fits
                    : layout.micro_batch <= 4 ? Verdict::borderline
                                              : Verdict::does_not_fit;
    return score;
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
    options.top = 2000;
    const PlanSet found = search(bench.space, simple_score, options);
    ASSERT_EQ(static_cast<std::int64_t>(found.plans.size()),
              std::min<std::int64_t>(2000, found.counts.fits + found.counts.borderline));
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
    const PlanSet all = search(bench.space, simple_score, options);
    options.top = 7;
    const PlanSet few = search(bench.space, simple_score, options);
    ASSERT_EQ(few.plans.size(), 7U);
    EXPECT_TRUE(std::equal(few.plans.begin(), few.plans.end(), all.plans.begin()));
    EXPECT_EQ(few.counts, all.counts);
}

TEST(Search, AccountsForEveryLayoutWithoutScoringWhatCannotFit) {
    const Bench bench;
    std::int64_t calls = 0;
    const PlanSet found =
        search(bench.space,
               [&](const Layout& layout) {
                   ++calls;
                   EXPECT_LE(layout.micro_batch, 8U); // 8 is the first that does not fit
                   return simple_score(layout);
               },
               {});
    EXPECT_EQ(found.counts.scored, calls);
    EXPECT_LT(found.counts.scored, found.counts.legal);
    EXPECT_EQ(found.counts.fits + found.counts.borderline + found.counts.does_not_fit,
              found.counts.legal);
    const std::int64_t refused =
        std::accumulate(found.counts.refused.begin(), found.counts.refused.end(), std::int64_t{0},
                        [](std::int64_t sum, const RefusedBy& by) { return sum + by.layouts; });
    EXPECT_EQ(found.counts.candidates, found.counts.legal + refused);
    ASSERT_EQ(found.reasons.size(), 1U);
    EXPECT_EQ(found.reasons[0], (Reason{sim::TensorKind::activations, found.counts.does_not_fit}));
    EXPECT_TRUE(found.closest.empty());
    EXPECT_FALSE(found.stopped);
}

TEST(Search, SaysWhatIsMissingWhenNothingFits) {
    const Bench bench;
    const PlanSet found = search(bench.space,
                                 [](const Layout& layout) {
                                     Score score = simple_score(layout);
                                     score.peak = Bytes(100.0 - layout.tp);
                                     score.verdict = Verdict::does_not_fit;
                                     score.deciding = layout.pp == 1
                                                          ? sim::TensorKind::optimizer_states
                                                          : sim::TensorKind::logits;
                                     return score;
                                 },
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
    search(bench.space, simple_score, options);
    ASSERT_FALSE(recorder.fractions.empty());
    EXPECT_TRUE(std::is_sorted(recorder.fractions.begin(), recorder.fractions.end()));
    EXPECT_EQ(recorder.fractions.back(), 1.0);
    EXPECT_EQ(recorder.phase, "search");
}

TEST(Search, GivesWhatItHasWhenStopped) {
    const Bench bench;
    std::stop_source source;
    std::int64_t calls = 0;
    SearchOptions options;
    options.stop = source.get_token();
    const PlanSet found = search(
        bench.space,
        [&](const Layout& layout) {
            if (++calls == 50) {
                source.request_stop();
            }
            return simple_score(layout);
        },
        options);
    EXPECT_TRUE(found.stopped);
    EXPECT_EQ(found.counts.scored, 50);
    EXPECT_FALSE(found.plans.empty());
}

} // namespace
} // namespace shardplan::plan
