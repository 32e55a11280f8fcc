#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/cli/console.hpp"
#include "planner/cli/options.hpp"
#include "simulator/io/collective_record.hpp"
#include "simulator/spec/cluster.hpp"
#include "simulator/units/result.hpp"

/// From file names and flags to timings of collectives that say all that a prediction needs.
namespace shardplan::plan::cli {

struct TimedCollectives {
    std::vector<sim::CollectiveRecord> records; ///< of all files, in their order
    std::vector<sim::Error> problems;           ///< lines lost, and what is wrong with a log
    std::optional<sim::Cluster> machine;        ///< that --cluster names
    std::vector<sim::Assumption> assumptions;   ///< about the machine
    std::string hosts;                          ///< that the logs name; empty: none
    std::string input;                          ///< names and content hashes of the files
};

/// Reads logs of nccl-tests and collective records. Errors: those of read_collectives, cluster_from
/// and complete_collectives; a collective, a device or a system that nobody knows, with those that
/// are.
sim::Result<TimedCollectives> collectives_from(const std::vector<std::string>& files,
                                               const TimingOptions& options);

} // namespace shardplan::plan::cli
