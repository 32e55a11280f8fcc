#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "executor/optimizer/data_parallel.hpp"
#include "executor/optimizer/exact_sum.hpp"
#include "tests/executor/optimizer/shared_training.hpp"

namespace shardplan::test {
namespace {

using sim::TensorKind;

// --- memory -------------------------------------------------------------------------------------

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

/// Elements of a rank's parameters of one kind of holders, in all or in one unit of the table.
Index elements(const ParameterTable& table, Holders holders, std::optional<Index> unit = {}) {
    Index count = 0;
    for (std::size_t u = 0; u < table.units.size(); ++u) {
        if (unit && *unit != static_cast<Index>(u)) continue;
        const ParameterUnit& at = table.units[u];
        for (Index i = at.first; i < at.first + at.parameters; ++i) {
            if (table[i].holders == holders) count += table[i].count();
        }
    }
    return count;
}

struct Kept {
    std::int64_t weights = 0, gradients = 0, master = 0, states = 0;
};
Kept kept(const MemoryCount& memory) {
    return {memory.now(TensorKind::weights), memory.now(TensorKind::gradients),
            memory.now(TensorKind::master_weights), memory.now(TensorKind::optimizer_states)};
}

TEST(DataParallelMemory, IsWholeWithoutSharding) {
    Trained<float> trained;
    train({.model = tiny_mixtral(), .layout = "dp4,ep2,mb1"}, trained);
    for (const auto& rank : trained.ranks) {
        const std::int64_t all = rank.parameters->table().count;
        EXPECT_EQ(kept(rank.memory).weights, 4 * all);
        EXPECT_EQ(kept(rank.memory).gradients, 4 * all);
        EXPECT_EQ(kept(rank.memory).master, 0);
        EXPECT_EQ(kept(rank.memory).states, 8 * all);
    }
}

TEST(DataParallelMemory, OfZero1And2IsSplitOverAllUnitsTogether) {
    // 16-bit storage: weights and master weights; 4 ranks share dense parameters, 2 an expert
    for (const bool gradients : {false, true}) {
        Trained<float> trained;
        train({.model = tiny_mixtral(),
               .layout = gradients ? "dp4,ep2,mb1,zero2" : "dp4,ep2,mb1,zero1",
               .storage = Storage::bf16},
              trained);
        for (const auto& rank : trained.ranks) {
            const ParameterTable& table = rank.parameters->table();
            const Index dense = ceil_div(elements(table, Holders::dense), 4);
            const Index expert = ceil_div(elements(table, Holders::expert), 2);
            const Kept k = kept(rank.memory);
            EXPECT_EQ(k.weights, 2 * (4 * dense + 2 * expert));
            EXPECT_EQ(k.gradients, 4 * (gradients ? dense + expert : 4 * dense + 2 * expert));
            EXPECT_EQ(k.master, 4 * (dense + expert));
            EXPECT_EQ(k.states, 8 * (dense + expert));
        }
    }
}

TEST(DataParallelMemory, OfZero3IsSplitUnitByUnit) {
    SharedTraining training{.model = tiny_mixtral(), .layout = "dp5,mb1,zero3"};
    training.optimizer.kind = OptimizerKind::sgd;
    Trained<float> trained;
    train(training, trained);
    for (const auto& rank : trained.ranks) {
        const ParameterTable& table = rank.parameters->table();
        Index pieces = 0;
        for (Index u = 0; u < static_cast<Index>(table.units.size()); ++u) {
            pieces += ceil_div(elements(table, Holders::dense, u), 5) +
                      ceil_div(elements(table, Holders::expert, u), 5);
        }
        EXPECT_GT(5 * pieces, table.count); // some units do not split evenly
        const Kept k = kept(rank.memory);
        EXPECT_EQ(k.weights, 4 * pieces);
        EXPECT_EQ(k.gradients, 4 * pieces);
        EXPECT_EQ(k.states, 4 * pieces);
        EXPECT_EQ(rank.memory.now(TensorKind::gathered_weights), 0);
    }
}

TEST(DataParallelMemory, OfGatheredUnitsAndTheirGradientsComesAndGoes) {
    Trained<double> trained;
    train<double>(
        {.model = tiny_llama(), .layout = "dp4,mb1,zero3"}, trained,
        [](TrainingRank<double>& rank) -> Status {
            const Index unit = 1; // a block
            const Index room =
                4 * ceil_div(elements(rank.parameters->table(), Holders::dense, unit), 4);
            const std::int64_t before = kept(rank.memory).gradients;
            rank.memory.restart_peaks();
            rank.memory.enter(sim::Phase::backward);
            if (auto s = rank.shared->start_gather(unit); !s) return s;
            if (auto s = rank.shared->finish_gather(unit); !s) return s;
            add_gradients(rank, parameters_of(rank, unit), 0);
            EXPECT_EQ(rank.memory.now(TensorKind::gathered_weights), 8 * room);
            EXPECT_EQ(kept(rank.memory).gradients, before + 8 * room);
            rank.shared->release(unit);
            if (auto s = rank.shared->reduce(unit); !s) return s;
            EXPECT_EQ(rank.memory.now(TensorKind::gathered_weights), 0);
            EXPECT_EQ(kept(rank.memory).gradients, before);
            const auto& peak = rank.memory.peak(sim::Phase::backward);
            EXPECT_EQ(peak[static_cast<std::size_t>(TensorKind::gathered_weights)], 8 * room);
            EXPECT_EQ(peak[static_cast<std::size_t>(TensorKind::gradients)], before + 8 * room);
            EXPECT_EQ(rank.memory.peak_phase(), sim::Phase::backward);
            return rank.shared->finish_reduction();
        });
}

// --- offload ------------------------------------------------------------------------------------

TEST(Offload, LeavesEveryBitAsItWasAndTheDeviceWithLess) {
    for (const Storage storage : {Storage::scalar, Storage::bf16}) {
        for (const std::string shard : {"zero0", "zero1", "zero3"}) {
            SharedTraining training{.layout = "dp4,mb1," + shard,
                                    .storage = storage,
                                    .offload_to = ::testing::TempDir()};
            Trained<float> here;
            train(training, here);
            for (const std::string tier : {"host", "nvme"}) {
                training.layout = "dp4,mb1," + shard + ",off=opt:0.7:" + tier;
                if (shard == "zero3") training.layout += ",off=par:0.4:" + tier;
                SCOPED_TRACE(training.layout);
                Trained<float> off;
                train(training, off);
                EXPECT_EQ(off.state, here.state);
                const auto of = tier == "host" ? sim::Tier::host : sim::Tier::nvme;
                const auto other = tier == "host" ? sim::Tier::nvme : sim::Tier::host;
                for (std::size_t r = 0; r < off.ranks.size(); ++r) {
                    const MemoryCount& memory = off.ranks[r].memory;
                    const Kept all = kept(here.ranks[r].memory);
                    const Kept less = kept(memory);
                    EXPECT_EQ(all.weights - less.weights + all.master - less.master + all.states -
                                  less.states,
                              memory.off_device(of));
                    EXPECT_NEAR(static_cast<double>(less.states),
                                0.3 * static_cast<double>(all.states), 64.0);
                    EXPECT_EQ(less.gradients, all.gradients);
                    EXPECT_EQ(memory.off_device(other), 0);
                }
            }
        }
    }
}

TEST(Offload, OfAPieceIsItsLastElementsRoundedDown) {
    SharedTraining training{.model = tiny_llama(), .layout = "dp3,mb1,zero1,off=opt:0.333:host"};
    Trained<float> trained;
    train(training, trained);
    for (const auto& rank : trained.ranks) {
        const Index piece = ceil_div(rank.parameters->table().count, 3);
        const Index off = piece * 333 / 1000;
        EXPECT_EQ(rank.memory.off_device(sim::Tier::host), 2 * 4 * off);
        EXPECT_EQ(kept(rank.memory).states, 2 * 4 * (piece - off));
    }
}

TEST(Offload, ToAFolderThatIsNotThereIsRefused) {
    SharedTraining training{.layout = "dp1,mb1,off=opt:1.0:nvme", .offload_to = "/nowhere/at/all"};
    const RunOutcome outcome = run_ranks(1, [&](Communicator& world) {
        TrainingRank<float> rank;
        return set_up(world, training, rank);
    });
    ASSERT_FALSE(outcome.status());
    EXPECT_EQ(outcome.status().error().where, "offload");
    EXPECT_NE(outcome.status().error().what.find("/nowhere/at/all"), std::string::npos);
}

TEST(Offload, OfParametersOfARankAloneComesBackPortionByPortion) {
    Trained<float> plain;
    train({.layout = "dp1,mb1"}, plain);
    Trained<float> away;
    train({.layout = "dp1,mb1,zero3,off=par:0.5:host"}, away);
    EXPECT_EQ(away.state, plain.state);
    const TrainingRank<float>& rank = away.ranks.front();
    Index off = 0;
    for (const Segment& segment : rank.parameters->segments())
        off += segment.count / 2;
    EXPECT_EQ(rank.memory.off_device(sim::Tier::host), 4 * off);
}

// --- what goes wrong ----------------------------------------------------------------------------

TEST(DataParallelFailures, GradientsThatAreNotNumbersStopAllRanksBeforeAnythingChanges) {
    for (const bool deterministic : {false, true}) {
        for (const std::string shard : {"zero0", "zero1", "zero2", "zero3"}) {
            const SharedTraining training{.layout = "dp2,tp2,mb1," + shard,
                                          .deterministic = deterministic};
            Trained<double> trained;
            train<double>(training, trained, [](TrainingRank<double>& rank) -> Status {
                if (rank.world->rank() == 2) {
                    rank.parameters->gradient(2)[0] = std::numeric_limits<double>::quiet_NaN();
                }
                if (auto s = run_passes(rank, 9); !s) return s;
                const std::vector<StatePart<double>> state = rank.shared->state();
                std::vector<double> before;
                for (const auto& part : state)
                    before.insert(before.end(), part.data, part.data + part.end - part.begin);
                const auto report = rank.shared->step(0.01);
                EXPECT_EQ(report ? "none" : report.error().where, "step 4");
                EXPECT_EQ(rank.shared->steps(), 3);
                std::vector<double> after;
                for (const auto& part : state)
                    after.insert(after.end(), part.data, part.data + part.end - part.begin);
                EXPECT_EQ(after, before);
                rank.shared->clear_gradients();
                // goes on as if it had not been
                return run_steps(rank, 4, 5);
            });
        }
    }
}

TEST(DataParallelFailures, ARankThatStopsIsNamedByTheOthers) {
    for (const std::string shard : {"zero0", "zero1", "zero2", "zero3"}) {
        const SharedTraining training{.layout = "dp3,mb1," + shard};
        const RunOutcome outcome = run_ranks(3, [&](Communicator& world) -> Status {
            TrainingRank<float> rank;
            if (auto s = set_up(world, training, rank); !s) return s;
            if (world.rank() == 1) {
                return Error{ErrorCode::backend_failed, "rank 1", "its memory is gone", "none"};
            }
            const Status status = run_steps(rank, 0, 1);
            rank.shared.reset();
            return status;
        });
        for (const int r : {0, 2}) {
            const Status& status = outcome.ranks[static_cast<std::size_t>(r)];
            ASSERT_FALSE(status) << shard;
            EXPECT_NE(to_text(status.error()).find("its memory is gone"), std::string::npos)
                << to_text(status.error());
        }
    }
}

TEST(DataParallel, ExpertsThatTheShardGroupDoesNotDivideAreSplitOverFewerRanks) {
    Trained<double> one;
    train({.model = tiny_mixtral(), .layout = "dp6,ep2,mb1"}, one);
    for (const char* layout : {"dp6,ep2,mb1,zero3:2", "dp6,ep2,mb1,zero1:2"}) {
        Trained<double> split;
        train({.model = tiny_mixtral(), .layout = layout}, split);
        for (const auto& [name, states] : one.state) {
            for (std::size_t i = 0; i < states[0].size(); ++i)
                ASSERT_NEAR(split.state.at(name)[0][i], states[0][i], 1e-12) << name;
        }
    }
}

// --- states -------------------------------------------------------------------------------------

TEST(DataParallelState, FilledIntoAFreshOneGoesOnToTheBit) {
    for (const std::string layout :
         {"dp4,mb1,zero0", "dp4,ep2,mb1,zero1", "dp2,tp2,sp,mb1,zero3,off=opt:0.5:host"}) {
        for (const Storage storage : {Storage::scalar, Storage::bf16}) {
            SharedTraining training{.model = tiny_mixtral(),
                                    .layout = layout,
                                    .steps = 4,
                                    .storage = storage,
                                    .deterministic = true};
            Trained<float> straight;
            train(training, straight);
            training.steps = 2;
            Trained<float> second;
            Trained<float> first;
            train<float>(training, first, [&](TrainingRank<float>& rank) -> Status {
                SharedTraining from_start = training;
                TrainingRank<float> fresh;
                if (auto s = set_up(*rank.world, from_start, fresh); !s) return s;
                const auto from = rank.shared->state();
                const auto to = fresh.shared->state();
                for (std::size_t i = 0; i < from.size(); ++i) {
                    EXPECT_EQ(from[i].parameter, to[i].parameter);
                    std::copy_n(from[i].data, from[i].end - from[i].begin, to[i].data);
                }
                if (auto s = fresh.shared->resume(2); !s) return s;
                if (auto s = run_steps(fresh, 2, 4); !s) return s;
                const auto done = fresh.shared->state();
                for (const StatePart<float>& part : done) {
                    const Parameter& p = fresh.parameters->table()[part.parameter];
                    const auto kind = static_cast<std::size_t>(part.kind);
                    for (Index e = part.begin; e < part.end; ++e) {
                        const Index place = whole_place(p, e);
                        if (place < 0) continue;
                        EXPECT_EQ(part.data[e - part.begin],
                                  straight.state.at(p.name)[kind][static_cast<std::size_t>(place)]);
                    }
                }
                fresh.shared.reset();
                return sim::Done{};
            });
        }
    }
}

TEST(Replicas, ThatDriftAreNamedOnEveryRank) {
    struct Case {
        std::string layout;
        sim::ModelSpec model;
        int rank;
        StateKind kind;
        std::string parameter;
        std::string says;
    };
    const std::string norm = "blocks.1.ffn_norm.scale";
    const Case cases[] = {
        {"dp4,mb1,zero0", tiny_llama(), 2, StateKind::second, norm,
         "rank 2 holds other states of blocks.1.ffn_norm.scale than rank 0"},
        {"dp4,mb1,zero0", tiny_llama(), 3, StateKind::value, norm,
         "rank 3 holds other values of blocks.1.ffn_norm.scale than rank 0"},
        {"dp4,mb1,zero3:2", tiny_llama(), 3, StateKind::first, "head.weight",
         "rank 3 holds other states of head.weight than rank 1"},
        {"tp2,dp2,mb1,zero1", tiny_llama(), 1, StateKind::first, "blocks.0.attention_norm.scale",
         "rank 1 holds other states of blocks.0.attention_norm.scale than rank 0"},
        {"dp4,ep2,mb1,zero0", tiny_mixtral(), 3, StateKind::first, "blocks.0.expert_up.weight",
         "states of blocks.0.expert_up.weight than rank 1"},
        {"pp2,dp1,mb1,zero0", tiny_gpt2(), 1, StateKind::value, "token_table",
         "rank 1 holds other values of token_table than rank 0"},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.layout);
        SharedTraining training{.model = c.model, .layout = c.layout, .deterministic = true};
        training.choice.rank_order = true;
        Trained<double> trained;
        train<double>(training, trained, [&](TrainingRank<double>& rank) -> Status {
            if (auto s = rank.shared->check_replicas(); !s) return s;
            for (const StatePart<double>& part : rank.shared->state()) {
                const bool meant = rank.parameters->table()[part.parameter].name == c.parameter;
                if (rank.world->rank() == c.rank && meant && part.kind == c.kind) {
                    part.data[0] += 1.0;
                }
            }
            const Status status = rank.shared->check_replicas();
            EXPECT_FALSE(status);
            if (!status) {
                EXPECT_NE(status.error().what.find(c.says), std::string::npos)
                    << status.error().what;
            }
            return sim::Done{};
        });
    }
}

// --- parts --------------------------------------------------------------------------------------

TEST(ExactSum, IsTheSameInAnyOrderAndRoundsOnce) {
    std::vector<double> values;
    for (Index i = 0; i < 3000; ++i)
        values.push_back(std::ldexp(made_gradient("x", i, 0, 0), static_cast<int>(i % 400) - 200));
    ExactSum forward;
    forward.add_squares<double>(values);
    ExactSum in_two;
    std::reverse(values.begin(), values.end());
    ExactSum other;
    in_two.add_squares<double>(std::span(values).first(1234));
    other.add_squares<double>(std::span(values).subspan(1234));
    for (std::size_t i = 0; i < ExactSum::digits; ++i)
        in_two.parts()[i] += other.parts()[i];
    EXPECT_EQ(forward.value(), in_two.value());
    long double sum = 0.0L;
    std::sort(values.begin(), values.end(),
              [](double a, double b) { return std::abs(a) < std::abs(b); });
    for (const double v : values)
        sum += static_cast<long double>(v * v);
    EXPECT_NEAR(forward.value() / static_cast<double>(sum), 1.0, 1e-15);
}

TEST(ExactSum, KeepsTheSmallBesideTheLarge) {
    ExactSum sum;
    // one by one, each of the small ones would be lost
    const std::vector<double> values = {1.0, 0x1.0p-27, 0x1.0p-27, 0x1.0p-27, 0x1.0p-27};
    sum.add_squares<double>(values);
    EXPECT_EQ(sum.value(), 1.0 + 0x1.0p-52);
}

TEST(ExactSum, TakesTheSmallestAndSaysWhatIsNotFinite) {
    ExactSum sum;
    const std::vector<double> tiny = {0x1.0p-537, 0.0};
    sum.add_squares<double>(tiny);
    EXPECT_EQ(sum.value(), 0x1.0p-1074);
    const std::vector<double> large = {0x1.0p511};
    sum.add_squares<double>(large);
    EXPECT_EQ(sum.value(), 0x1.0p1022);
    const std::vector<float> not_finite = {std::numeric_limits<float>::infinity()};
    sum.add_squares<float>(not_finite);
    EXPECT_TRUE(std::isinf(sum.value()));
}

TEST(Arrangement, OfWrapUnitsFollowsTheChunks) {
    sim::LayoutTables tables;
    sim::ModelSpec model = tiny_mixtral();
    model.parts[0].runs = {{0, 6}};
    const sim::Layout layout = layout_of("pp2,v3,dp2,mb1,zero3,wrap=2blocks", tables);
    const RankShare share = *share_of(model, layout, tables, 0);
    const ParameterTable table = parameter_table(model, share);
    const Arrangement all = arrange(table, share, {true, 2}, 2, 1);
    // the table with the first block; then one block for each chunk
    ASSERT_EQ(all.portions.size(), 3U);
    for (Index chunk = 0; chunk < 3; ++chunk) {
        const Portion& p = all.portions[static_cast<std::size_t>(chunk)];
        EXPECT_EQ(p.chunk, chunk);
        EXPECT_EQ(p.segments, 2); // dense, experts
    }
    Index count = 0;
    for (const Segment& s : all.segments) {
        EXPECT_EQ(s.parts, s.holders == Holders::dense ? 2 : 1);
        count += s.count;
    }
    EXPECT_EQ(count, table.count);
}

TEST(GatherQueue, DoesWorkInOrderAndKeepsTheFirstError) {
    GatherQueue queue;
    std::vector<int> done;
    const std::uint64_t first = queue.add([&]() -> Status {
        done.push_back(1);
        return sim::Done{};
    });
    EXPECT_TRUE(queue.wait(first));
    queue.add([&]() -> Status {
        done.push_back(2);
        return Error{ErrorCode::backend_failed, "here", "it failed", "try again"};
    });
    const std::uint64_t last = queue.add([&]() -> Status {
        done.push_back(3);
        return sim::Done{};
    });
    const Status status = queue.wait(last);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().what, "it failed");
    EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

} // namespace
} // namespace shardplan::test
