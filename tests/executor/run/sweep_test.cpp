#include "executor/run/sweep.hpp"

#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "simulator/io/sweep_record.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using exec::Communicator;
using exec::Status;
using exec::SweepOptions;

SweepOptions short_sweep() {
    SweepOptions options;
    options.budget = std::chrono::milliseconds(300);
    options.repeats = 2;
    options.most_bytes = 4096;
    return options;
}

std::string swept(int ranks, const SweepOptions& options) {
    std::ostringstream out;
    const auto outcome = exec::run_ranks(
        ranks, [&](Communicator& world) { return exec::run_sweep(world, options, out); });
    const Status status = outcome.status();
    EXPECT_TRUE(status) << status.error().what;
    return out.str();
}

TEST(Sweep, OfTwoRanksHasEveryKindOfSampleHoweverShort) {
    const auto read = sim::parse_sweeps(swept(2, short_sweep()), "sweep");
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_TRUE(read->problems.empty());
    ASSERT_EQ(read->sweeps.size(), 1U);
    const sim::Sweep& sweep = read->sweeps[0];
    EXPECT_EQ(sweep.machine.ranks, 2);
    EXPECT_EQ(sweep.machine.device, "cpu-generic");
    EXPECT_FALSE(sweep.machine.instructions.empty());
    EXPECT_GE(sweep.machine.probes, 1);
    std::set<std::string> kinds;
    for (const sim::KernelRecord& r : sweep.kernels) {
        kinds.insert(r.op);
        EXPECT_GT(r.tflops.value_or(0.0), 0.0) << r.id;
        EXPECT_TRUE(r.scorable);
    }
    for (const sim::OperatorRecord& r : sweep.operators) {
        kinds.insert(r.op);
        EXPECT_GT(r.seconds.value_or(0.0), 0.0) << r.id;
    }
    for (const sim::CollectiveRecord& r : sweep.collectives) {
        kinds.insert(r.collective);
        EXPECT_GT(r.time_us.value_or(0.0), 0.0) << r.id;
        EXPECT_EQ(r.gpus, 2);
    }
    for (const char* kind :
         {"gemm",           "attention_fwd",  "attention_bwd", "norm_fwd",       "norm_bwd",
          "activation_fwd", "activation_bwd", "gate_fwd",      "gate_bwd",       "rope",
          "residual",       "bias_bwd",       "loss",          "update",         "copy",
          "launch",         "all_reduce",     "all_gather",    "reduce_scatter", "broadcast",
          "all_to_all",     "send_recv"}) {
        EXPECT_EQ(kinds.count(kind), 1U) << kind;
    }
}

TEST(Sweep, OfMoreRanksThanCoresHasThemTakeTurns) {
    SweepOptions options = short_sweep();
    options.threads = 64;
    const auto read = sim::parse_sweeps(swept(2, options), "sweep");
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_EQ(read->sweeps[0].machine.processors, 1);
    options.threads = 1;
    const auto free = sim::parse_sweeps(swept(2, options), "sweep");
    ASSERT_TRUE(free) << free.error().what;
    EXPECT_GE(free->sweeps[0].machine.processors, 1);
    EXPECT_LE(free->sweeps[0].machine.processors, free->sweeps[0].machine.cores);
}

TEST(Sweep, OfOneRankHasNoCollectivesAndNothingAlone) {
    const auto read = sim::parse_sweeps(swept(1, short_sweep()), "sweep");
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_TRUE(read->sweeps[0].collectives.empty());
    EXPECT_TRUE(read->sweeps[0].alone.empty());
}

TEST(Sweep, MeasuresTheProductsOfTheModelsItIsGiven) {
    SweepOptions options = short_sweep();
    options.budget = std::chrono::seconds(20);
    options.repeats = 1;
    options.models = {{tiny_llama(), tiny_sequence, tiny_batch}};
    const auto read = sim::parse_sweeps(swept(1, options), "sweep");
    ASSERT_TRUE(read) << read.error().what;
    bool found = false;
    for (const sim::KernelRecord& r : read->sweeps[0].kernels) {
        // 24 tokens by gate and up of 40 each, from 24 elements
        found = found || (r.m == 24 && r.n == 80 && r.k == 24);
    }
    EXPECT_TRUE(found);
}

TEST(Sweep, RefusesWhatMeasuresNothing) {
    const auto refusal = [](auto change) {
        SweepOptions options = short_sweep();
        change(options);
        std::ostringstream out;
        const auto outcome = exec::run_ranks(
            1, [&](Communicator& world) { return exec::run_sweep(world, options, out); });
        const Status status = outcome.status();
        EXPECT_FALSE(status);
        EXPECT_TRUE(out.str().empty());
        return status ? std::string() : status.error().where;
    };
    EXPECT_NE(refusal([](SweepOptions& o) { o.budget = {}; }).find("budget"), std::string::npos);
    EXPECT_NE(refusal([](SweepOptions& o) { o.threads = 0; }).find("threads"), std::string::npos);
    EXPECT_NE(refusal([](SweepOptions& o) { o.repeats = 0; }).find("repeats"), std::string::npos);
    EXPECT_NE(refusal([](SweepOptions& o) { o.most_bytes = 8; }).find("most_bytes"),
              std::string::npos);
    EXPECT_NE(refusal([](SweepOptions& o) {
                  o.threads = 2;
                  o.cpu_time = true;
              }).find("cpu_time"),
              std::string::npos);
    EXPECT_NE(refusal([](SweepOptions& o) {
                  o.models = {{tiny_llama(), 0, 1}};
              }).find("models"),
              std::string::npos);
}

} // namespace
} // namespace shardplan::test
