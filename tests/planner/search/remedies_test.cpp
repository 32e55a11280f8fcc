#include "planner/search/remedies.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/planner/search/data_parallel_only.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::plan {
namespace {

using namespace shardplan::test;

struct Case {
    sim::Evaluator evaluator;
    PlanSet found;
    std::vector<Remedy> remedies;

    explicit Case(sim::Scenario scenario)
        : evaluator(*sim::Evaluator::make(std::move(scenario))),
          found(plan(evaluator, {})),
          remedies(plan::remedies(evaluator, found, {})) {}

    [[nodiscard]] const Remedy* with(std::string_view setting) const {
        const auto at = std::find_if(remedies.begin(), remedies.end(), [&](const Remedy& remedy) {
            return remedy.setting.starts_with(setting);
        });
        return at == remedies.end() ? nullptr : &*at;
    }
};

sim::Scenario without_host_memory(sim::Scenario given) {
    for (sim::NodeGroup& group : given.cluster.node_groups) {
        group.node.host.memory = sim::Bytes(0.0);
        group.node.host.nvme = sim::Bytes(0.0);
    }
    return given;
}

// 70 billion parameters in 16 bytes are 1.1 TB; a node has 0.64 TB.
TEST(Remedies, OfStatesTooLargeForANodeAreNodesOptimizerOrAdapters) {
    const Case big(without_host_memory(scenario(llama_3_70b(), dgx_h100(1), job(4096, 32))));
    ASSERT_EQ(big.found.counts.fits + big.found.counts.borderline, 0);
    const Remedy* nodes = big.with("--gpus ");
    ASSERT_NE(nodes, nullptr);
    EXPECT_EQ(nodes->setting, "--gpus 16");
    EXPECT_EQ(nodes->devices, 16);
    EXPECT_NE(big.with("--method lora"), nullptr);
    // shorter samples leave the states as they are
    EXPECT_EQ(big.with("--sequence"), nullptr);
    for (const Remedy& remedy : big.remedies) {
        EXPECT_GT(remedy.step_time.value(), 0.0) << remedy.change;
        EXPECT_FALSE(remedy.layout.empty()) << remedy.change;
    }
    EXPECT_TRUE(std::is_sorted(big.remedies.begin(), big.remedies.end(),
                               [](const Remedy& a, const Remedy& b) { return a.price < b.price; }));
}

TEST(Remedies, OfAConstraintIsLiftingItAndItsPriceIsWhatItCosts) {
    sim::Scenario given = scenario(llama_3_8b(), dgx_h100(1), job(16384, 32));
    given.stack.capabilities.tensor_parallel = false;
    given.stack.capabilities.pipeline_parallel = false;
    given.stack.capabilities.cp_kinds.clear();
    given.job.constraints.recompute = sim::RecomputePolicy::forbid;
    const Case strict(given);
    ASSERT_EQ(strict.found.counts.fits + strict.found.counts.borderline, 0);
    const Remedy* recompute = strict.with("--set job.constraints.recompute=any");
    ASSERT_NE(recompute, nullptr);
    EXPECT_GT(recompute->price, 0.0);
    EXPECT_LT(recompute->price, 0.6);
    const Remedy* shorter = strict.with("--sequence ");
    ASSERT_NE(shorter, nullptr);
    EXPECT_LT(shorter->price, 0.0); // shorter attention, fewer seconds for a token
}

TEST(Remedies, NameAStackThatOffloadsWhereThisOneDoesNot) {
    sim::Scenario given = data_parallel_only();
    const auto offloads = [](const Case& some) {
        return std::any_of(some.remedies.begin(), some.remedies.end(), [](const Remedy& remedy) {
            return remedy.change.starts_with("optimizer states in host memory") &&
                   remedy.layout.find("off=opt:") != std::string::npos;
        });
    };
    const Case able(given);
    EXPECT_GT(able.found.counts.fits, 0);
    EXPECT_FALSE(offloads(able));
    given.stack.capabilities.offload_tiers = {sim::OffloadTier::none};
    const Case unable(given);
    ASSERT_EQ(unable.found.counts.fits, 0);
    EXPECT_TRUE(offloads(unable));
    EXPECT_FALSE(offloads(Case(without_host_memory(given))));
}

} // namespace
} // namespace shardplan::plan
