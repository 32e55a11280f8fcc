#pragma once

namespace shardplan::exec {

/// From now on SIGINT, SIGTERM and SIGUSR1 (which mpirun hands on to its ranks) are remembered
/// instead of ending the process. A second SIGINT or SIGTERM ends it.
void catch_stop_signals();

/// Whether one has come.
bool stop_was_asked();

} // namespace shardplan::exec
