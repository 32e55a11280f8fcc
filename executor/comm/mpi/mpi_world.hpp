#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "executor/comm/communicator.hpp"

namespace shardplan::exec {

struct MpiOptions {
    std::chrono::nanoseconds timeout = std::chrono::minutes(5);
    /// A message goes out in parts of at most this size: MPI counts in 32 bits.
    std::size_t largest_part = std::size_t{1} << 30U;
};

/// The ranks that mpirun or srun started, this process being one; made once per process.
class MpiWorld {
public:
    /// Errors: MPI does not start, or offers too few tags.
    static Result<std::unique_ptr<MpiWorld>> start(const MpiOptions& options = {});
    /// Call `finish` first.
    ~MpiWorld();
    MpiWorld(const MpiWorld&) = delete;
    MpiWorld& operator=(const MpiWorld&) = delete;

    [[nodiscard]] Communicator& world() const { return *world_; }

    /// Ends the run on this rank. After success it waits for all others, within the time-out, and
    /// returns. After a failure, of the body or of that wait, it tells the others, gives them a
    /// moment to say what they saw, and ends all processes with exit code 3. No other communicator
    /// may be in use.
    void finish(const Status& outcome);

private:
    struct State;
    explicit MpiWorld(std::shared_ptr<State> state);

    std::shared_ptr<State> state_;
    std::unique_ptr<Communicator> world_;
};

} // namespace shardplan::exec
