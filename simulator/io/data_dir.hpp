#pragma once

#include <string>
#include <vector>

namespace shardplan::sim {

/// The folder that holds `topologies/` and `samples/`: the built-in devices, clusters, stacks and
/// models. The first of these that holds a folder `topologies`:
///   1. the value of the environment variable SHARDPLAN_DATA, if it is set and not empty;
///   2. `../share/shardplan`, seen from the folder of the running program;
///   3. `share/shardplan` under the prefix this library was configured to be installed to;
///   4. the source tree it was built from.
/// SHARDPLAN_DATA is taken even if it is wrong, so that a mistyped path is reported by whoever
/// opens a file in it and never replaced by other data. If no candidate holds the data, the result
/// is the last one, for the same reason.
std::string data_dir();

/// The folders `data_dir` looks at, in its order: what a message names when a built-in is missing.
std::vector<std::string> data_dir_candidates();

} // namespace shardplan::sim
