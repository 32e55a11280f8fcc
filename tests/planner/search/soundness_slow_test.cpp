#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "planner/search/plan.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;
using sim::Layout;
using sim::Score;
using sim::Verdict;

/// Brute force: every legal layout, scored with caches of its own.
struct Scored {
    Layout layout;
    Score score;
    Score least;
    std::string text;
};

std::vector<Scored> score_all(const sim::Evaluator& evaluator) {
    std::vector<Scored> out;
    sim::Workspace workspace;
    for_each_layout(evaluator.scenario(), evaluator.resolved(), evaluator.tables(),
                    [&](const Layout& layout) {
                        Score least;
                        evaluator.add_least_time(layout, workspace, least);
                        out.push_back({layout, evaluator.score(layout, workspace), least,
                                       sim::to_text(layout, evaluator.tables())});
                        return Visit::next;
                    });
    return out;
}

double to_spare(const Score& score) { return (score.usable - score.peak).value(); }

/// Recomputation is an ordered choice: of layouts that differ in nothing else, one with more of it
/// counts only if it needs less memory than all those with less.
std::vector<Scored> reduce(const std::vector<Scored>& all) {
    std::unordered_map<Layout, std::vector<const Scored*>, sim::LayoutHash> families;
    for (const Scored& one : all) {
        Layout family = one.layout;
        family.recompute = 0;
        families[family].push_back(&one);
    }
    std::vector<Scored> out;
    for (const Scored& one : all) {
        Layout family = one.layout;
        family.recompute = 0;
        bool needed = one.score.verdict != Verdict::does_not_fit;
        for (const Scored* other : families[family]) {
            const bool less = other->layout.recompute < one.layout.recompute;
            needed = needed && !(less && other->score.verdict <= one.score.verdict &&
                                 to_spare(other->score) >= to_spare(one.score));
            if (less && other->score.verdict != Verdict::does_not_fit) {
                EXPECT_LE(other->score.step_time, one.score.step_time) << one.text;
            }
        }
        if (needed) {
            out.push_back(one);
        }
    }
    return out;
}

std::vector<std::string> best_of(std::vector<Scored> some, sim::Objective objective,
                                 std::size_t top) {
    std::sort(some.begin(), some.end(), [&](const Scored& a, const Scored& b) {
        return std::tuple(a.score.verdict, objective_value(objective, a.layout, a.score), a.text) <
               std::tuple(b.score.verdict, objective_value(objective, b.layout, b.score), b.text);
    });
    std::vector<std::string> out;
    for (std::size_t i = 0; i < std::min(top, some.size()); ++i) {
        out.push_back(some[i].text);
    }
    return out;
}

/// Texts of the layouts that no other of the best verdict beats in time, memory and cost.
std::set<std::string> front_of(const std::vector<Scored>& some) {
    Verdict best = Verdict::does_not_fit;
    for (const Scored& one : some) {
        best = std::min(best, one.score.verdict);
    }
    std::set<std::string> out;
    for (const Scored& one : some) {
        const auto figures = [](const Scored& s) {
            return std::array{s.score.step_time.value(), -to_spare(s.score),
                              objective_value(sim::Objective::cost, s.layout, s.score)};
        };
        const auto mine = figures(one);
        const bool beaten = std::any_of(some.begin(), some.end(), [&](const Scored& other) {
            const auto theirs = figures(other);
            const bool no_worse = other.score.verdict == best && theirs[0] <= mine[0] &&
                                  theirs[1] <= mine[1] && theirs[2] <= mine[2];
            return no_worse && (theirs != mine || other.text < one.text);
        });
        if (one.score.verdict == best && !beaten) {
            out.insert(one.text);
        }
    }
    return out;
}

/// No larger micro-batch of a hopeless layout fits, and bounds of time are bounds.
void expect_bounds(const std::vector<Scored>& all) {
    std::unordered_map<Layout, std::uint32_t, sim::LayoutHash> hopeless_from;
    for (const Scored& one : all) {
        ASSERT_LE(one.least.step_time, one.score.step_time) << one.text;
        ASSERT_LE(one.least.money_per_million_tokens, one.score.money_per_million_tokens);
        ASSERT_GT(one.least.step_time.value(), 0.0) << one.text;
        Layout row = one.layout;
        row.micro_batch = 0;
        if (const auto it = hopeless_from.find(row); it != hopeless_from.end()) {
            ASSERT_EQ(one.score.verdict, Verdict::does_not_fit) << one.text;
        } else if (one.score.hopeless) {
            hopeless_from[row] = one.layout.micro_batch;
        }
    }
}

/// Scenarios of up to 64 devices, drawn at random.
class Draw {
public:
    explicit Draw(unsigned seed) : random_(seed) {}

    sim::Scenario next() {
        const std::int64_t nodes = std::int64_t{1} << pick(0, 3);
        const std::int64_t sequence = std::int64_t{1024} << pick(0, 3);
        const std::int64_t batch = 8 * nodes * pick(1, 6);
        sim::StackProfile stack = pick(0, 2) == 0   ? fsdp2_stack()
                                  : pick(0, 1) == 0 ? megatron_core_stack()
                                                    : generic_stack();
        stack.states.gradients_start_late = pick(0, 1) == 1;
        stack.tensors.output_buffers = pick(0, 1);
        sim::Cluster cluster = pick(0, 1) == 0 ? dgx_h100(nodes) : dgx_a100(nodes);
        cluster.node_groups.front().price_per_device_hour = pick(0, 1) == 0 ? 0.0 : 2.5;
        sim::Scenario out = scenario(model(), cluster, job(sequence, batch), stack);
        out.job.constraints.idle_devices = nodes > 1 && nodes < 8 && pick(0, 3) == 0;
        if (pick(0, 3) == 0) {
            out.job.constraints.memory_cap = sim::Bytes(0x1p30 * static_cast<double>(pick(12, 60)));
        }
        out.job.objective = static_cast<sim::Objective>(pick(0, 2));
        return out;
    }

private:
    std::int64_t pick(std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }
    sim::ModelSpec model() {
        switch (pick(0, 3)) {
            case 0:
                return llama_3_8b();
            case 1:
                return mixtral_8x7b();
            case 2:
                return small_model(4 * pick(1, 6), 16, 4);
            default:
                return llama_3_70b();
        }
    }
    std::mt19937 random_;
};

TEST(Soundness, SearchFindsWhatBruteForceFindsOnFiftyRandomScenarios) {
    Draw draw(20);
    std::int64_t fitting = 0;
    std::int64_t cut_by_time = 0;
    for (int i = 0; i < 50; ++i) {
        const auto evaluator = sim::Evaluator::make(draw.next());
        ASSERT_TRUE(evaluator);
        const std::vector<Scored> all = score_all(*evaluator);
        expect_bounds(all);
        const std::vector<Scored> some = reduce(all);
        SearchOptions options;
        options.objective = evaluator->scenario().job.objective;
        options.fold = false;
        options.threads = 1 + static_cast<std::size_t>(i) % 3;
        const PlanSet found = plan(*evaluator, options);
        std::vector<std::string> plans;
        for (const Plan& one : found.plans) {
            plans.push_back(one.text);
        }
        std::set<std::string> front;
        for (const Plan& one : found.front) {
            front.insert(one.text);
        }
        EXPECT_EQ(plans, best_of(some, options.objective, options.top)) << i;
        EXPECT_EQ(front, front_of(some)) << i;
        const SearchCounts& c = found.counts;
        EXPECT_EQ(c.legal, static_cast<std::int64_t>(all.size())) << i;
        EXPECT_EQ(c.scored + c.cut_by_memory + c.cut_by_time + c.cut_by_dominance, c.legal) << i;
        for (const Verdict verdict : {Verdict::fits, Verdict::borderline, Verdict::does_not_fit}) {
            const std::int64_t counted = verdict == Verdict::fits         ? c.fits
                                         : verdict == Verdict::borderline ? c.borderline
                                                                          : c.does_not_fit;
            EXPECT_EQ(counted, std::count_if(all.begin(), all.end(), [&](const Scored& one) {
                          return one.score.verdict == verdict;
                      }));
        }
        fitting += c.fits > 0 ? 1 : 0;
        cut_by_time += c.cut_by_time > 0 ? 1 : 0;
        if (HasFailure()) return;
    }
    // the scenarios are such that it matters
    EXPECT_GT(fitting, 25);
    EXPECT_LT(fitting, 50);
    EXPECT_GT(cut_by_time, 5);
}

} // namespace
} // namespace shardplan::plan
