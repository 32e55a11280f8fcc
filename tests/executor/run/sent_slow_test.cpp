#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "simulator/estimate/evaluator.hpp"
#include "simulator/estimate/link_loads.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/memory/rank_parameters.hpp"
#include "tests/executor/run/layouts_to_run.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::test {
namespace {

using exec::Arithmetic;

/// Bytes a rank sends in a step by dimension of the layout, on the rank that sends most.
using Sent = std::map<std::string, double>;

constexpr const char* dimensions[] = {"tp", "cp", "ep", "pp", "dp"};

Sent priced(const TinyRun& run, const exec::TrainingPlan& plan) {
    const auto stack = sim::load_stack("shardplan-cpu");
    auto cluster = sim::load_cluster("local-cpu");
    if (!stack || !cluster) return {};
    cluster->value.node_groups[0].node.devices = sim::rank_count(plan.layout);
    sim::Job work = job(run.sequence, run.global_batch);
    work.precision.compute =
        run.arithmetic == Arithmetic::bf16 ? sim::Dtype::bf16 : sim::Dtype::fp32;
    const auto evaluator =
        sim::Evaluator::make(scenario(run.model, cluster->value, work, *stack), plan.tables);
    if (!evaluator) return {};
    sim::Workspace workspace;
    sim::Estimate estimate;
    evaluator->evaluate(plan.layout, workspace, estimate);
    Sent out;
    for (const sim::LinkLoad& link : estimate.links)
        out[link.dim] = sim::most_sent(estimate.links, link.dim).value();
    return out;
}

Sent measured(const TinyRun& run, const exec::TrainingPlan& plan) {
    Sent out;
    std::mutex mutex;
    const auto visit = [&](exec::Trainer& trainer, int /*rank*/) {
        Sent own;
        const auto sent = trainer.sent();
        for (std::size_t g = 0; g < sim::group_count; ++g) {
            const std::string group(sim::name_of(static_cast<sim::Group>(g)));
            const bool experts = group == "ep" || group == "etp";
            const bool known = group == "tp" || group == "cp" || group == "pp";
            own[experts ? "ep" : known ? group : "dp"] += static_cast<double>(sent[g]);
        }
        const std::lock_guard lock(mutex);
        for (const auto& [dim, bytes] : own)
            out[dim] = std::max(out[dim], bytes / static_cast<double>(run.steps));
    };
    const TinyOutcome outcome = train(plan, run.steps, visit);
    EXPECT_TRUE(outcome.status) << sim::to_text(outcome.status.error());
    return out;
}

/// What the estimate leaves out, which in larger models is next to nothing: by dimension, at most.
Sent left_out(const TinyRun& run, const sim::Layout& layout) {
    const sim::BlockKind& kind = run.model.block_kinds[0];
    const auto hidden = static_cast<double>(run.model.parts[0].hidden);
    const auto blocks = static_cast<double>(sim::block_count(run.model.parts[0]));
    const double passes = static_cast<double>(run.global_batch) / layout.dp / layout.micro_batch;
    const double experts =
        kind.ffn.kind == sim::FfnKind::moe ? static_cast<double>(kind.ffn.experts) : 0.0;
    const double choices =
        experts > 0.0
            ? static_cast<double>(run.sequence * layout.micro_batch * kind.ffn.top_k) / layout.cp
            : 0.0;
    const auto all_reduce = [](double ranks) { return 2.0 * (ranks - 1.0) / ranks; };
    const double balance = passes * blocks * 2.0 * experts * 8.0;
    // in the backward pass the weights of choices go to the experts and their gradients back
    const double weights = passes * blocks * choices * 4.0;
    Sent out;
    out["cp"] = all_reduce(layout.cp) * (balance + passes * 8.0);
    out["tp"] = all_reduce(layout.tp) * balance + weights;
    out["ep"] = 4.0 * weights + 3.0 * passes * blocks * experts * 8.0;
    out["dp"] = 2.0 * hidden * 4.0; // the final norm is no part of a tied table
    if (layout.tp > 1) {
        // gradients of what tensor-parallel ranks hold alike
        sim::Layout whole = layout;
        whole.tp = whole.etp = 1;
        const sim::Resolved resolved;
        const auto dense = [&](const sim::Layout& l) {
            return sim::block_on_rank(kind, static_cast<std::int64_t>(hidden), resolved, l).dense;
        };
        const double tp = layout.tp;
        const double alike = tp * dense(layout) - dense(whole); // all copies but one
        out["tp"] += all_reduce(tp) * 4.0 *
                     (blocks * alike + 2.0 * hidden * static_cast<double>(run.sequence));
    }
    return out;
}

void expect_priced(const sim::ModelSpec& model, std::span<const char* const> layouts) {
    for (const char* layout : layouts) {
        for (const Arithmetic arithmetic : {Arithmetic::fp32, Arithmetic::bf16}) {
            const TinyRun run{model, layout, arithmetic, 1};
            exec::TrainingPlan plan = training_plan(run);
            plan.collectives.algorithm = sim::Algorithm::ring; // small ones go by trees otherwise
            Sent want = priced(run, plan);
            Sent got = measured(run, plan);
            Sent beyond = left_out(run, plan.layout);
            for (const char* dim : dimensions) {
                SCOPED_TRACE(std::string(layout) + " " + dim +
                             (arithmetic == Arithmetic::bf16 ? ", 16 bits" : ", 32 bits"));
                // tokens do not choose experts evenly
                const double uneven = std::string(dim) == "ep" ? 0.05 : 0.015;
                EXPECT_GE(got[dim], (1.0 - uneven) * want[dim] - beyond[dim]);
                EXPECT_LE(got[dim], (1.0 + uneven) * want[dim] + beyond[dim]);
            }
        }
    }
}

TEST(BytesSent, AreThosePricedForEveryDimensionOfDenseModels) {
    expect_priced(deeper(tiny_gpt2()), dense_layouts);
    expect_priced(deeper(tiny_llama()), dense_layouts);
}
TEST(BytesSent, AreThosePricedForEveryDimensionOfExperts) {
    expect_priced(deeper(tiny_mixtral()), expert_layouts);
}

} // namespace
} // namespace shardplan::test
