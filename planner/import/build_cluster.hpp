#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/import/foreign_cluster.hpp"
#include "simulator/spec/assumption.hpp"
#include "simulator/spec/cluster.hpp"
#include "simulator/units/result.hpp"

/// From what a foreign file says to a Cluster. Such a file seldom says everything: what it lacks
/// comes from the person who plans, or the answer is an Error that names it. Nothing is filled in
/// with a default device.
namespace shardplan::plan {

/// What a person adds to a file.
struct ImportHelp {
    std::string device;               ///< name in the catalogue; empty: not given
    std::optional<sim::Cluster> node; ///< the first node group fills in what the file lacks
    std::vector<sim::Device> catalogue;
};

struct ImportedCluster {
    /// Cards without a known speed have a bandwidth of 0 and a fabric of kind `none`, for a setting
    /// to mend; settle_nics() does the rest.
    sim::Cluster cluster;
    std::vector<sim::Assumption> assumptions;
    /// Products nobody knows, with the memory that the file names: not complete, so that they must
    /// not go into the cluster before their figures are given.
    std::vector<sim::Device> unknown_devices;
};

/// The device that the file or the person names; nothing if neither does or nobody knows it.
std::optional<sim::Device> device_of(const ForeignCluster& file, const ImportHelp& help);

/// Adds to a file everything that is wrong with it and with the machine it describes: devices,
/// links, cards, fabric. `inventory`: nodes that exist; nullptr: not told, so that nothing is said
/// about nodes that do not.
void diagnose(ForeignCluster& file, const ImportHelp& help,
              const std::vector<std::string>* inventory);

/// Errors: nothing to plan with (a log, an empty file); no device is named (`--device`, with those
/// that fit); several products in one node; nodes without insides (`--node`).
sim::Result<ImportedCluster> build_cluster(const ForeignCluster& file, const ImportHelp& help);

/// Takes cards without a known speed out of a cluster of one node, with an Assumption that says how
/// to put them back. Several nodes are left alone: check_cluster refuses them.
void settle_nics(sim::Cluster& cluster, std::vector<sim::Assumption>& assumptions);

} // namespace shardplan::plan
