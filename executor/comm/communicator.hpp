#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/comm/endpoint.hpp"
#include "executor/comm/scalar.hpp"
#include "simulator/spec/comm_policy.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

using sim::Error;
using sim::ErrorCode;
using sim::Result;
using sim::Status;

/// One call as hooks see it.
struct CommCall {
    std::string_view operation; ///< "all_reduce", "send"
    std::string_view group;     ///< name of the communicator: "tp"
    std::string_view algorithm; ///< "ring", "library"; empty for messages
    std::int64_t bytes = 0;     ///< of the whole buffer, as sim::CommOp counts it
    int peer = -1;              ///< rank in the communicator: other end of a message, or root
};

/// Called on the thread of the rank as a call begins and ends; what they do counts into its time.
struct CommHooks {
    std::function<void(const CommCall&)> begin;
    std::function<void(const CommCall&, bool succeeded)> end;
};

/// What went over one communicator, as this rank saw it.
struct Traffic {
    std::int64_t sent = 0;     ///< bytes in messages of ours
    std::int64_t received = 0; ///< likewise
    std::int64_t messages = 0; ///< sent
    /// Bytes of the buffers of collectives done by a library, which does not say what it sends.
    std::int64_t through_library = 0;
};

/// How collectives are done.
struct CollectiveChoice {
    /// Empty: by the library of the back end; without one, by size: a tree for small messages, a
    /// ring for others. An algorithm that cannot do a collective leaves it to the ring. Those of a
    /// reducing switch, and PAT, are refused.
    std::optional<sim::Algorithm> algorithm = std::nullopt;
    /// False: without an algorithm by size, even where the back end has a library.
    bool library = true;
    /// Adds in the order of ranks, each element on one rank: the same bits whatever the number of
    /// elements or the back end. Goes before `algorithm` where something is added.
    bool rank_order = false;
    int servers = 1; ///< of a parameter server: ranks 0 to servers - 1
    /// Ranks of a unit of each tier, innermost first, for hierarchical and torus_2d; the product is
    /// the size of the communicator. Empty: the squarest split in two.
    std::vector<int> tiers = {};
};

/// A message of `start_send` or `start_receive`. Destroyed unfinished, it is taken back.
class Request {
public:
    Request() = default;

private:
    friend class Communicator;
    std::unique_ptr<Pending> pending_;
    bool is_send_ = false;
    int peer_ = -1;
    std::int64_t bytes_ = 0;
};

/// Ranks that talk to one another. Calls return within the time-out; their errors name rank,
/// operation and peer. After a failed call the others may be out of step, so every further call on
/// the same communicator repeats its error, and buffers of calls that failed must outlive it. One
/// thread at a time; other communicators of the rank may be used at the same time by others.
class Communicator {
public:
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
    /// Rank in the world of each member.
    [[nodiscard]] const std::vector<int>& world_ranks() const { return ranks_; }
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const Traffic& traffic() const { return traffic_; }

    /// Of every call from now on. Sub-communicators made later take over all three.
    void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
    void set_hooks(CommHooks hooks) { hooks_ = std::move(hooks); }
    /// Errors: an algorithm that needs a switch, tiers or servers that do not fit the size.
    Status set_choice(CollectiveChoice choice);
    [[nodiscard]] const CollectiveChoice& choice() const { return choice_; }

    // --- messages ------------------------------------------------------------------------------

    /// `tag`: 0 to max_tag. A send may last until the other end receives.
    Status send(ConstView data, int to, int tag = 0);
    Status receive(View data, int from, int tag = 0);
    /// The buffer is left alone until `wait` succeeds or `test` gives true.
    Result<Request> start_send(ConstView data, int to, int tag = 0);
    Result<Request> start_receive(View data, int from, int tag = 0);
    Status wait(Request& request);
    Result<bool> test(Request& request);

    // --- collectives: every member calls the same one, with the same counts ----------------------

    /// Leaves op over all ranks' data in everyone's.
    Status all_reduce(View data, ReduceOp op);
    /// `all`: size() x own.count elements, own ones of rank r at r x own.count. `own` may lie
    /// there.
    Status all_gather(ConstView own, View all);
    /// `own`: of the result of `all` (size() x own.count) the part of this rank. May lie in `all`.
    Status reduce_scatter(ConstView all, View own, ReduceOp op);
    Status broadcast(View data, int root);
    /// `out` is written on the root alone, and may be `in`.
    Status reduce(ConstView in, View out, ReduceOp op, int root);
    /// The r-th of size() equal parts of `in` goes to rank r.
    Status all_to_all(ConstView in, View out);
    /// `counts_in[r]` elements go to rank r, `counts_out[r]` come from it; parts lie in rank order.
    Status all_to_all_v(ConstView in, std::span<const std::int64_t> counts_in, View out,
                        std::span<const std::int64_t> counts_out);
    Status barrier();

    /// Every member calls it. Members of one colour form a communicator, in the order of keys, then
    /// ranks. `name` stands in errors and spans: the dimension.
    Result<std::unique_ptr<Communicator>> split(int colour, int key, std::string name);

    /// Tells every rank of the world that this one takes part no more.
    virtual void stop(const std::string& reason) = 0;

protected:
    /// What every step of one call needs to know.
    struct Call {
        CommCall seen;
        std::chrono::nanoseconds timeout{};
        Deadline deadline;
    };

    Communicator(std::vector<int> ranks, int rank, std::string name)
        : ranks_(std::move(ranks)), rank_(rank), name_(std::move(name)) {}

    virtual std::unique_ptr<Pending> do_send(std::span<const std::byte> data, int to, int tag) = 0;
    virtual std::unique_ptr<Pending> do_receive(std::span<std::byte> data, int from, int tag) = 0;
    virtual Status do_all_reduce(const Call& call, View data, ReduceOp op) = 0;
    virtual Status do_all_gather(const Call& call, ConstView own, View all) = 0;
    virtual Status do_reduce_scatter(const Call& call, ConstView all, View own, ReduceOp op) = 0;
    virtual Status do_broadcast(const Call& call, View data, int root) = 0;
    virtual Status do_reduce(const Call& call, ConstView in, View out, ReduceOp op, int root) = 0;
    virtual Status do_all_to_all_v(const Call& call, ConstView in,
                                   std::span<const std::int64_t> counts_in, View out,
                                   std::span<const std::int64_t> counts_out) = 0;
    virtual Status do_barrier(const Call& call) = 0;
    virtual Result<std::unique_ptr<Communicator>> do_split(const Call& call, int colour, int key,
                                                           std::string name) = 0;
    /// "ring", "library": what does a collective of this many bytes.
    [[nodiscard]] virtual std::string_view algorithm_for(std::string_view operation,
                                                         std::int64_t bytes) const = 0;

    Traffic traffic_;

private:
    template <class F>
    Status run(CommCall seen, F&& work);
    [[nodiscard]] Error refusal(std::string_view operation, std::string what,
                                std::string hint) const;
    [[nodiscard]] std::optional<Error> check_peer(std::string_view operation, int peer) const;
    [[nodiscard]] std::optional<Error> check_message(std::string_view operation, ConstView data,
                                                     int peer, int tag) const;
    [[nodiscard]] std::optional<Error> check_parts(std::string_view operation, ConstView own,
                                                   ConstView all) const;
    [[nodiscard]] CommCall collective(std::string_view operation, ConstView data,
                                      int root = -1) const;
    Status settle(Request& request, Deadline deadline, bool& done);

    std::vector<int> ranks_;
    int rank_ = 0;
    std::string name_;
    std::chrono::nanoseconds timeout_ = std::chrono::minutes(5);
    CommHooks hooks_;
    CollectiveChoice choice_;
    std::optional<Error> broken_;
};

} // namespace shardplan::exec
