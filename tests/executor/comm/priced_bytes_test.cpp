#include <algorithm>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "executor/comm/threads.hpp"
#include "simulator/network/group_path.hpp"

namespace shardplan::test {
namespace {

using exec::Communicator;
using exec::Status;
using sim::Algorithm;
using sim::Collective;

/// Elements of one byte each, enough for several segments, which all numbers of ranks below divide.
constexpr std::int64_t count = 840 * 1024;

/// Bytes of the rank that sends most.
double most_sent(int ranks, Algorithm algorithm, Collective op, int servers) {
    double most = 0.0;
    std::mutex mutex;
    const auto outcome = exec::run_ranks(ranks, [&](Communicator& all) -> Status {
        if (Status s = all.set_choice({.algorithm = algorithm, .servers = servers}); !s) return s;
        std::vector<std::uint8_t> data(static_cast<std::size_t>(count));
        std::vector<std::uint8_t> other(data.size());
        const exec::View whole = exec::view(data);
        const exec::View own = {data.data() + all.rank() * (count / ranks), count / ranks,
                                exec::Scalar::byte};
        const int next = (all.rank() + 1) % ranks;
        Status status = sim::Done{};
        switch (op) {
            case Collective::all_reduce:
                status = all.all_reduce(whole, exec::ReduceOp::sum);
                break;
            case Collective::all_gather:
                status = all.all_gather(own, whole);
                break;
            case Collective::reduce_scatter:
                status = all.reduce_scatter(whole, own, exec::ReduceOp::sum);
                break;
            case Collective::all_to_all:
                status = all.all_to_all(whole, exec::view(other));
                break;
            case Collective::broadcast:
                status = all.broadcast(whole, 0);
                break;
            case Collective::reduce:
                status = all.reduce(whole, exec::view(other), exec::ReduceOp::sum, 0);
                break;
            case Collective::send_recv: {
                auto sent = all.start_send(whole, next);
                if (!sent) return sent.error();
                if (Status s = all.receive(exec::view(other), (next + ranks - 2) % ranks); !s)
                    return s;
                status = all.wait(*sent);
                break;
            }
        }
        const std::lock_guard lock(mutex);
        most = std::max(most, static_cast<double>(all.traffic().sent));
        return status;
    });
    EXPECT_TRUE(outcome.status());
    return most;
}

/// Ranks behind one switch.
sim::GroupPath path_by(int ranks, Algorithm algorithm, int servers) {
    sim::GroupPath path;
    path.ranks = ranks;
    sim::PathLevel level;
    level.members = ranks;
    level.per_rank = level.per_link = sim::Bandwidth(1.0);
    path.levels = {level};
    path.algorithms = 1U << static_cast<unsigned>(algorithm);
    path.protocols = 1U << static_cast<unsigned>(sim::Protocol::simple);
    path.servers = servers;
    return path;
}

/// Bytes for which the cost model asks of the rank with the most to do: seconds at one byte each.
double priced(int ranks, Algorithm algorithm, Collective op, int servers) {
    const sim::GroupPath path = path_by(ranks, algorithm, servers);
    return sim::collective_time(path, op, sim::Bytes(static_cast<double>(count))).value();
}

/// `least`: share of what is priced that has to be sent.
void expect_priced(int ranks, Algorithm algorithm, Collective op, double least, int servers = 1) {
    SCOPED_TRACE(std::string(sim::name_of(algorithm)) + ", " + std::string(sim::name_of(op)) +
                 " of " + std::to_string(ranks));
    const double sent = most_sent(ranks, algorithm, op, servers);
    const double want = priced(ranks, algorithm, op, servers);
    EXPECT_LE(sent, want * 1.0001);
    EXPECT_GE(sent, want * least * 0.9999);
}

TEST(PricedBytes, OfRingsAndTheirKindAreWhatTheBusiestRankSends) {
    for (const int ranks : {2, 3, 4, 6, 8}) {
        for (const Algorithm a : {Algorithm::ring, Algorithm::hierarchical, Algorithm::torus_2d}) {
            for (const Collective op : {Collective::all_reduce, Collective::all_gather,
                                        Collective::reduce_scatter, Collective::all_to_all}) {
                expect_priced(ranks, a, op, 1.0);
            }
        }
        for (const Collective op :
             {Collective::broadcast, Collective::reduce, Collective::send_recv}) {
            expect_priced(ranks, Algorithm::ring, op, 1.0);
        }
    }
}

TEST(PricedBytes, OfATreeAreWhatARankWithTwoChildrenSends) {
    for (const int ranks : {3, 4, 5, 6, 7, 8}) {
        // of three ranks nobody has two children
        expect_priced(ranks, Algorithm::tree, Collective::all_reduce, ranks > 3 ? 1.0 : 0.75);
    }
    // up and down cross the same link both ways at once, and of two each is the root of one tree
    expect_priced(2, Algorithm::tree, Collective::all_reduce, 0.5);
}

TEST(PricedBytes, OfHalvingAndDoublingAreThoseOfPowersOfTwo) {
    for (const int ranks : {2, 4, 8}) {
        expect_priced(ranks, Algorithm::halving_doubling, Collective::all_reduce, 1.0);
    }
    // beyond, a rank takes over another's data and returns the result: half of that it receives
    for (const int ranks : {3, 5, 6, 7}) {
        expect_priced(ranks, Algorithm::halving_doubling, Collective::all_reduce, 0.5);
    }
}

TEST(PricedBytes, OfServersAreWhatWorkersBesideThemPushAndPull) {
    for (const int ranks : {2, 4, 8}) {
        for (const int servers : {1, 2}) {
            // pushed to a server, and pulled from it: those of its own rank stay where they are
            const double own = 1.0 / ranks;
            expect_priced(ranks, Algorithm::parameter_server, Collective::all_reduce,
                          (1.0 - own) / 2.0, servers);
        }
    }
}

TEST(PricedBytes, ArePartOfEveryEstimateAsBytesSent) {
    for (const int ranks : {2, 3, 8}) {
        for (const Collective op :
             {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
              Collective::all_to_all, Collective::broadcast, Collective::send_recv}) {
            const sim::GroupPath path = path_by(ranks, Algorithm::ring, 1);
            EXPECT_NEAR(
                most_sent(ranks, Algorithm::ring, op, 1),
                sim::sent_per_rank(path, op, sim::Bytes(static_cast<double>(count))).value(), 1.0);
        }
    }
}

} // namespace
} // namespace shardplan::test
