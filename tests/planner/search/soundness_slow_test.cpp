#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "planner/search/plan.hpp"
#include "tests/planner/search/brute_force.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;
using sim::Layout;
using sim::OffloadTier;
using sim::Verdict;

using test::BruteForce;
using test::Scored;
using test::to_spare;

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

/// Scenarios of up to 64 devices, drawn at random.
class Draw {
public:
    explicit Draw(unsigned seed) : random_(seed) {}

    /// `large`: two to eight nodes of 8 devices; else one or two of 2 or 4.
    sim::Scenario next(bool large) {
        const std::int64_t nodes = large ? std::int64_t{1} << pick(1, 3) : pick(1, 2);
        const std::int64_t per_node = large ? 8 : std::int64_t{1} << pick(1, 2);
        const std::int64_t sequence = std::int64_t{1024} << pick(0, 3);
        const std::int64_t batch = nodes * per_node * (large ? 1 : pick(1, 3));
        sim::Cluster cluster = pick(0, 1) == 0 ? dgx_h100(nodes) : dgx_a100(nodes);
        sim::NodeGroup& group = cluster.node_groups.front();
        group.node.devices = per_node;
        group.node.nics.count = per_node;
        group.price_per_device_hour = pick(0, 1) == 0 ? 0.0 : 2.5;
        sim::Host& host = group.node.host;
        // too little for everything, at times
        host.memory = sim::Bytes(0x1p30 * static_cast<double>(per_node * pick(0, 3) * pick(6, 40)));
        host.memory_bandwidth = sim::Bandwidth(200e9);
        host.pcie_per_device = {sim::Bandwidth(32e9), {}, {}};
        host.nvme = sim::Bytes(pick(0, 1) == 0 ? 0.0 : 4e12);
        host.nvme_bandwidth = sim::Bandwidth(10e9);
        sim::Scenario out = scenario(model(large), cluster, job(sequence, batch), stack(large));
        out.job.constraints.idle_devices = nodes > 1 && nodes < 8 && pick(0, 3) == 0;
        if (pick(0, 2) != 0) {
            out.job.constraints.memory_cap =
                sim::Bytes(0x1p30 * static_cast<double>(large ? pick(12, 60) : pick(3, 14)));
        }
        out.job.objective = static_cast<sim::Objective>(pick(0, 2));
        return out;
    }

private:
    std::int64_t pick(std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }
    sim::StackProfile stack(bool large) {
        sim::StackProfile out = pick(0, 2) == 0   ? fsdp2_stack()
                                : pick(0, 1) == 0 ? megatron_core_stack()
                                                  : generic_stack();
        out.states.gradients_start_late = pick(0, 1) == 1;
        out.tensors.output_buffers = pick(0, 1);
        sim::Capabilities& can = out.capabilities;
        can.fully_sharded = pick(0, 1) == 1;
        can.partial_recompute = pick(0, 2) != 0;
        if (pick(0, 2) == 0) {
            std::erase(can.shards, sim::Shard::optimizer_gradients);
        }
        if (large) {
            can.offload_tiers = {OffloadTier::none};
            can.hybrid_shard = false;
            can.schedules = {sim::ScheduleKind::one_f_one_b, sim::ScheduleKind::interleaved};
            can.cp_kinds = {sim::CpKind::ring};
        } else {
            can.rank_orders = {pick(0, 1) == 0 ? "any" : "tp-cp-ep-dp-pp", "pp-tp-cp-ep-dp"};
        }
        return out;
    }
    sim::ModelSpec model(bool large) {
        switch (pick(0, large ? 2 : 3)) {
            case 0:
                return large ? with_blocks(llama_3_8b(), 12) : small_model(4, 8, 4);
            case 1:
                return large ? with_blocks(mixtral_8x7b(), 8)
                             : with_blocks(mixtral_8x7b(), 2 * pick(1, 2));
            case 2:
                return large ? small_model(4 * pick(1, 6), 16, 4)
                             : with_blocks(llama_3_8b(), 2 * pick(2, 5));
            default:
                return with_blocks(llama_3_70b(), pick(2, 7));
        }
    }
    static sim::ModelSpec with_blocks(sim::ModelSpec model, std::int64_t blocks) {
        model.parts.front().runs = {{0, blocks}};
        return model;
    }
    std::mt19937 random_;
};

void expect_same(const BruteForce& truth, const PlanSet& found, const SearchOptions& options) {
    std::vector<std::string> plans;
    for (const Plan& one : found.plans) {
        plans.push_back(one.text);
    }
    std::set<std::string> front;
    for (const Plan& one : found.front) {
        front.insert(one.text);
    }
    EXPECT_EQ(plans, best_of(truth.kept, options.objective, options.top));
    EXPECT_EQ(front, front_of(truth.kept));
    const SearchCounts& c = found.counts;
    EXPECT_EQ(c.legal, truth.legal);
    EXPECT_EQ(c.scored + c.cut_by_memory + c.cut_by_time + c.cut_by_dominance, c.legal);
    EXPECT_EQ(c.fits, truth.by_verdict[static_cast<std::size_t>(Verdict::fits)]);
    EXPECT_EQ(c.borderline, truth.by_verdict[static_cast<std::size_t>(Verdict::borderline)]);
    EXPECT_EQ(c.does_not_fit, truth.by_verdict[static_cast<std::size_t>(Verdict::does_not_fit)]);
}

TEST(Soundness, SearchFindsWhatBruteForceFindsOnFiftyRandomScenarios) {
    Draw draw(20);
    int fitting = 0;
    int cut_by_time = 0;
    int with_part = 0;
    int with_offload = 0;
    int with_both = 0;
    int with_order = 0;
    for (int i = 0; i < 50; ++i) {
        sim::Scenario scenario = draw.next(i % 10 == 9);
        scenario.stack.capabilities.part_offload = static_cast<sim::PartOffload>(i % 3);
        const auto evaluator = sim::Evaluator::make(std::move(scenario));
        ASSERT_TRUE(evaluator);
        SearchOptions options;
        options.objective = evaluator->scenario().job.objective;
        options.fold = false;
        options.threads = 1 + static_cast<std::size_t>(i / 3) % 3;
        BruteForce truth(*evaluator, options.objective);
        truth.run();
        const PlanSet found = plan(*evaluator, options);
        expect_same(truth, found, options);
        if (HasFailure()) {
            FAIL() << "scenario " << i;
        }
        const auto count = [&](auto has) {
            const auto in = [&](const std::vector<Plan>& some) {
                return std::any_of(some.begin(), some.end(),
                                   [&](const Plan& one) { return has(one.layout); });
            };
            return in(found.front) || in(found.plans) ? 1 : 0;
        };
        fitting += found.counts.fits > 0 ? 1 : 0;
        cut_by_time += found.counts.cut_by_time > 0 ? 1 : 0;
        with_part += count([](const Layout& l) { return l.recompute > 2; });
        with_offload += count([](const Layout& l) { return l.offload_optimizer > 0; });
        with_both +=
            count([](const Layout& l) { return l.recompute > 2 && l.offload_optimizer > 0; });
        with_order += count([](const Layout& l) { return l.order != 0; });
    }
    // the scenarios are such that it matters
    EXPECT_GT(fitting, 25);
    EXPECT_LT(fitting, 50);
    EXPECT_GT(cut_by_time, 5);
    EXPECT_GT(with_part, 3);
    EXPECT_GT(with_offload, 3);
    EXPECT_GT(with_both, 1);
    EXPECT_GT(with_order, 3);
}

} // namespace
} // namespace shardplan::plan
