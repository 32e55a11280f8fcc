#pragma once

#include <cstdint>

#include "executor/comm/communicator.hpp"

/// How ranks take turns while operators are measured. Private to executor/run.
namespace shardplan::exec {

/// As many ranks of a machine compute at once as it has processors for; the others wait. What was
/// measured so is what a rank does that has a processor to itself.
struct Turns {
    std::int64_t processors = 1; ///< ranks that a machine computes with at once; the fewest of all
    std::int64_t count = 1;      ///< until every rank has had its turn
    std::int64_t own = 0;        ///< of this rank, counted from 0
    std::int64_t nodes = 1;      ///< by name
    std::int64_t machines = 1;   ///< by what their kernels say of themselves
};

/// Every rank calls it. A machine has a processor for every `threads` cores that its ranks may run
/// on, and at least one. Errors: those of the communicator.
Result<Turns> turns_of(Communicator& world, int threads);

} // namespace shardplan::exec
