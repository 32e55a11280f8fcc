#pragma once

#include <cmath>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "executor/run/trainer.hpp"
#include "simulator/spec/layout.hpp"
#include "tests/executor/tiny_models.hpp"

/// Training runs of tiny models under layouts, ranks as threads.
namespace shardplan::test {

/// Tokens of a sample: divides into the pieces of up to four context-parallel ranks.
constexpr exec::Index run_sequence = 16;

/// Four blocks, deep enough for pipelines, and longer positions.
inline sim::ModelSpec deeper(sim::ModelSpec model, std::int64_t blocks = 4) {
    model.parts[0].runs = {{0, blocks}};
    if (model.embedding.position_rows > 0) model.embedding.position_rows = run_sequence;
    return model;
}

/// The same of two kinds of blocks in turn.
inline sim::ModelSpec mixed(sim::ModelSpec model) {
    model.parts[0].runs = {{1, 1}, {0, 1}, {1, 1}, {0, 1}};
    return model;
}

struct TinyRun {
    sim::ModelSpec model;
    std::string layout = "dp1,mb1";
    exec::Arithmetic arithmetic = exec::Arithmetic::fp64;
    exec::Index steps = 3;
    exec::Index global_batch = 8;
    exec::OptimizerOptions optimizer = {};
    exec::Index sequence = run_sequence;
    double rate = 3e-3; ///< of learning, at its peak
};

inline exec::TrainingPlan training_plan(const TinyRun& run) {
    exec::TrainingPlan plan;
    plan.model = run.model;
    auto parsed = sim::parse_layout(run.layout, "layout", plan.tables);
    EXPECT_TRUE(parsed) << run.layout;
    if (parsed) plan.layout = parsed->layout;
    plan.sequence = run.sequence;
    plan.global_batch = run.global_batch;
    plan.arithmetic = run.arithmetic;
    plan.optimizer = run.optimizer;
    plan.rate.peak = run.rate;
    plan.rate.warmup = 3;
    plan.threads = 1;
    return plan;
}

/// What every rank saw of a run.
struct TinyOutcome {
    sim::Status status = sim::Done{};
    std::vector<std::vector<exec::TrainStep>> steps; ///< by rank
};

/// One rank's part. `visit`, if any, is called after the last step.
inline sim::Status train_rank(exec::Communicator& world, const exec::TrainingPlan& plan,
                              exec::Index steps, std::vector<exec::TrainStep>& out,
                              const std::function<void(exec::Trainer&, int)>& visit = {}) {
    auto data = exec::TokenSource::synthetic(700, plan.model.embedding.vocab, 5);
    auto trainer = exec::Trainer::make(world, plan, std::move(data));
    if (!trainer) return std::move(trainer).error();
    for (exec::Index i = 0; i < steps; ++i) {
        auto step = (*trainer)->step();
        if (!step) return std::move(step).error();
        out.push_back(*step);
    }
    if (visit) visit(**trainer, world.rank());
    return sim::Done{};
}

/// All ranks, each as a thread.
inline TinyOutcome train(const exec::TrainingPlan& plan, exec::Index steps,
                         const std::function<void(exec::Trainer&, int)>& visit = {}) {
    const auto ranks = static_cast<int>(sim::rank_count(plan.layout));
    TinyOutcome out;
    out.steps.resize(static_cast<std::size_t>(ranks));
    const auto body = [&](exec::Communicator& world) {
        return train_rank(world, plan, steps, out.steps[static_cast<std::size_t>(world.rank())],
                          visit);
    };
    out.status = exec::run_ranks(ranks, body, {.timeout = std::chrono::seconds(60)}).status();
    return out;
}
inline TinyOutcome train(const TinyRun& run,
                         const std::function<void(exec::Trainer&, int)>& visit = {}) {
    return train(training_plan(run), run.steps, visit);
}

/// The largest relative differences from the steps of one rank.
struct Differences {
    double loss = HUGE_VAL;
    double balance = 0.0;
    double gradient_norm = HUGE_VAL;
};

/// That all ranks say the same, to the last bit, is expected.
inline Differences differences(const TinyOutcome& a, const TinyOutcome& reference) {
    if (!a.status || !reference.status) return {};
    Differences worst{0.0, 0.0, 0.0};
    const auto compare = [](double x, double y, double& most) {
        const double relative = std::abs(x - y) / std::max(std::abs(y), 1e-300);
        most = std::isfinite(relative) ? std::max(most, relative) : HUGE_VAL;
    };
    const auto& expected = reference.steps.front();
    for (const auto& rank : a.steps) {
        EXPECT_EQ(rank.size(), expected.size());
        for (std::size_t i = 0; i < std::min(rank.size(), expected.size()); ++i) {
            EXPECT_EQ(rank[i].loss, a.steps.front()[i].loss) << "ranks differ in step " << i + 1;
            EXPECT_EQ(rank[i].gradient_norm, a.steps.front()[i].gradient_norm);
            compare(rank[i].loss, expected[i].loss, worst.loss);
            compare(rank[i].gradient_norm, expected[i].gradient_norm, worst.gradient_norm);
            if (expected[i].balance > 0.0) {
                compare(rank[i].balance, expected[i].balance, worst.balance);
            }
        }
    }
    return worst;
}

} // namespace shardplan::test
