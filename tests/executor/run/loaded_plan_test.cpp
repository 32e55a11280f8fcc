#include "executor/run/program/loaded_plan.hpp"

#include <array>
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "executor/comm/threads.hpp"
#include "simulator/io/catalogue.hpp"
#include "tests/support/builders.hpp"

namespace shardplan::exec {
namespace {

/// A plan file of a small model on a machine of eight devices.
class PlanFile {
public:
    explicit PlanFile(const std::function<void(sim::Document&)>& change = {}) {
        sim::Document document;
        const auto stack = sim::load_stack("generic");
        EXPECT_TRUE(stack);
        document.scenario = test::scenario(test::small_model(4, 4, 4), test::dgx_h100(1),
                                           test::job(64, 16), stack ? *stack : sim::StackProfile{});
        document.plans.push_back({"tp2,dp4,mb1,zero1", {}, ""});
        document.plans.push_back({"pp2,dp4,mb2", {}, ""});
        if (change) change(document);
        EXPECT_TRUE(sim::write_document_file(path_, document));
    }
    PlanFile(const PlanFile&) = delete;
    PlanFile& operator=(const PlanFile&) = delete;
    ~PlanFile() { std::filesystem::remove(path_); }

    [[nodiscard]] ProgramOptions options() const {
        ProgramOptions out;
        out.plan = path_;
        return out;
    }

private:
    std::string path_ = (std::filesystem::temp_directory_path() /
                         ("shardplan-loaded-plan-" + std::to_string(::getpid()) + ".json"))
                            .string();
};

TEST(LoadedPlan, TakesModelBatchFormatsAndLayoutFromTheFile) {
    const PlanFile file;
    ProgramOptions options = file.options();
    options.rate = 2e-4;
    options.decay = 100;
    options.seed = 7;
    const auto loaded = load_plan(options, 8);
    ASSERT_TRUE(loaded) << to_text(loaded.error());
    EXPECT_EQ(64, loaded->plan.sequence);
    EXPECT_EQ(16, loaded->plan.global_batch);
    EXPECT_EQ(2, loaded->plan.layout.tp);
    EXPECT_EQ(sim::Shard::optimizer, loaded->plan.layout.shard);
    EXPECT_EQ(Arithmetic::bf16, loaded->plan.arithmetic);
    EXPECT_EQ(2e-4, loaded->plan.rate.peak);
    EXPECT_DOUBLE_EQ(2e-5, loaded->plan.rate.floor);
    EXPECT_EQ(7U, loaded->plan.seed);
    EXPECT_EQ("tp2,dp4,mb1,zero1", loaded->names.layout);
    EXPECT_EQ(16U, loaded->names.plan_hash.size());
    EXPECT_GT(loaded->names.parameters, 1000);
}

TEST(LoadedPlan, AnotherPlanOfTheFileIsTakenByNumber) {
    const PlanFile file;
    ProgramOptions options = file.options();
    options.plan_number = 2;
    const auto second = load_plan(options, 0);
    ASSERT_TRUE(second);
    EXPECT_EQ(2, second->plan.layout.pp);
    options.plan_number = 3;
    const auto third = load_plan(options, 0);
    ASSERT_FALSE(third);
    EXPECT_EQ("--plan", third.error().where);
    EXPECT_EQ("write a number from 1 to 2", third.error().hint);
}

TEST(LoadedPlan, WrongNumberOfRanksSaysWhatToWrite) {
    const PlanFile file;
    const auto loaded = load_plan(file.options(), 4);
    ASSERT_FALSE(loaded);
    EXPECT_EQ("--ranks", loaded.error().where);
    EXPECT_NE(std::string::npos, loaded.error().what.find("8 ranks, not of 4"));
    EXPECT_NE(std::string::npos, loaded.error().hint.find("--ranks 8"));
    EXPECT_NE(std::string::npos, loaded.error().hint.find("--gpus 4"));
}

TEST(LoadedPlan, WhatTheExecutorDoesNotDoIsRefusedByTheFieldOfTheJob) {
    const auto refusal = [](const std::function<void(sim::Job&)>& change) {
        const PlanFile file([&](sim::Document& d) { change(d.scenario.job); });
        const auto loaded = load_plan(file.options(), 0);
        EXPECT_FALSE(loaded);
        return loaded ? "" : loaded.error().where;
    };
    EXPECT_EQ("job.precision.compute",
              refusal([](sim::Job& j) { j.precision.compute = sim::Dtype::fp16; }));
    EXPECT_EQ("job.precision.master",
              refusal([](sim::Job& j) { j.precision.master = sim::Dtype::bf16; }));
    EXPECT_EQ("job.method.kind",
              refusal([](sim::Job& j) { j.method.kind = sim::MethodKind::lora; }));
    EXPECT_EQ("job.optimizer.kind",
              refusal([](sim::Job& j) { j.optimizer.kind = sim::OptimizerKind::muon; }));
    EXPECT_EQ("job.optimizer.state",
              refusal([](sim::Job& j) { j.optimizer.state = sim::Dtype::bf16; }));
    EXPECT_EQ("job.moe.capacity", refusal([](sim::Job& j) { j.moe.capacity = 1.25; }));
}

TEST(LoadedPlan, OfAParameterServerTrainsThroughItsServers) {
    const auto train = [](std::int64_t servers, std::array<std::int64_t, 4>& sent) {
        const PlanFile file([&](sim::Document& d) {
            d.plans = {{"dp4,mb2", {}, ""}};
            d.scenario.job.constraints.idle_devices = true;
            d.scenario.job.precision.compute = sim::Dtype::fp32;
            if (servers == 0) return;
            d.scenario.stack.collectives.algorithms = {sim::Algorithm::parameter_server};
            d.scenario.stack.collectives.servers = servers;
        });
        ProgramOptions options = file.options();
        options.threads = 1;
        const auto loaded = load_plan(options, 4);
        EXPECT_TRUE(loaded) << to_text(loaded.error());
        std::array<double, 4> losses{};
        const auto outcome = run_ranks(4, [&](Communicator& world) -> Status {
            const auto rank = static_cast<std::size_t>(world.rank());
            auto tokens = tokens_of(options, loaded->plan);
            auto trainer = Trainer::make(world, loaded->plan, std::move(*tokens));
            if (!trainer) return std::move(trainer).error();
            auto step = (*trainer)->step();
            if (!step) return std::move(step).error();
            losses[rank] = step->loss;
            sent[rank] = (*trainer)->sent()[static_cast<std::size_t>(sim::Group::dp_cp)];
            return (*trainer)->check_replicas();
        });
        EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
        return losses.front();
    };
    std::array<std::int64_t, 4> ring{};
    std::array<std::int64_t, 4> sent{};
    const double loss = train(0, ring);
    EXPECT_NEAR(train(2, sent), loss, 1e-5 * loss);
    // workers send all gradients once; a server its part to three and the other's to that
    EXPECT_EQ(sent[0], 2 * sent[3]);
    EXPECT_EQ(sent[1], 2 * sent[2]);
    EXPECT_EQ(ring[0], ring[3]);
    EXPECT_NEAR(train(1, sent), loss, 1e-5 * loss);
    EXPECT_EQ(sent[0], 3 * sent[1]);
}

TEST(LoadedPlan, MadeUpTokensLastForAllSteps) {
    const PlanFile file;
    ProgramOptions options = file.options();
    options.steps = 3;
    const auto loaded = load_plan(options, 0);
    ASSERT_TRUE(loaded);
    const auto tokens = tokens_of(options, loaded->plan);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(3 * 16 * 64 + 1, tokens->size());
}

TEST(LoadedPlan, BytesNeedAVocabularyOf256) {
    const auto tokens = [](Index vocab) {
        const PlanFile file([&](sim::Document& d) { d.scenario.model.embedding.vocab = vocab; });
        ProgramOptions options = file.options();
        options.data = options.plan;
        const auto loaded = load_plan(options, 0);
        EXPECT_TRUE(loaded);
        return tokens_of(options, loaded->plan);
    };
    ASSERT_FALSE(tokens(255));
    EXPECT_EQ("--format", tokens(255).error().where);
    EXPECT_TRUE(tokens(256));
}

} // namespace
} // namespace shardplan::exec
