#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "tests/executor/comm/conformance.hpp"

namespace shardplan::test {
namespace {

using exec::Communicator;
using exec::Endpoint;
using exec::Error;
using exec::ErrorCode;
using exec::ReduceOp;
using exec::Status;
using sim::Done;
using namespace std::chrono_literals;

using Clock = std::chrono::steady_clock;

Error disk_is_full() { return {ErrorCode::backend_failed, "batch 4", "the disk is full", ""}; }

/// The body on every rank but `bad`, where `end` takes its place after some rounds.
Status rounds(Communicator& all, int bad, const std::function<Status()>& end) {
    std::vector<double> data(3000, 1.0);
    for (int i = 0; i < 8; ++i) {
        if (i == 4 && all.rank() == bad) return end();
        Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
        if (!status) return status;
    }
    return Done{};
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Failure, OfOneRankReachesAllOthersAtOnceWithItsReason) {
    for (const NamedChoice& choice : choices_for(4)) {
        const auto begin = Clock::now();
        const auto outcome =
            exec::run_ranks(4,
                            [&](Communicator& all) -> Status {
                                if (Status status = all.set_choice(choice.choice); !status)
                                    return status;
                                return rounds(all, 2, disk_is_full);
                            },
                            {.timeout = 60s});
        EXPECT_LT(Clock::now() - begin, 20s) << choice.name;
        ASSERT_FALSE(outcome.status()) << choice.name;
        EXPECT_EQ(outcome.status().error(), disk_is_full()) << choice.name;
        EXPECT_EQ(outcome.first_failed, 2);
        for (const int rank : {0, 1, 3}) {
            const Status& status = outcome.ranks[static_cast<std::size_t>(rank)];
            ASSERT_FALSE(status) << choice.name << ", rank " << rank;
            const Error& error = status.error();
            EXPECT_TRUE(has(error.where, "rank " + std::to_string(rank) + ", all_reduce on world"))
                << error.where;
            EXPECT_TRUE(has(error.what, "rank 2 stopped: batch 4: the disk is full")) << error.what;
        }
    }
}

TEST(Failure, OfARankThatThrowsIsItsErrorAndThatOfWhoeverWaits) {
    const auto outcome = exec::run_ranks(2, [](Communicator& all) {
        return rounds(all, 1, []() -> Status { throw std::runtime_error("no such layer"); });
    });
    ASSERT_FALSE(outcome.status());
    EXPECT_EQ(outcome.status().error().what, "stopped by an exception: no such layer");
    ASSERT_FALSE(outcome.ranks[0]);
    EXPECT_TRUE(has(outcome.ranks[0].error().what, "no such layer"));
}

TEST(Failure, ARankThatLeftEarlyIsSaidToHaveFinished) {
    const auto outcome = exec::run_ranks(
        3, [](Communicator& all) { return rounds(all, 1, []() -> Status { return Done{}; }); });
    ASSERT_FALSE(outcome.status());
    EXPECT_TRUE(has(outcome.status().error().what, "rank 1 has finished"))
        << outcome.status().error().what;
}

TEST(Failure, OfASilentRankComesWithinTheTimeOutAndNamesOperationAndPeer) {
    for (const NamedChoice& choice : choices_for(3)) {
        std::atomic<bool> others_are_done = false;
        std::atomic<int> done = 0;
        const auto outcome =
            exec::run_ranks(3,
                            [&](Communicator& all) -> Status {
                                if (Status status = all.set_choice(choice.choice); !status)
                                    return status;
                                if (all.rank() == 1) {
                                    while (!others_are_done)
                                        std::this_thread::sleep_for(1ms);
                                    return Done{};
                                }
                                std::vector<double> data(3000, 1.0);
                                const auto begin = Clock::now();
                                Status status = all.all_reduce(exec::view(data), ReduceOp::sum);
                                EXPECT_LT(Clock::now() - begin, 20s);
                                if (++done == 2) others_are_done = true;
                                return status;
                            },
                            {.timeout = 100ms});
        ASSERT_FALSE(outcome.status()) << choice.name;
        const Error error = outcome.status().error();
        EXPECT_TRUE(has(error.where, "all_reduce on world (")) << to_text(error);
        EXPECT_TRUE(has(error.what, "did not get through within 0.1 s")) << to_text(error);
    }
}

TEST(Failure, OfASilentRankIsNamedByEveryOperation) {
    struct Operation {
        std::string name;
        std::function<Status(Communicator&, exec::View, exec::View)> call;
    };
    const auto third = [](exec::View whole) {
        return exec::View{whole.data, whole.count / 3, whole.scalar};
    };
    const Operation operations[] = {
        {"all_gather",
         [&](auto& all, auto in, auto out) { return all.all_gather(third(in), out); }},
        {"reduce_scatter",
         [&](auto& all, auto in, auto out) {
             return all.reduce_scatter(in, third(out), ReduceOp::sum);
         }},
        {"broadcast", [](auto& all, auto in, auto) { return all.broadcast(in, 1); }},
        {"reduce",
         [](auto& all, auto in, auto out) { return all.reduce(in, out, ReduceOp::sum, 0); }},
        {"all_to_all", [](auto& all, auto in, auto out) { return all.all_to_all(in, out); }},
        {"barrier", [](auto& all, auto, auto) { return all.barrier(); }},
        {"split",
         [](auto& all, auto, auto) -> Status {
             auto part = all.split(0, 0, "tp");
             return part ? Status(Done{}) : Status(part.error());
         }},
    };
    for (const Operation& operation : operations) {
        SCOPED_TRACE(operation.name);
        std::atomic<bool> is_over = false;
        const auto body = [&](Communicator& all) -> Status {
            if (all.rank() == 1) {
                while (!is_over)
                    std::this_thread::sleep_for(1ms);
                return Done{};
            }
            std::vector<double> in(3000, 1.0);
            std::vector<double> out(3000);
            Status status = operation.call(all, exec::view(in), exec::view(out));
            if (all.rank() == 0) is_over = true;
            return status;
        };
        const auto outcome = exec::run_ranks(3, body, {.timeout = 100ms});
        ASSERT_FALSE(outcome.ranks[0]);
        const Error error = outcome.ranks[0].error();
        EXPECT_TRUE(has(error.where, "rank 0, " + operation.name + " on world")) << to_text(error);
        EXPECT_TRUE(has(error.what, "bytes from rank ") || has(error.what, "bytes to rank "))
            << to_text(error);
        EXPECT_TRUE(has(error.what, "did not get through within 0.1 s")) << to_text(error);
    }
}

TEST(Failure, OfAMessageNamesBothEndsAndItsSize) {
    const auto outcome = exec::run_ranks(2,
                                         [](Communicator& all) -> Status {
                                             std::vector<float> data(10);
                                             if (all.rank() == 0)
                                                 return all.receive(exec::view(data), 1, 3);
                                             std::this_thread::sleep_for(300ms);
                                             return Done{};
                                         },
                                         {.timeout = 50ms});
    ASSERT_FALSE(outcome.ranks[0]);
    EXPECT_EQ(outcome.ranks[0].error().where, "rank 0, receive on world");
    EXPECT_EQ(outcome.ranks[0].error().what,
              "40 bytes from rank 1 did not get through within 0.05 s");
}

TEST(Failure, OfOneCallIsRepeatedByAllLaterOnesOnTheCommunicator) {
    const auto outcome = exec::run_ranks(2,
                                         [](Communicator& all) -> Status {
                                             if (all.rank() == 1) {
                                                 std::this_thread::sleep_for(300ms);
                                                 return Done{};
                                             }
                                             const Status first = all.barrier();
                                             EXPECT_FALSE(first);
                                             std::vector<double> data(4);
                                             const Status second =
                                                 all.all_reduce(exec::view(data), ReduceOp::sum);
                                             EXPECT_FALSE(second);
                                             EXPECT_EQ(first.error(), second.error());
                                             return first;
                                         },
                                         {.timeout = 50ms});
    EXPECT_EQ(outcome.first_failed, 0);
}

TEST(Failure, DifferentSizesAtTheTwoEndsAreNamed) {
    const auto outcome = exec::run_ranks(2, [](Communicator& all) -> Status {
        std::vector<std::int32_t> data(all.rank() == 0 ? 3 : 2);
        return all.rank() == 0 ? all.send(exec::const_view(data), 1)
                               : all.receive(exec::view(data), 0);
    });
    ASSERT_FALSE(outcome.ranks[1]);
    EXPECT_TRUE(has(outcome.ranks[1].error().what, "8 bytes from rank 0"));
    EXPECT_TRUE(has(outcome.ranks[1].error().what, "rank 0 sent 12 bytes"));
}

/// Sleeps at random before messages start and before they are waited for.
class SlowEndpoint final : public Endpoint {
public:
    SlowEndpoint(std::shared_ptr<Endpoint> inner, std::uint64_t seed)
        : inner_(std::move(inner)), random_(seed + static_cast<std::uint64_t>(inner_->rank())) {}

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    std::unique_ptr<exec::Pending> send(int to, exec::Channel channel,
                                        std::span<const std::byte> data) override {
        pause();
        return inner_->send(to, channel, data);
    }
    std::unique_ptr<exec::Pending> receive(int from, exec::Channel channel,
                                           std::span<std::byte> data) override {
        pause();
        return inner_->receive(from, channel, data);
    }
    void stop(const std::string& reason) override { inner_->stop(reason); }
    [[nodiscard]] std::uint32_t last_context() const override { return inner_->last_context(); }
    void met(std::uint32_t context) override { inner_->met(context); }
    std::unique_ptr<exec::GroupLibrary> library_for(const std::vector<int>& ranks,
                                                    std::uint32_t context) override {
        return inner_->library_for(ranks, context);
    }

private:
    void pause() {
        const std::uint64_t dice = random_();
        if (dice % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice / 4 % 300));
        if (dice % 4 == 1) std::this_thread::yield();
    }
    std::shared_ptr<Endpoint> inner_;
    std::mt19937_64 random_;
};

TEST(Delays, ChangeNoResult) {
    for (const int ranks : {2, 3, 4}) {
        for (const std::uint64_t seed : {11U, 22U}) {
            const auto outcome =
                exec::run_ranks(ranks,
                                [](Communicator& all) -> Status {
                                    if (Status status = check_messages(all); !status) return status;
                                    if (Status status = check_splits(all); !status) return status;
                                    return check_determinism(all);
                                },
                                {.wrap = [&](std::shared_ptr<Endpoint> inner) {
                                    return std::make_shared<SlowEndpoint>(std::move(inner), seed);
                                }});
            EXPECT_TRUE(outcome.status()) << to_text(outcome.status().error());
        }
    }
}

TEST(Delays, WithARankThatFailsAtARandomMomentNeverHang) {
    std::mt19937 random(7);
    for (int trial = 0; trial < 60; ++trial) {
        const int ranks = 2 + trial % 4;
        const int bad = static_cast<int>(random() % static_cast<unsigned>(ranks));
        const int round = static_cast<int>(random() % 6);
        const auto choices = choices_for(ranks);
        const NamedChoice& choice = choices[random() % choices.size()];
        const std::uint64_t seed = random();
        const auto begin = Clock::now();
        const auto outcome = exec::run_ranks(
            ranks,
            [&](Communicator& all) -> Status {
                if (Status status = all.set_choice(choice.choice); !status) return status;
                std::vector<double> data(20000, 1.0);
                std::vector<double> part(20000 / static_cast<std::size_t>(ranks));
                data.resize(part.size() * static_cast<std::size_t>(ranks));
                for (int i = 0; i < 6; ++i) {
                    if (all.rank() == bad && i == round) return disk_is_full();
                    Status status = all.all_reduce(exec::view(data), ReduceOp::max);
                    if (status) {
                        status = all.reduce_scatter(exec::const_view(data), exec::view(part),
                                                    ReduceOp::max);
                    }
                    if (status) status = all.all_gather(exec::const_view(part), exec::view(data));
                    if (status) status = all.broadcast(exec::view(data), i % ranks);
                    if (status) status = all.barrier();
                    if (!status) return status;
                }
                return Done{};
            },
            {.timeout = 60s, .wrap = [&](std::shared_ptr<Endpoint> inner) {
                 return std::make_shared<SlowEndpoint>(std::move(inner), seed);
             }});
        ASSERT_LT(Clock::now() - begin, 30s);
        ASSERT_EQ(outcome.first_failed, bad) << choice.name;
        for (const Status& status : outcome.ranks) {
            ASSERT_FALSE(status) << choice.name;
            EXPECT_TRUE(has(status.error().what, "the disk is full")) << to_text(status.error());
        }
    }
}

} // namespace
} // namespace shardplan::test
