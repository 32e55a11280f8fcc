#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>
#include <unistd.h>

#include "executor/checkpoint/checkpoint.hpp"
#include "tests/executor/run/layout_runs.hpp"

/// What a trainer holds, sends and saves.
namespace shardplan::test {
namespace {

using exec::Index;
using sim::Group;
using sim::TensorKind;

/// A folder that lives as long as the test.
class Folder {
public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "trainer-XXXXXX").string();
        if (::mkdtemp(name.data()) != nullptr) path_ = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

std::vector<exec::RankMemory> memory_after(const TinyRun& run) {
    std::vector<exec::RankMemory> all(8);
    const TinyOutcome out = train(run, [&](exec::Trainer& trainer, int rank) {
        all[static_cast<std::size_t>(rank)] = trainer.memory();
    });
    EXPECT_TRUE(out.status) << run.layout << ": " << sim::to_text(out.status.error());
    all.resize(out.steps.size());
    return all;
}
std::int64_t of(const std::array<std::int64_t, sim::tensor_kind_count>& bytes, TensorKind kind) {
    return bytes[static_cast<std::size_t>(kind)];
}

TEST(TrainerMemory, NothingOfAPassIsLeftAfterAStep) {
    for (const char* layout :
         {"dp1,mb1", "pp2,v2,dp2,mb1,sched=zb-v,zero2", "dp2,mb1,zero3", "tp2,sp,cp2,dp1,mb1"}) {
        for (const exec::RankMemory& m : memory_after({deeper(tiny_llama()), layout})) {
            for (const TensorKind kind :
                 {TensorKind::activations, TensorKind::temporaries, TensorKind::logits,
                  TensorKind::messages, TensorKind::gathered_weights, TensorKind::buckets}) {
                EXPECT_EQ(of(m.now, kind), 0) << layout << ": " << sim::name_of(kind);
            }
            EXPECT_GT(of(m.peak, TensorKind::activations), 0);
        }
    }
}

TEST(TrainerMemory, OneForwardOneBackwardHoldsAMicroBatchPerStageGpipeAll) {
    const auto activations = [](const char* layout) {
        return of(memory_after({deeper(tiny_gpt2()), layout})[0].peak, TensorKind::activations);
    };
    // eight micro-batches; the stage before the last holds two
    const auto alternating = static_cast<double>(activations("pp2,dp1,mb1"));
    const auto at_once = static_cast<double>(activations("pp2,dp1,mb1,sched=gpipe"));
    EXPECT_NEAR(at_once / alternating, 4.0, 0.1);
    EXPECT_LT(activations("pp2,dp1,mb1,sched=gpipe,rc=full"), activations("pp2,dp1,mb1"));
}

TEST(TrainerTraffic, EveryMicroBatchCrossesTheBoundaryOnceEachWay) {
    for (const exec::Arithmetic arithmetic :
         {exec::Arithmetic::fp64, exec::Arithmetic::fp32, exec::Arithmetic::bf16}) {
        const Index bytes = arithmetic == exec::Arithmetic::fp64   ? 8
                            : arithmetic == exec::Arithmetic::fp32 ? 4
                                                                   : 2;
        std::vector<std::int64_t> sent(2);
        const TinyOutcome out = train({deeper(tiny_llama()), "pp2,dp1,mb1", arithmetic, 3},
                                      [&](exec::Trainer& t, int rank) {
                                          sent[static_cast<std::size_t>(rank)] =
                                              t.sent()[static_cast<std::size_t>(Group::pp)];
                                      });
        ASSERT_TRUE(out.status);
        const Index boundary = run_sequence * 24 * bytes;
        EXPECT_EQ(sent[0], 3 * 8 * boundary);
        EXPECT_EQ(sent[1], 3 * 8 * boundary);
    }
}

TEST(TrainerState, GoesOnUnderAnotherLayoutAsIfNothingHadHappened) {
    constexpr Index steps = 4;
    const sim::ModelSpec model = deeper(tiny_gpt2());
    TinyRun run{model, "dp1,mb1", exec::Arithmetic::fp64, 2 * steps};
    const TinyOutcome whole = train(run);
    ASSERT_TRUE(whole.status);
    const Folder folder;
    run.steps = steps;
    run.layout = "dp2,mb1,zero1";
    const auto first = exec::run_ranks(2, [&](exec::Communicator& world) -> sim::Status {
        auto trainer = exec::Trainer::make(world, training_plan(run),
                                           exec::TokenSource::synthetic(700, 50, 5));
        if (!trainer) return std::move(trainer).error();
        for (Index i = 0; i < steps; ++i) {
            auto step = (*trainer)->step();
            if (!step) return std::move(step).error();
        }
        const exec::CheckpointMeta meta{steps, {{"samples_read", (*trainer)->samples_read()}}, {}};
        auto saved = exec::save_checkpoint(world, folder.path(), (*trainer)->state(), meta);
        if (!saved) return std::move(saved).error();
        return sim::Done{};
    });
    ASSERT_TRUE(first.status()) << sim::to_text(first.status().error());
    for (const char* layout : {"dp1,mb1", "tp2,pp2,dp1,mb1", "pp3,dp1,mb1", "dp4,mb1,zero3",
                               "pp2,v2,dp1,mb1,sched=dualpipe"}) {
        run.layout = layout;
        const exec::TrainingPlan plan = training_plan(run);
        const auto ranks = static_cast<int>(sim::rank_count(plan.layout));
        const auto second = exec::run_ranks(ranks, [&](exec::Communicator& world) -> sim::Status {
            auto trainer =
                exec::Trainer::make(world, plan, exec::TokenSource::synthetic(700, 50, 5));
            if (!trainer) return std::move(trainer).error();
            auto meta = exec::load_checkpoint(world, folder.path(), (*trainer)->state());
            if (!meta) return std::move(meta).error();
            if (auto s = (*trainer)->resume(meta->step, meta->numbers["samples_read"]); !s) {
                return s;
            }
            for (Index i = steps; i < 2 * steps; ++i) {
                auto step = (*trainer)->step();
                if (!step) return std::move(step).error();
                EXPECT_EQ(step->step, i + 1);
                const double expected = whole.steps[0][static_cast<std::size_t>(i)].loss;
                EXPECT_NEAR(step->loss, expected, 1e-11 * expected) << layout;
            }
            return (*trainer)->check_replicas();
        });
        ASSERT_TRUE(second.status()) << layout << sim::to_text(second.status().error());
    }
}

} // namespace
} // namespace shardplan::test
