#include "executor/comm/communicator.hpp"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"

namespace shardplan::test {
namespace {

using exec::Bf16;
using exec::Communicator;
using exec::ReduceOp;
using exec::Status;
using sim::Algorithm;
using sim::Done;

/// Runs one rank, whose calls are all answered at once.
void alone(const std::function<void(Communicator&)>& body) {
    const auto outcome = exec::run_ranks(1, [&](Communicator& all) -> Status {
        body(all);
        return Done{};
    });
    EXPECT_TRUE(outcome.status());
}

std::string what_of(const Status& status) { return status ? "" : status.error().what; }

TEST(Communicator, RefusesAlgorithmsOfSwitchesAndSizesThatDoNotFitByName) {
    alone([](Communicator& all) {
        EXPECT_EQ(what_of(all.set_choice({.algorithm = Algorithm::nvls})),
                  "nvls is not done over messages between CPUs");
        EXPECT_EQ(what_of(all.set_choice({.algorithm = Algorithm::pat})),
                  "pat is not done over messages between CPUs");
        EXPECT_EQ(what_of(all.set_choice({.algorithm = Algorithm::parameter_server, .servers = 2})),
                  "2 servers among 1 ranks");
        EXPECT_EQ(what_of(all.set_choice({.tiers = {2, 3}})), "tiers of 2 x 3 do not make 1 ranks");
    });
}

TEST(Communicator, RefusesBuffersAndPeersThatDoNotFitAndStaysUsable) {
    alone([](Communicator& all) {
        std::vector<float> three(3);
        std::vector<float> two(2);
        std::vector<double> wide(3);
        EXPECT_EQ(what_of(all.all_gather(exec::const_view(two), exec::view(three))),
                  "3 elements for 1 ranks with 2 each");
        EXPECT_EQ(what_of(all.all_gather(exec::const_view(three), exec::view(wide))),
                  "one buffer holds fp32, the other fp64");
        EXPECT_EQ(what_of(all.broadcast(exec::view(two), 1)), "there is no rank 1");
        EXPECT_EQ(what_of(all.send(exec::const_view(two), 0)), "a rank does not send to itself");
        const std::vector<std::int64_t> counts = {1};
        EXPECT_EQ(what_of(all.all_to_all_v(exec::const_view(two), counts, exec::view(two), counts)),
                  "2 elements of fp32 in and 2 of fp32 out do not go with counts of 1 and 1");
        EXPECT_TRUE(all.all_reduce(exec::view(two), ReduceOp::sum));
    });
}

TEST(Communicator, RefusesTagsOutOfRange) {
    const auto outcome = exec::run_ranks(2, [](Communicator& all) -> Status {
        std::vector<float> data(1);
        EXPECT_EQ(what_of(all.send(exec::const_view(data), 1 - all.rank(), exec::max_tag + 1)),
                  "tag 1023 is out of range");
        return Done{};
    });
    EXPECT_TRUE(outcome.status());
}

TEST(Communicator, AddsBf16InFp32AndRoundsToEven) {
    const auto outcome = exec::run_ranks(2, [](Communicator& all) -> Status {
        // 256 + 1 lies between 256 and 258, 258 + 1 between 258 and 260: ties, to the even mantissa
        std::vector<Bf16> data = {exec::to_bf16(all.rank() == 0 ? 256.0F : 1.0F),
                                  exec::to_bf16(all.rank() == 0 ? 258.0F : 1.0F)};
        Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
        EXPECT_EQ(exec::to_float(data[0]), 256.0F);
        EXPECT_EQ(exec::to_float(data[1]), 260.0F);
        return status;
    });
    EXPECT_TRUE(outcome.status());
}

TEST(Communicator, InRankOrderRoundsASumOfBf16Once) {
    const auto outcome = exec::run_ranks(3, [](Communicator& all) -> Status {
        if (Status s = all.set_choice({.rank_order = true}); !s) return s;
        // 256 + 1 + 1: rounded after each step it stays at 256
        std::vector<Bf16> data = {exec::to_bf16(all.rank() == 0 ? 256.0F : 1.0F)};
        Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
        EXPECT_EQ(exec::to_float(data[0]), 258.0F);
        return status;
    });
    EXPECT_TRUE(outcome.status());
}

TEST(Communicator, FindsTheMaximumThatIsNotANumberWhicheverRankHoldsIt) {
    for (int holder = 0; holder < 3; ++holder) {
        const auto outcome = exec::run_ranks(3, [&](Communicator& all) -> Status {
            const double nan = std::numeric_limits<double>::quiet_NaN();
            std::vector<double> data = {all.rank() == holder ? nan : 1.0};
            Status status = all.all_reduce(exec::view(data), ReduceOp::max);
            EXPECT_NE(data[0], data[0]);
            return status;
        });
        EXPECT_TRUE(outcome.status());
    }
}

TEST(Communicator, ShowsEveryCallToItsHooksAndHandsThemToParts) {
    const auto outcome = exec::run_ranks(2, [](Communicator& all) -> Status {
        std::vector<std::string> seen;
        all.set_hooks(
            {.begin =
                 [&](const exec::CommCall& call) {
                     seen.push_back("begin " + std::string(call.operation) + " on " +
                                    std::string(call.group) + " by " + std::string(call.algorithm) +
                                    ", " + std::to_string(call.bytes));
                 },
             .end =
                 [&](const exec::CommCall& call, bool succeeded) {
                     seen.push_back((succeeded ? "end " : "failed ") + std::string(call.operation));
                 }});
        auto part = all.split(0, 0, "tp");
        if (!part) return part.error();
        std::vector<double> data(4);
        Status status = (*part)->all_reduce(exec::view(data), ReduceOp::sum);
        EXPECT_EQ(seen, (std::vector<std::string>{"begin split on world by , 0", "end split",
                                                  "begin all_reduce on tp by tree, 32",
                                                  "end all_reduce"}));
        return status;
    });
    EXPECT_TRUE(outcome.status());
}

/// Bytes each rank sends in an all-reduce of 2400 bytes on 4 ranks.
std::vector<std::int64_t> sent_by(const exec::CollectiveChoice& choice) {
    std::vector<std::int64_t> sent(4);
    const auto outcome = exec::run_ranks(4, [&](Communicator& all) -> Status {
        if (Status s = all.set_choice(choice); !s) return s;
        std::vector<float> data(600);
        Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
        sent[static_cast<std::size_t>(all.rank())] = all.traffic().sent;
        return status;
    });
    EXPECT_TRUE(outcome.status());
    return sent;
}

TEST(Communicator, SendsWhatEachAlgorithmSends) {
    using Sent = std::vector<std::int64_t>;
    // 2 (n - 1) / n of the bytes
    EXPECT_EQ(sent_by({.algorithm = Algorithm::ring}), (Sent{3600, 3600, 3600, 3600}));
    EXPECT_EQ(sent_by({.algorithm = Algorithm::halving_doubling}), (Sent{3600, 3600, 3600, 3600}));
    EXPECT_EQ(sent_by({.algorithm = Algorithm::hierarchical, .tiers = {2, 2}}),
              (Sent{3600, 3600, 3600, 3600}));
    // up once, and down to each child: two of the root, one of rank 2
    EXPECT_EQ(sent_by({.algorithm = Algorithm::tree}), (Sent{4800, 2400, 4800, 2400}));
    // the one server answers three ranks
    EXPECT_EQ(sent_by({.algorithm = Algorithm::parameter_server, .servers = 1}),
              (Sent{7200, 2400, 2400, 2400}));
    // each of two holds a half, and pushes the other
    EXPECT_EQ(sent_by({.algorithm = Algorithm::parameter_server, .servers = 2}),
              (Sent{4800, 4800, 2400, 2400}));
}

} // namespace
} // namespace shardplan::test
