#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/collective_record.hpp"
#include "simulator/spec/assumption.hpp"
#include "simulator/spec/cluster.hpp"
#include "simulator/units/result.hpp"

/// Timings of collectives from any file that holds some, and what such a file does not say of the
/// machine they were taken on.
namespace shardplan::plan {

/// What a file of timings gave.
struct CollectiveFile {
    std::string path;
    sim::CollectiveRecords records; ///< lost lines and what is wrong with a log are its problems
    bool is_log = false;            ///< of nccl-tests: what it does not say is asked for
    std::string input;              ///< name of the file without its folder, and content hash
    std::vector<sim::Assumption> assumptions; ///< what was made out, each once
    std::string hosts; ///< that a log names, as in "node-a, node-b"; empty: none
};

/// Reads a log of nccl-tests, known by its content, or collective records. Rows of a log that have
/// wrong results, and those behind a cliff, come with a fault.
/// Errors: a file that cannot be read, that describes a machine instead, or that holds no timing.
sim::Result<CollectiveFile> read_collectives(const std::string& path);
/// The same of a text; `path` is for messages.
sim::Result<CollectiveFile> parse_collectives(std::string_view text, const std::string& path);

/// The machine that timings were taken on, as a person names it.
struct TimedMachine {
    std::optional<sim::Cluster> cluster; ///< as in --cluster
    /// As in --device: what the devices are without a cluster; with one, that it is meant although
    /// the timings name another product.
    std::string device;
    std::optional<std::int64_t> gpus; ///< as in --gpus
    std::string collective;           ///< as in --collective
    std::vector<sim::Device> catalogue;
};

/// The nodes of a cluster that timings on `device` were taken on: the first node group with this
/// product, or the first of all.
const sim::NodeTemplate& nodes_with(const sim::Cluster& cluster, const std::string& device,
                                    const std::vector<sim::Device>& catalogue);

/// Gives the records what they lack: device, ranks, nodes, links and network. Records of logs share
/// the machine's name as their system; other records keep theirs.
/// Errors: a record that contradicts the machine; for logs also what is still not known, with what
/// to type.
sim::Status complete_collectives(CollectiveFile& file, const TimedMachine& machine);

} // namespace shardplan::plan
