#include <iostream>
#include <map>

#include <gtest/gtest.h>

#include "tests/executor/run/layout_runs.hpp"
#include "tests/executor/run/random_layouts.hpp"

namespace shardplan::test {
namespace {

TEST(RandomLayouts, RunAndTakeTheStepsOfOneRankOrAreRefusedByName) {
    constexpr int wanted = 500;
    constexpr exec::Index batch = 8;
    const sim::ModelSpec models[] = {
        deeper(tiny_gpt2()),         deeper(tiny_llama()),     deeper(tiny_mixtral()),
        deeper(tiny_llama(true), 5), mixed(tiny_qwen3()),      deeper(tiny_olmo2()),
        mixed(tiny_deepseek()),      deeper(tiny_qwen2_moe()), deeper(tiny_dropping())};
    std::vector<RandomLayouts> draws;
    for (const sim::ModelSpec& model : models) {
        draws.emplace_back(model, run_sequence, batch, 4, 17U);
    }
    std::map<std::pair<std::size_t, std::uint32_t>, TinyOutcome> one_rank;
    std::map<std::string, int> refused;
    int refusals = 0;
    for (int i = 0; i < wanted; ++i) {
        const std::size_t which = static_cast<std::size_t>(i) % std::size(models);
        TinyRun run{models[which], "dp1,mb1", exec::Arithmetic::fp64, 2, batch};
        exec::TrainingPlan plan = training_plan(run);
        plan.layout.micro_batch = 1;
        const sim::Layout layout = draws[which].next();
        auto& reference = one_rank[{which, layout.micro_batch}];
        if (reference.steps.empty()) {
            plan.layout.micro_batch = layout.micro_batch;
            reference = train(plan, run.steps);
            ASSERT_TRUE(reference.status);
        }
        plan.layout = layout;
        plan.tables = draws[which].tables();
        const std::string text = sim::to_text(layout, plan.tables);
        const TinyOutcome out = train(plan, run.steps);
        if (!out.status && out.steps.front().empty()) {
            const sim::Error& error = out.status.error();
            ++refused[sim::to_text(error)];
            ++refusals;
            EXPECT_FALSE(error.where.empty());
            EXPECT_FALSE(error.hint.empty()) << error.what;
            continue;
        }
        EXPECT_TRUE(out.status) << text << ": " << sim::to_text(out.status.error());
        EXPECT_LE(differences(out, reference).loss, 1e-11) << text << ", model " << which;
    }
    for (const auto& [why, times] : refused)
        std::cout << times << " refused: " << why << "\n";
    EXPECT_EQ(refusals, 0);
}

} // namespace
} // namespace shardplan::test
