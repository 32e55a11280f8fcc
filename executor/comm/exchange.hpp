#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

/// Why a message did not get through: who waited in which call for how many bytes from or to whom.
/// Ranks are those of the world.
Error message_error(const CommCall& call, std::chrono::nanoseconds timeout, int rank, int peer,
                    bool is_send, std::int64_t bytes, const Outcome& outcome);

/// Elements of a piece of a buffer that travel at once where a step needs scratch memory: scratch
/// stays in the second cache, and takes no part of the buffer's size.
inline constexpr std::size_t segment_bytes = 256 * 1024;

/// The steps of one collective on one rank, over messages. Peers are positions among the ranks that
/// take part. Empty messages are not sent: both ends know that there is nothing to say.
class Exchange {
public:
    struct Setting {
        Endpoint& endpoint;
        Channel channel;
        CommCall call;
        std::chrono::nanoseconds timeout;
        Deadline deadline;
        Traffic& traffic;
    };
    Exchange(const Setting& setting, std::vector<int> world_ranks, int rank)
        : setting_(&setting), ranks_(std::move(world_ranks)), rank_(rank) {}

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
    /// The position `steps` further on, past the end from the start again; steps >= -size().
    [[nodiscard]] int neighbour(int steps) const { return (rank_ + steps + size()) % size(); }

    /// A message that has been started and is to be waited for.
    struct Started {
        std::unique_ptr<Pending> pending; ///< null: was empty
        int peer = 0;
        bool is_send = false;
        std::size_t bytes = 0;
    };
    Started start_send(int to, std::span<const std::byte> data);
    Started start_receive(int from, std::span<std::byte> data);
    Status finish(Started& started);
    Status finish(std::vector<Started>& started);

    Status send(int to, std::span<const std::byte> data);
    Status receive(int from, std::span<std::byte> data);
    /// Both at once.
    Status send_receive(int to, std::span<const std::byte> out, int from, std::span<std::byte> in);
    /// A message of no bytes each way, which does travel.
    Status signal(int to, int from);

    /// The same call among some of the ranks, this one included.
    [[nodiscard]] Exchange among(const std::vector<int>& positions) const;

private:
    const Setting* setting_;
    std::vector<int> ranks_;
    int rank_;
};

} // namespace shardplan::exec
