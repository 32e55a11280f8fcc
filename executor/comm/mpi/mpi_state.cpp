#include "executor/comm/mpi/mpi_state.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "executor/comm/spin.hpp"

namespace shardplan::exec {

namespace {

/// A rank that waits tries again at once for this long, then rests between tries.
constexpr std::chrono::microseconds eager_time{50};
constexpr std::chrono::microseconds rest{20};
/// Tries between two looks at what others have announced.
constexpr int tries_per_listening = 64;
/// How long a receive that is taken back may still be in the hands of MPI.
constexpr std::chrono::seconds cancel_time{1};

constexpr std::size_t longest_reason = 1000;

} // namespace

std::string mpi_error_text(int code) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
        return fmt::format("MPI error {}", code);
    }
    return {text.data(), static_cast<std::size_t>(length)};
}

MpiState::MpiState(std::size_t largest_part) : largest_part_(largest_part) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &messages_);
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    reasons_.resize(static_cast<std::size_t>(size_));
}

void MpiState::announce_stop(const std::string& reason) {
    {
        const std::lock_guard lock(mutex_);
        if (!own_reason_.empty()) return;
        own_reason_ = (heard_.empty() ? reason : heard_).substr(0, longest_reason);
    }
    for (int to = 0; to < size_; ++to) {
        if (to == rank_) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = MPI_Isend(own_reason_.data(), static_cast<int>(own_reason_.size()),
                                   MPI_CHAR, to, 0, control_, &request);
        if (code == MPI_SUCCESS) MPI_Request_free(&request); // the text lives on in this object
    }
}

void MpiState::listen() {
    const std::lock_guard lock(mutex_);
    for (;;) {
        int found = 0;
        MPI_Status status;
        const int code = MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &found, &status);
        if (code != MPI_SUCCESS || found == 0) return;
        int length = 0;
        MPI_Get_count(&status, MPI_CHAR, &length);
        std::string reason(static_cast<std::size_t>(length), ' ');
        MPI_Recv(reason.data(), length, MPI_CHAR, status.MPI_SOURCE, 0, control_,
                 MPI_STATUS_IGNORE);
        reasons_[static_cast<std::size_t>(status.MPI_SOURCE)] = std::move(reason);
    }
}

std::optional<std::string> MpiState::reason_of(int rank) {
    const std::lock_guard lock(mutex_);
    const auto& reason = reasons_[static_cast<std::size_t>(rank)];
    if (reason && heard_.empty()) heard_ = because_of(rank, *reason);
    return reason;
}

int MpiState::stopped_ranks() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(reasons_.begin(), reasons_.end(),
                                          [](const auto& reason) { return reason.has_value(); }));
}

void MpiPending::add(int code, MPI_Request request, std::int64_t expected) {
    if (code != MPI_SUCCESS) {
        failure_ = mpi_error_text(code);
        return;
    }
    parts_.push_back({request, expected});
}

bool MpiPending::all_done() {
    bool all = true;
    for (Part& part : parts_) {
        if (part.request == MPI_REQUEST_NULL) continue;
        int done = 0;
        MPI_Status status;
        const int code = MPI_Test(&part.request, &done, &status);
        if (code != MPI_SUCCESS) {
            failure_ = mpi_error_text(code);
            part.request = MPI_REQUEST_NULL;
        } else if (done == 0) {
            all = false;
        } else if (part.expected >= 0) {
            MPI_Count got = 0;
            MPI_Get_elements_x(&status, MPI_BYTE, &got);
            if (got != part.expected) {
                failure_ =
                    fmt::format("{} bytes came instead of {}", std::int64_t{got}, part.expected);
            }
        }
    }
    return all;
}

std::optional<std::string> MpiPending::stopped_peer() {
    for (const int peer : peers_) {
        if (auto reason = state_->reason_of(peer)) {
            return fmt::format("rank {} {}", peer, *reason);
        }
    }
    return std::nullopt;
}

Outcome MpiPending::wait_until(Deadline deadline) {
    const Deadline begin = std::chrono::steady_clock::now();
    for (int tries = 1;; ++tries) {
        const bool done = all_done();
        if (!failure_.empty()) return {Outcome::State::failed, failure_};
        if (done) return {};
        const Deadline now = std::chrono::steady_clock::now();
        const bool is_late = now >= deadline;
        if (is_late || tries % tries_per_listening == 0) {
            state_->listen();
            if (auto why = stopped_peer()) {
                // What it sent before it stopped may have come in between.
                if (all_done() && failure_.empty()) return {};
                return {Outcome::State::failed, failure_.empty() ? *why : failure_};
            }
        }
        if (is_late) return {Outcome::State::pending, {}};
        if (now - begin > eager_time) {
            std::this_thread::sleep_for(rest);
        } else {
            spin_once();
        }
    }
}

MpiPending::~MpiPending() {
    if (is_collective_) return; // cannot be taken back, and the run is at its end
    const Deadline limit = std::chrono::steady_clock::now() + cancel_time;
    for (Part& part : parts_) {
        if (part.request == MPI_REQUEST_NULL) continue;
        if (part.expected < 0) { // MPI knows no way back for a send
            MPI_Request_free(&part.request);
            continue;
        }
        MPI_Cancel(&part.request);
        int done = 0;
        while (done == 0 && std::chrono::steady_clock::now() < limit) {
            if (MPI_Test(&part.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
        }
    }
}

} // namespace shardplan::exec
