#pragma once

#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "simulator/engine/measurement.hpp"

/// What ranks tell one another about themselves around a run.
namespace shardplan::exec {

/// This machine's name.
std::string host_name();
/// A rank's steady clock against that of rank 0.
struct ClockOffset {
    double seconds = 0.0; ///< to be added to this rank's times
    double error = 0.0;   ///< at most, seconds
};
/// Ranks on the machine of rank 0 read the same clock; the others exchange messages with rank 0 and
/// take the one that was fastest on its way, halving its trip there and back. Every rank calls it.
/// Source: D. L. Mills, "Internet Time Synchronization: The Network Time Protocol", 1991.
Result<ClockOffset> clock_against_first(Communicator& ranks, const std::vector<std::string>& hosts);

/// Times the same piece of arithmetic over and over, on all ranks at once; what the least even of
/// them saw. Takes about `seconds`. Every rank calls it.
Result<sim::NoiseProbe> probe_noise(Communicator& ranks, double seconds);

/// Processors this process may use.
long allowed_processors();

/// Largest resident memory of this process so far, bytes.
std::int64_t peak_resident_bytes();

} // namespace shardplan::exec
