#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

/// What all messages of one process share.
class MpiState {
public:
    /// Duplicates MPI_COMM_WORLD, which every rank does at the same time.
    explicit MpiState(std::size_t largest_part);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] MPI_Comm messages() const { return messages_; }
    [[nodiscard]] std::size_t largest_part() const { return largest_part_; }

    /// Tells all others that this rank stopped; returns without waiting for them.
    void announce_stop(const std::string& reason);
    /// Takes in what others have announced.
    void listen();
    /// Why a rank stopped, if it has said so; then this rank will give the same reason.
    [[nodiscard]] std::optional<std::string> reason_of(int rank);
    [[nodiscard]] int stopped_ranks();

    std::atomic<std::uint32_t> last_context = 0;

private:
    MPI_Comm messages_ = MPI_COMM_NULL;
    MPI_Comm control_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    std::size_t largest_part_;

    std::mutex mutex_; ///< of what follows
    std::vector<std::optional<std::string>> reasons_;
    std::string own_reason_;
    std::string heard_;
};

/// The text of an MPI error code.
std::string mpi_error_text(int code);

/// One or several requests that are one message or collective of ours.
class MpiPending final : public Pending {
public:
    /// `peers`: ranks whose end is the end of this. `is_collective`: requests that MPI does not
    /// let go of.
    MpiPending(std::shared_ptr<MpiState> state, std::vector<int> peers, bool is_collective)
        : state_(std::move(state)), peers_(std::move(peers)), is_collective_(is_collective) {}
    ~MpiPending() override;
    /// `code`: of the call that made the request. `expected`: bytes to be received, or -1.
    void add(int code, MPI_Request request, std::int64_t expected);
    /// Memory that must live as long as the requests.
    void keep(std::vector<std::byte> memory) { memory_ = std::move(memory); }

    Outcome wait_until(Deadline deadline) override;

private:
    struct Part {
        MPI_Request request = MPI_REQUEST_NULL;
        std::int64_t expected = -1;
    };
    /// True if all parts are done; `failure_` says what went wrong.
    bool all_done();
    [[nodiscard]] std::optional<std::string> stopped_peer();

    std::shared_ptr<MpiState> state_;
    std::vector<int> peers_;
    bool is_collective_;
    std::vector<Part> parts_;
    std::vector<std::byte> memory_;
    std::string failure_;
};

/// MPI's own collectives for some ranks, all of which call this at the same time.
std::unique_ptr<GroupLibrary> mpi_library(const std::shared_ptr<MpiState>& state,
                                          const std::vector<int>& ranks, std::uint32_t context);

} // namespace shardplan::exec
