#include "executor/optimizer/data_parallel.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/executor/optimizer/shared_training.hpp"

namespace shardplan::test {
namespace {

sim::ModelSpec of_blocks(sim::ModelSpec model, std::int64_t blocks) {
    model.parts[0].runs = {{0, blocks}};
    return model;
}

void expect_like_one_rank(SharedTraining training) {
    SCOPED_TRACE(training.layout);
    Trained<double> shared;
    Trained<double> alone;
    train(training, shared);
    train_alone(training, alone);
    EXPECT_LE(difference(shared.state, alone.state), 1e-12);
    for (const auto& rank : shared.ranks) {
        ASSERT_EQ(rank.reports.size(), alone.ranks[0].reports.size());
        for (std::size_t i = 0; i < rank.reports.size(); ++i) {
            const StepReport& expected = alone.ranks[0].reports[i];
            EXPECT_LT(expected.factor, 1.0); // the norm does clip
            EXPECT_NEAR(rank.reports[i].gradient_norm / expected.gradient_norm, 1.0, 1e-13);
            EXPECT_EQ(rank.reports[i].gradient_norm, shared.ranks[0].reports[i].gradient_norm);
            EXPECT_NEAR(rank.reports[i].factor / expected.factor, 1.0, 1e-13);
        }
    }
}

TEST(DataParallel, TrainsAsOneRankDoesUnderEveryKindOfSharding) {
    for (const std::string layout : {"dp4,mb1", "dp2,mb1", "dp3,mb1", "dp2,cp2,mb1"}) {
        for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
            expect_like_one_rank({.layout = layout + shard, .micro_batches = 2});
        }
    }
}

TEST(DataParallel, AddsUpCopiesOfShards) {
    for (const std::string shard : {"zero1:2", "zero2:2", "zero3:2"}) {
        expect_like_one_rank({.layout = "dp4,mb1," + shard, .micro_batches = 2});
        expect_like_one_rank(
            {.model = tiny_mixtral(), .layout = "dp4,ep2,mb1," + shard, .micro_batches = 2});
    }
}

TEST(DataParallel, AddsUpExpertsOverTheRanksThatHoldThem) {
    for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
        for (const std::string layout :
             {"dp4,mb1", "dp4,ep2,mb1", "dp4,ep4,mb1", "tp2,dp2,ep2,mb1", "tp2,sp,dp2,etp1,mb1",
              "tp2,sp,dp1,etp1,mb1", "tp2,sp,dp2,ep4,etp1,mb1"}) {
            expect_like_one_rank({.model = tiny_mixtral(), .layout = layout + shard});
        }
    }
}

TEST(DataParallel, CountsWhatTensorParallelRanksHoldAlikeOnce) {
    for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
        for (const std::string layout : {"tp2,dp2,mb1", "tp2,sp,dp2,mb1", "tp4,sp,dp1,mb1"}) {
            expect_like_one_rank({.layout = layout + shard});
        }
    }
}

TEST(DataParallel, AddsUpATableThatStandsOnTwoStages) {
    for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
        expect_like_one_rank({.layout = std::string("pp2,dp2,mb1") + shard});
        expect_like_one_rank(
            {.model = of_blocks(tiny_gpt2(), 4), .layout = std::string("pp4,dp1,mb1") + shard});
    }
    expect_like_one_rank({.layout = "pp2,tp2,sp,dp1,mb1,zero1"});
    // both ends of the model on one stage
    expect_like_one_rank(
        {.model = of_blocks(tiny_gpt2(), 4), .layout = "pp2,v2,dp2,mb1,sched=zb-v,zero3"});
}

TEST(DataParallel, AddsUpMirroredStages) {
    for (const char* shard : {",zero0", ",zero1", ",zero2", ",zero3"}) {
        for (const bool tied : {true, false}) {
            expect_like_one_rank({.model = of_blocks(tiny_gpt2(tied), 4),
                                  .layout = std::string("pp2,v2,dp2,mb1,sched=dualpipe") + shard});
        }
    }
    expect_like_one_rank(
        {.model = of_blocks(tiny_gpt2(), 4), .layout = "pp4,v2,dp1,mb1,sched=dualpipe"});
}

TEST(DataParallel, GroupsUnitsAsTheScheduleDoes) {
    for (const char* wrap : {"block", "2blocks", "4blocks", "model"}) {
        expect_like_one_rank({.model = of_blocks(tiny_gpt2(), 4),
                              .layout = std::string("dp2,mb1,zero3,prefetch2,wrap=") + wrap});
    }
    for (const char* shard : {"zero0", "zero1", "zero2"}) {
        expect_like_one_rank({.layout = std::string("dp4,mb1,") + shard, .buckets = 3});
    }
}

TEST(DataParallel, TakesSgdToo) {
    SharedTraining training{.layout = "dp4,mb1,zero3"};
    training.optimizer.kind = OptimizerKind::sgd;
    expect_like_one_rank(training);
}

TEST(DataParallel, AddedInTheOrderOfRanksGivesTheSameBitsUnderEveryKindOfSharding) {
    for (const auto& [model, layout] :
         {std::pair(tiny_gpt2(), "dp4,mb1"), std::pair(tiny_mixtral(), "dp4,ep2,mb1"),
          std::pair(tiny_gpt2(), "pp2,tp1,dp2,mb1"), std::pair(tiny_gpt2(), "tp2,sp,dp2,mb1")}) {
        SharedTraining training{.model = model, .deterministic = true};
        training.choice.rank_order = true;
        std::vector<Trained<double>> trained(4);
        std::vector<Trained<float>> narrow(4);
        for (std::size_t i = 0; i < trained.size(); ++i) {
            training.layout = layout + std::string(",zero") + std::to_string(i);
            SCOPED_TRACE(training.layout);
            train(training, trained[i]);
            train(training, narrow[i]);
            EXPECT_EQ(trained[i].state, trained[0].state);
            EXPECT_EQ(narrow[i].state, narrow[0].state);
            for (std::size_t step = 0; step < trained[0].ranks[0].reports.size(); ++step) {
                EXPECT_EQ(trained[i].ranks[0].reports[step].gradient_norm,
                          trained[0].ranks[0].reports[step].gradient_norm);
            }
        }
    }
}

/// What every rank reads of all parameters is near values of `whole`.
template <class T>
Status expect_readable(TrainingRank<T>& rank, const WholeState<T>& whole, double within) {
    Arena arena;
    const bool rounded = rank.parameters->storage() == Storage::bf16;
    for (Index p = 0; p < rank.shared->portions(); ++p) {
        if (auto s = rank.shared->start_gather(p); !s) return s;
        if (auto s = rank.shared->finish_gather(p); !s) return s;
        for (const Index i : parameters_of(rank, p)) {
            const Parameter& one = rank.parameters->table()[i];
            const Reading<T> values = rank.parameters->read(arena, i);
            for (Index e = 0; e < one.count(); ++e) {
                const Index place = whole_place(one, e);
                if (place < 0) continue;
                const T kept = whole.at(one.name)[0][static_cast<std::size_t>(place)];
                const T expected =
                    rounded ? static_cast<T>(to_float(to_bf16(static_cast<float>(kept)))) : kept;
                EXPECT_NEAR(static_cast<const T*>(values)[e], expected, within) << one.name;
            }
        }
        rank.shared->release(p);
    }
    return sim::Done{};
}

TEST(DataParallel, GivesOperatorsTheUpdatedValues) {
    for (const std::string layout : {"dp4,mb1,zero0", "dp4,mb1,zero1", "dp4,mb1,zero2:2",
                                     "dp4,mb1,zero3", "dp4,mb1,zero3:2,wrap=2blocks"}) {
        const SharedTraining training{.model = tiny_mixtral(), .layout = layout};
        Trained<double> alone;
        train_alone(training, alone);
        Trained<double> shared;
        train<double>(training, shared, [&](TrainingRank<double>& rank) {
            return expect_readable(rank, alone.state, 1e-12);
        });
    }
}

TEST(DataParallel, KeepsMasterWeightsBesideThoseIn16Bits) {
    SharedTraining training{.storage = Storage::bf16, .deterministic = true};
    training.choice.rank_order = true;
    Trained<float> first;
    for (const std::string shard : {"zero0", "zero1", "zero2", "zero3"}) {
        training.layout = "dp4,mb1," + shard;
        Trained<float> shared;
        train<float>(training, shared, [&](TrainingRank<float>& rank) {
            return expect_readable(rank, shared.state, 0.0);
        });
        if (first.state.empty()) first.state = shared.state;
        EXPECT_EQ(shared.state, first.state) << shard;
    }
    Trained<float> alone;
    train_alone(training, alone);
    EXPECT_LT(difference(first.state, alone.state), 1e-4);
}

TEST(DataParallel, HoldsTheTiedTableOfAHeadInAnotherPortion) {
    const SharedTraining training{.layout = "dp2,mb1,zero3"};
    Trained<double> shared;
    train<double>(training, shared, [](TrainingRank<double>& rank) -> Status {
        const auto held = [&] { return rank.memory.now(sim::TensorKind::gathered_weights); };
        DataParallel<double>& d = *rank.shared;
        const Index head = d.portions() - 1;
        EXPECT_EQ(d.portion(head).reads, std::vector<Index>{0});
        EXPECT_EQ(held(), 0);
        if (auto s = d.start_gather(head); !s) return s;
        if (auto s = d.finish_gather(head); !s) return s;
        const std::int64_t both = held();
        if (auto s = d.start_gather(0); !s) return s;
        if (auto s = d.finish_gather(0); !s) return s;
        EXPECT_EQ(held(), both); // gathered once
        d.release(head);
        EXPECT_LT(held(), both);
        EXPECT_GT(held(), 0);
        d.release(0);
        EXPECT_EQ(held(), 0);
        return sim::Done{};
    });
}

TEST(DataParallel, GoesThroughAParameterServerWhereOneIsChosen) {
    SharedTraining training{.layout = "dp3,mb1"};
    training.choice.algorithm = sim::Algorithm::parameter_server;
    Trained<double> shared;
    train<double>(training, shared, [](TrainingRank<double>& rank) -> Status {
        std::string algorithm;
        CommHooks hooks;
        hooks.begin = [&](const CommCall& call) { algorithm = call.algorithm; };
        Communicator& group = rank.groups[sim::Group::dp_cp];
        group.set_hooks(hooks);
        if (auto s = run_passes(rank, 0); !s) return s;
        EXPECT_EQ(algorithm, "parameter_server");
        group.set_hooks({});
        return sim::Done{};
    });
    Trained<double> alone;
    train_alone(training, alone);
    EXPECT_LE(difference(shared.state, alone.state), 1e-12);
}

} // namespace
} // namespace shardplan::test
