#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/scenario.hpp"

/// What ships with the program and what a user puts beside it: devices, clusters, stacks, fabrics
/// and jobs, all files of our own kinds. Built-ins lie in `topologies/` and `samples/jobs/` of
/// data_dir(). A name that does not exist is an Error with the nearest names, never a default.
namespace shardplan::sim {

/// A loaded input with the defaults taken on the way, to be shown and kept in the Scenario.
template <class T>
struct Loaded {
    T value;
    std::vector<Assumption> assumptions;
};

/// One line of `shardplan list`.
struct CatalogueEntry {
    std::string name;
    std::string summary;

    friend bool operator==(const CatalogueEntry&, const CatalogueEntry&) = default;
};

// --- devices ----------------------------------------------------------------------------------

/// Every built-in device, ordered by name. Errors name the file that is missing or wrong.
Result<std::vector<Device>> load_devices();
/// A device by its name or an alias, without regard to case. An assumed alias (a spelling that fits
/// several products) resolves with an Assumption that carries the reason. `where`: for the Error,
/// which names the nearest spellings.
Result<Loaded<Device>> find_device(const std::vector<Device>& devices, std::string_view name,
                                   std::string_view where);
/// The same, among the built-in devices. Reads the catalogue: load_devices() once if many are
/// needed.
Result<Loaded<Device>> find_device(std::string_view name);

// --- clusters ---------------------------------------------------------------------------------

/// A built-in cluster by name, or a cluster file by path (what holds a '/' or ends in ".json"). The
/// result has passed check_cluster; its devices need not be known.
Result<Loaded<Cluster>> load_cluster(const std::string& name_or_path);
/// The cluster with `gpus` devices: whole nodes, or a part of one node. Node groups are used in
/// order. A number in between, or more than a cluster that is not scalable has, is refused with the
/// nearest numbers that work. `where`: for the Error, the flag or field the number came from.
Result<Cluster> resize(Cluster cluster, std::int64_t gpus, std::string_view where = "--gpus");
/// "2 nodes x 8 H100-SXM-80GB, nvswitch 450 GB/s, infiniband 8 x 400 Gbit/s".
std::string summary(const Cluster& cluster);

// --- stacks -----------------------------------------------------------------------------------

/// A built-in stack by name or alias, or a stack file by path; what the file does not state comes
/// from the profile it is derived from. The result has passed check_stack.
Result<StackProfile> load_stack(const std::string& name_or_path);
/// For run records: a name nobody describes gets the profile `generic`, under its own name, with an
/// Assumption that says so. A `version` that begins with a year picks the profile "NAME-YEAR" where
/// there is one: what a stack did then. Paths are not accepted. Errors: only broken data files.
Result<Loaded<StackProfile>> load_stack_or_generic(const std::string& name,
                                                   const std::string& version = "");

// --- architectures ---------------------------------------------------------------------------

/// What libraries reach on an architecture ("hopper"); "generic" where nobody describes it.
/// Errors: as load_cluster; a Constant that is not stated.
Result<ComputeProfile> load_architecture(std::string_view arch);

// --- fabrics, jobs, calibrations --------------------------------------------------------------

/// All built-in clusters, by name.
Result<std::vector<Cluster>> load_clusters();
/// The profile of a kind of network, by its name in ScaleupKind or FabricKind.
Result<FabricProfile> load_fabric(std::string_view kind);
/// A built-in job by name, or a job file by path. The result has passed check_job.
Result<Loaded<Job>> load_job(const std::string& name_or_path);
/// A calibration file.
Result<Calibration> load_calibration(const std::string& path);

// --- lists ------------------------------------------------------------------------------------

Result<std::vector<CatalogueEntry>> list_devices();
Result<std::vector<CatalogueEntry>> list_clusters();
Result<std::vector<CatalogueEntry>> list_stacks();
Result<std::vector<CatalogueEntry>> list_jobs();

// --- putting a scenario together --------------------------------------------------------------

/// The catalogue parts a scenario needs, loaded once where many scenarios are made.
struct Catalogue {
    std::vector<Device> devices;
    std::vector<FabricProfile> fabrics;
};
Result<Catalogue> load_catalogue();

/// Resolves the devices of the node groups (first the cluster's own, then the catalogue's) and the
/// profiles of the networks the cluster uses. Fails on an unknown device (nearest names), a device
/// without any known peak, and on clusters and jobs that check_cluster and check_job refuse.
Result<Scenario> assemble_scenario(ModelSpec model, Cluster cluster, Job job, StackProfile stack,
                                   Calibration calibration, const Catalogue& catalogue);
/// The same with the catalogue read for this call.
Result<Scenario> assemble_scenario(ModelSpec model, Cluster cluster, Job job, StackProfile stack,
                                   Calibration calibration);

} // namespace shardplan::sim
