#include <gtest/gtest.h>

#include "executor/kernels/cpu_kernels.hpp"
#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "tests/executor/run/layout_runs.hpp"

namespace shardplan::test {
namespace {

using exec::Index;

TEST(Trainer, OneRankDoesWhatModelAndOptimizerDo) {
    TinyRun run{tiny_llama(), "dp1,mb2"};
    run.global_batch = 4;
    run.sequence = tiny_sequence;
    const TinyOutcome out = train(run);
    ASSERT_TRUE(out.status) << sim::to_text(out.status.error());

    exec::ModelOptions options;
    options.sequence = tiny_sequence;
    options.micro_batch = 2;
    auto model = exec::Model<double>::make(run.model, options,
                                           std::make_shared<exec::CpuKernels<double>>(1));
    ASSERT_TRUE(model);
    (*model)->parameters().start(1);
    auto optimizer =
        exec::DataParallel<double>::make((*model)->kernels(), (*model)->parameters(), {});
    auto samples =
        exec::SampleStream::make(exec::TokenSource::synthetic(700, 50, 5), tiny_sequence, {});
    ASSERT_TRUE(samples);
    const exec::TrainingPlan plan = training_plan(run);
    std::vector<exec::Token> tokens(24);
    std::vector<exec::Token> targets(24);
    for (Index step = 1; step <= run.steps; ++step) {
        double sum = 0.0;
        for (int m = 0; m < 2; ++m) {
            samples->next(tokens, targets);
            auto loss = (*model)->train(tokens, targets, {1.0 / 48.0, 0.5});
            ASSERT_TRUE(loss);
            sum += loss->sum;
        }
        ASSERT_TRUE(optimizer->step(plan.rate.at(step)));
        EXPECT_EQ(out.steps[0][static_cast<std::size_t>(step - 1)].loss, sum / 48.0);
    }
}

TEST(Trainer, ActivationsOffTheDeviceLowerThePeakAndComeBackToTheBit) {
    const auto activations = [](const char* layout, TinyOutcome& out) {
        TinyRun run{deeper(tiny_llama(), 8), layout};
        std::int64_t most = 0;
        out = train(run, [&](exec::Trainer& trainer, int) {
            const exec::RankMemory memory = trainer.memory();
            most = memory.peak[static_cast<std::size_t>(sim::TensorKind::activations)];
            EXPECT_EQ(memory.host, 0); // nothing waits between steps
        });
        EXPECT_TRUE(out.status) << layout;
        return most;
    };
    TinyOutcome here;
    TinyOutcome half;
    TinyOutcome away;
    const std::int64_t all = activations("dp1,mb4", here);
    const std::int64_t part = activations("dp1,mb4,off=act:0.5:host", half);
    const std::int64_t few = activations("dp1,mb4,off=act:1.0:host", away);
    // of eight blocks two are at work
    EXPECT_LT(part, all * 3 / 4);
    EXPECT_LT(few, all / 3);
    EXPECT_EQ(differences(half, here).loss, 0.0);
    EXPECT_EQ(differences(away, here).loss, 0.0);
}

TEST(Trainer, DataParallelRanksTakeTheStepsOfOne) {
    for (const sim::ModelSpec& model : {deeper(tiny_gpt2()), deeper(tiny_mixtral())}) {
        const TinyOutcome one = train({model, "dp1,mb1"});
        const TinyOutcome two = train({model, "dp2,mb1"});
        const TinyOutcome four = train({model, "dp4,mb1"});
        ASSERT_TRUE(two.status) << sim::to_text(two.status.error());
        ASSERT_TRUE(four.status);
        EXPECT_LE(differences(two, one).loss, 1e-11);
        EXPECT_LE(differences(four, one).loss, 1e-11);
        EXPECT_LE(differences(four, one).gradient_norm, 1e-11);
    }
}

TEST(Trainer, SixteenBitStorageIsNearTheRest) {
    TinyRun run{deeper(tiny_gpt2()), "dp2,mb2"};
    const TinyOutcome exact = train(run);
    run.arithmetic = exec::Arithmetic::fp32;
    EXPECT_LE(differences(train(run), exact).loss, 1e-5);
    run.arithmetic = exec::Arithmetic::bf16;
    const TinyOutcome rounded = train(run);
    ASSERT_TRUE(rounded.status);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(rounded.steps[0][i].loss, exact.steps[0][i].loss, 1e-2);
        EXPECT_NE(rounded.steps[0][i].loss, exact.steps[0][i].loss);
    }
}

TEST(Trainer, EveryTaskOfTheScheduleIsASpan) {
    std::vector<exec::RunSpan> spans;
    std::size_t tasks = 0;
    const TinyOutcome out =
        train({deeper(tiny_gpt2()), "dp2,mb1"}, [&](exec::Trainer& trainer, int rank) {
            trainer.set_spans([&spans, rank](const exec::RunSpan& s) {
                if (rank == 0) spans.push_back(s);
            });
            ASSERT_TRUE(trainer.step());
            if (rank == 0) tasks = trainer.schedule().size();
        });
    ASSERT_TRUE(out.status);
    std::size_t told = 0;
    double exchanged = 0.0;
    for (const exec::RunSpan& span : spans) {
        EXPECT_LE(span.begin, span.end);
        if (span.task >= 0) ++told;
        if (span.group == "dp_cp") exchanged += static_cast<double>(span.bytes);
    }
    EXPECT_EQ(told, tasks);
    EXPECT_GT(exchanged, 0.0);
}

TEST(Trainer, AnErrorOfOneRankIsOneOfAllRanks) {
    for (const char* layout : {"dp2,mb1", "pp2,dp1,mb1", "pp2,dp2,mb1,zero1"}) {
        const exec::TrainingPlan plan = training_plan({deeper(tiny_llama()), layout});
        const auto ranks = static_cast<int>(sim::rank_count(plan.layout));
        const auto out = exec::run_ranks(ranks, [&](exec::Communicator& world) -> sim::Status {
            // the samples of the last rank's second step hold a token that is none
            const exec::Index vocab = world.rank() + 1 == ranks ? 51 : 50;
            auto data = exec::TokenSource::synthetic(700, vocab, 5);
            auto trainer = exec::Trainer::make(world, plan, std::move(data));
            if (!trainer) return std::move(trainer).error();
            for (int i = 0; i < 5; ++i) {
                auto step = (*trainer)->step();
                if (!step) return std::move(step).error();
            }
            return sim::Done{};
        });
        for (int rank = 0; rank < ranks; ++rank) {
            const sim::Status& status = out.ranks[static_cast<std::size_t>(rank)];
            ASSERT_FALSE(status) << layout << ", rank " << rank;
            EXPECT_NE(sim::to_text(status.error()).find("is not in the vocabulary"),
                      std::string::npos)
                << sim::to_text(status.error());
        }
    }
}

TEST(Trainer, WhatCannotBeTrainedIsRefusedByFieldOnAllRanks) {
    const struct {
        const char* layout;
        const char* field;
    } cases[] = {
        {"dp2,mb3", "global_batch"},
        {"dp1,mb1,v2", "layout/pp"},
        {"pp2,dp1,mb1,sched=zb-v", "layout/sched"},
        {"pp3,v2,dp1,mb1,sched=dualpipe", "layout/sched"},
        {"pp2,dp1,mb1,stages=1-2", "layout/stages"},
        {"pp2,v3,dp1,mb1", "layout/pp"},
        {"dp4,mb1,zero3:3", "layout/zero"},
        {"tp3,dp1,mb1", "layout"},
        {"cp3:a2a,dp1,mb1", "layout"},
        {"cp3,dp1,mb1", "options/sequence"},
    };
    for (const auto& c : cases) {
        const exec::TrainingPlan plan = training_plan({deeper(tiny_gpt2()), c.layout});
        const auto ranks = static_cast<int>(sim::rank_count(plan.layout));
        const auto out = exec::run_ranks(ranks, [&](exec::Communicator& world) -> sim::Status {
            auto trainer =
                exec::Trainer::make(world, plan, exec::TokenSource::synthetic(700, 50, 5));
            if (!trainer) return std::move(trainer).error();
            return sim::Done{};
        });
        for (const sim::Status& rank : out.ranks) {
            ASSERT_FALSE(rank) << c.layout;
            EXPECT_EQ(rank.error().where, c.field) << sim::to_text(rank.error());
            EXPECT_FALSE(rank.error().hint.empty());
        }
    }
}

} // namespace
} // namespace shardplan::test
