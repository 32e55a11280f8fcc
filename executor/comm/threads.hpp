#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/endpoint.hpp"

namespace shardplan::exec {

/// Endpoints of `ranks` ranks in this process, by shared memory; one thread each. Messages of up to
/// a few KiB wait in the mailbox of the receiver, larger ones are copied once, from buffer to
/// buffer, by whichever end comes second.
std::vector<std::shared_ptr<Endpoint>> thread_endpoints(int ranks);

struct RunOptions {
    std::chrono::nanoseconds timeout = std::chrono::minutes(5);
    /// Puts something between a rank and its endpoint; empty: nothing.
    std::function<std::shared_ptr<Endpoint>(std::shared_ptr<Endpoint>)> wrap = {};
};

/// How the ranks of a run ended.
struct RunOutcome {
    std::vector<Status> ranks;
    std::optional<int> first_failed; ///< the first in time: others may have failed for its sake

    /// Success, or the error of the rank that failed first.
    [[nodiscard]] Status status() const;
};

/// Runs `body` on `ranks` threads, each with its communicator of all, until all have returned. A
/// rank whose body fails or throws stops: ranks that wait for it fail at once and say why.
RunOutcome run_ranks(int ranks, const std::function<Status(Communicator&)>& body,
                     const RunOptions& options = {});

} // namespace shardplan::exec
