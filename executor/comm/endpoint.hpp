#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/scalar.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

using Deadline = std::chrono::steady_clock::time_point;

/// Which messages belong together: those of one context (a communicator's) and tag, in the order
/// sent.
struct Channel {
    std::uint32_t context = 0;
    int tag = 0;

    friend bool operator==(Channel, Channel) = default;
};
/// Tags of users run from 0 to max_tag; collectives have one of their own.
inline constexpr int max_tag = 1022;
inline constexpr int collective_tag = 1023;
/// Contexts a world can hand out, so that context and tag fit into the tag of an MPI message.
inline constexpr std::uint32_t max_context = (1U << 20U) - 1;

/// How waiting for a message ended.
struct Outcome {
    enum class State : std::uint8_t { done, pending, failed };
    State state = State::done;
    std::string why; ///< of a failure, as a clause: "rank 1 stopped: out of memory"
};

/// What a rank announces that stops because `peer` did for that reason: the first rank's reason,
/// however many stand between.
std::string because_of(int peer, const std::string& reason);

/// A message under way. Its buffer belongs to it until the outcome is `done` or it is destroyed.
class Pending {
public:
    Pending() = default;
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    /// Takes back a message that has not gone.
    virtual ~Pending() = default;
    /// Returns when the message is done, when it never will be, or at the deadline, as `pending`.
    /// A deadline in the past asks and does not wait.
    virtual Outcome wait_until(Deadline deadline) = 0;
};

/// Collectives that a communication library brings along, for the ranks of one communicator.
/// Buffers as in Communicator.
class GroupLibrary {
public:
    GroupLibrary() = default;
    GroupLibrary(const GroupLibrary&) = delete;
    GroupLibrary& operator=(const GroupLibrary&) = delete;
    virtual ~GroupLibrary() = default;

    /// Of the whole buffer; larger ones are left to algorithms of our own.
    [[nodiscard]] virtual std::int64_t most_bytes() const = 0;
    virtual std::unique_ptr<Pending> all_reduce(View data, ReduceOp op) = 0;
    virtual std::unique_ptr<Pending> all_gather(ConstView own, View all) = 0;
    virtual std::unique_ptr<Pending> reduce_scatter(ConstView all, View own, ReduceOp op) = 0;
    virtual std::unique_ptr<Pending> broadcast(View data, int root) = 0;
    virtual std::unique_ptr<Pending> reduce(ConstView in, View out, ReduceOp op, int root) = 0;
};

/// One rank's way to all others of its world: what a back end provides. Messages between two ranks
/// in one channel arrive in the order sent, and sizes of both ends must agree. May be used by
/// several threads of the rank, each in a context of its own.
class Endpoint {
public:
    Endpoint() = default;
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    virtual ~Endpoint() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    virtual std::unique_ptr<Pending> send(int to, Channel channel,
                                          std::span<const std::byte> data) = 0;
    virtual std::unique_ptr<Pending> receive(int from, Channel channel,
                                             std::span<std::byte> data) = 0;

    /// Tells all others that this rank takes part no more, so that whoever waits for it fails now.
    /// If another's stop was seen here before, that is the reason told.
    virtual void stop(const std::string& reason) = 0;

    /// The largest context this rank has met; `met` raises it.
    [[nodiscard]] virtual std::uint32_t last_context() const = 0;
    virtual void met(std::uint32_t context) = 0;

    /// The library's own collectives for these ranks, or null. Every one of them calls it at the
    /// same time.
    virtual std::unique_ptr<GroupLibrary> library_for(const std::vector<int>& ranks,
                                                      std::uint32_t context) = 0;
};

} // namespace shardplan::exec
