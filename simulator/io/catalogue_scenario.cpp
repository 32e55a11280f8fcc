#include <algorithm>
#include <utility>

#include "simulator/io/apply_calibration.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/catalogue_files.hpp"
#include "simulator/network/ring_search.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

// --- resizing --------------------------------------------------------------------------------

/// What the groups of a cluster can hold, for finding counts that work.
struct Steps {
    std::vector<std::int64_t> legal; ///< nearest legal counts around the one asked for, ascending
    bool exact = false;
};

/// Whole-node totals next to `gpus` when groups are filled in order; `limit` nodes of the last
/// group if the cluster grows.
Steps steps_around(const Cluster& cluster, std::int64_t gpus) {
    Steps steps;
    std::int64_t before = 0;
    if (gpus < 1) {
        return steps;
    }
    if (gpus <= cluster.node_groups.front().node.devices) {
        return Steps{{gpus}, true};
    }
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        const NodeGroup& group = cluster.node_groups[i];
        const bool grows = cluster.scalable && i + 1 == cluster.node_groups.size();
        const std::int64_t devices = group.node.devices;
        const std::int64_t most = grows ? (most_devices - before) / devices : group.count;
        const std::int64_t asked = (gpus - before) / devices;
        const std::int64_t nodes = std::min(asked, most);
        const std::int64_t total = before + nodes * devices;
        if (total == gpus) {
            return Steps{{gpus}, true};
        }
        if (nodes < most) {
            if (total > 0) {
                steps.legal.push_back(total);
            }
            steps.legal.push_back(total + devices);
            return steps;
        }
        before = total;
    }
    steps.legal.push_back(before);
    return steps;
}

Error refuse(const Cluster& cluster, std::int64_t gpus, const Steps& steps,
             std::string_view where) {
    std::string nearest;
    for (const std::int64_t count : steps.legal) {
        nearest += (nearest.empty() ? "" : " or ") + std::to_string(count);
    }
    const std::int64_t devices = cluster.node_groups.front().node.devices;
    const std::int64_t all = device_count(cluster);
    std::string what;
    if (gpus < 1) {
        what = std::to_string(gpus) + " devices are none";
        nearest = "1 to " + std::to_string(devices);
    } else if (!cluster.scalable && gpus > all) {
        what = std::to_string(gpus) + " devices are more than the " + std::to_string(all) +
               " that " + in_quotes(cluster.name) + " has";
    } else if (gpus > most_devices) {
        what = std::to_string(gpus) + " devices are more than can be planned for";
    } else {
        what = std::to_string(gpus) + " devices are no whole number of nodes of " +
               std::to_string(devices);
    }
    return Error{ErrorCode::bad_input, std::string(where), std::move(what), "write " + nearest};
}

/// Cuts a torus to its first `nodes` nodes: whole rows, planes and so on of one dimension, which is
/// an open line then, as the links that would close it lead to other nodes. A cluster that grows
/// gets more of the last dimension.
Status fit_torus(Fabric& fabric, std::int64_t nodes, std::int64_t devices, std::string_view where) {
    std::int64_t below = 1;
    for (std::size_t i = 0; i < fabric.torus.size(); ++i) {
        TorusDimension& dimension = fabric.torus[i];
        const bool is_last = i + 1 == fabric.torus.size();
        if (nodes > below * dimension.nodes && !is_last) {
            below *= dimension.nodes;
            continue;
        }
        const std::int64_t rest = nodes % below;
        if (rest != 0) {
            const std::string lower = std::to_string((nodes - rest) * devices);
            const std::string upper = std::to_string((nodes - rest + below) * devices);
            return Error{ErrorCode::bad_input, std::string(where),
                         std::to_string(nodes) + " nodes are no whole number of parts of the " +
                             "torus, of " + std::to_string(below) + " nodes each",
                         "write " + lower + " or " + upper};
        }
        dimension.wraps = dimension.wraps && nodes / below >= dimension.nodes;
        dimension.nodes = nodes / below;
        fabric.torus.resize(i + 1);
        break;
    }
    return Done{};
}

/// The first `gpus` devices of one node.
Result<Cluster> part_of_node(Cluster cluster, std::int64_t gpus, std::string_view where) {
    cluster.node_groups.resize(1);
    NodeGroup& group = cluster.node_groups.front();
    std::int64_t& domain = group.node.scaleup.domain_devices;
    if (domain >= gpus) {
        domain = 0;
    } else if (domain > 0 && gpus % domain != 0) {
        const std::int64_t below = gpus / domain * domain;
        return Error{ErrorCode::bad_input, std::string(where),
                     std::to_string(gpus) + " devices cut through linked groups of " +
                         std::to_string(domain),
                     "write " + std::to_string(below) + " or " + std::to_string(below + domain)};
    }
    group.count = 1;
    group.node.devices = gpus;
    cluster.fabric.torus.clear();
    // An explicit graph describes the whole node; of a part it keeps the first devices.
    std::vector<std::string> gone;
    std::int64_t kept = 0;
    std::erase_if(group.node.vertices, [&](const Vertex& vertex) {
        if (vertex.kind != VertexKind::device || kept++ < gpus) {
            return false;
        }
        gone.push_back(vertex.name);
        return true;
    });
    std::erase_if(group.node.links, [&](const GraphLink& link) {
        return std::count(gone.begin(), gone.end(), link.from) +
                   std::count(gone.begin(), gone.end(), link.to) >
               0;
    });
    return cluster;
}

// --- scenario --------------------------------------------------------------------------------

bool has_peak(const Device& device) { return !device.peak_dense.empty(); }

Result<Device> device_of(const Cluster& cluster, std::size_t group, const Catalogue& catalogue,
                         std::vector<Assumption>& assumptions) {
    const std::string& name = cluster.node_groups[group].node.device;
    const std::string where = "cluster.node_groups[" + std::to_string(group) + "].node.device";
    Result<Loaded<Device>> found = find_device(cluster.devices, name, where);
    if (!found) {
        std::vector<Device> known = cluster.devices;
        known.insert(known.end(), catalogue.devices.begin(), catalogue.devices.end());
        found = find_device(known, name, where);
    }
    if (!found) {
        Error error = std::move(found).error();
        error.hint += "; or describe it under \"devices\" of the cluster file";
        return error;
    }
    if (!has_peak(found->value)) {
        return Error{
            ErrorCode::bad_input, where,
            "no peak of " + in_quotes(found->value.name) + " is known, so nothing can be timed",
            "give its dense peak, \"peak_dense\": {\"bf16\": \"312 TFLOP/s\"}"};
    }
    for (Assumption& assumption : found->assumptions) {
        assumptions.push_back(std::move(assumption));
    }
    if (found->value.compute == ComputeProfile{}) {
        Result<ComputeProfile> architecture = load_architecture(found->value.arch);
        if (!architecture) {
            return std::move(architecture).error();
        }
        found->value.compute = std::move(architecture).value();
    }
    return std::move(found->value);
}

void add_name(std::vector<std::string_view>& names, std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
    }
}

/// Kinds of network the cluster uses, scale-up first.
std::vector<std::string_view> fabric_names(const Cluster& cluster) {
    std::vector<std::string_view> names;
    for (const NodeGroup& group : cluster.node_groups) {
        add_name(names, name_of(group.node.scaleup.kind));
        const std::int64_t domain = group.node.scaleup.domain_devices;
        if (domain > group.node.devices) {
            add_name(names, name_of(FabricKind::nvlink_domain));
        } else if (domain > 0 && domain < group.node.devices) {
            add_name(names, name_of(ScaleupKind::pcie)); // between the bridged pairs of a node
        }
    }
    if (cluster.fabric.kind != FabricKind::none) {
        add_name(names, name_of(cluster.fabric.kind));
    }
    return names;
}

/// The profile of a kind of network between devices like this one: the one of their architecture
/// where there is one, else the one for any. nullptr: nobody describes the kind.
const FabricProfile* profile_for(const std::vector<FabricProfile>& profiles, std::string_view name,
                                 const Device& device) {
    const FabricProfile* found = nullptr;
    for (const FabricProfile& profile : profiles) {
        if (profile.name != name) {
            continue;
        }
        const bool is_theirs = !profile.arch.empty() && device.arch.starts_with(profile.arch);
        if (is_theirs || (profile.arch.empty() && found == nullptr)) {
            found = &profile;
        }
    }
    return found;
}

/// The profiles of a kind of network that the devices of a scenario need.
Status add_profiles(const std::vector<FabricProfile>& profiles, std::string_view name,
                    Scenario& scenario) {
    for (const Device& device : scenario.devices) {
        const FabricProfile* profile = profile_for(profiles, name, device);
        if (profile == nullptr) {
            return Error{ErrorCode::not_found, "cluster.fabric.kind",
                         "there is no profile of the network " + in_quotes(name),
                         "add topologies/fabrics/" + std::string(name) + ".json"};
        }
        const bool known = std::any_of(
            scenario.fabrics.begin(), scenario.fabrics.end(), [&](const FabricProfile& have) {
                return have.name == profile->name && have.arch == profile->arch;
            });
        if (!known) {
            scenario.fabrics.push_back(*profile);
        }
    }
    return Done{};
}

} // namespace

Result<Cluster> resize(Cluster cluster, std::int64_t gpus, std::string_view where) {
    const bool whole = std::all_of(cluster.node_groups.begin(), cluster.node_groups.end(),
                                   [](const NodeGroup& group) { return group.node.devices > 0; });
    if (cluster.node_groups.empty() || !whole) {
        return Error{ErrorCode::bad_input, std::string(where), "the cluster has no devices",
                     "describe its nodes first"};
    }
    const Steps steps = steps_around(cluster, gpus);
    if (!steps.exact) {
        return refuse(cluster, gpus, steps, where);
    }
    if (gpus < cluster.node_groups.front().node.devices) {
        return part_of_node(std::move(cluster), gpus, where);
    }
    std::int64_t left = gpus;
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        NodeGroup& group = cluster.node_groups[i];
        const bool grows = cluster.scalable && i + 1 == cluster.node_groups.size();
        const std::int64_t asked = left / group.node.devices;
        group.count = grows ? asked : std::min(asked, group.count);
        left -= group.count * group.node.devices;
        if (left == 0) {
            cluster.node_groups.resize(i + 1);
        }
    }
    if (Status status = fit_torus(cluster.fabric, node_count(cluster),
                                  cluster.node_groups.back().node.devices, where);
        !status) {
        return status.error();
    }
    return cluster;
}

std::string summary(const Cluster& cluster) {
    std::string text;
    for (const NodeGroup& group : cluster.node_groups) {
        const NodeTemplate& node = group.node;
        text += text.empty() ? "" : " + ";
        text += group_digits(group.count) + (group.count == 1 ? " node x " : " nodes x ") +
                group_digits(node.devices) + " " + node.device;
        if (node.devices > 1) {
            const bool host = node.scaleup.kind == ScaleupKind::none;
            text += ", " + std::string(host ? "host memory" : name_of(node.scaleup.kind)) + " " +
                    to_text(usable(node.scaleup.per_device));
        }
        if (node.scaleup.domain_devices > node.devices) {
            text += " in domains of " + group_digits(node.scaleup.domain_devices);
        }
        if (node.nics.count > 0) {
            const double gbit = node.nics.per_nic.physical.value() * 8.0 / 1e9;
            text += ", " + group_digits(node.nics.count) + " x " +
                    group_digits(static_cast<long long>(gbit + 0.5)) + " Gbit/s";
        }
    }
    if (cluster.fabric.kind != FabricKind::none) {
        text += " " + std::string(name_of(cluster.fabric.kind));
    }
    for (std::size_t i = 0; i < cluster.fabric.torus.size(); ++i) {
        text += (i == 0 ? ", torus " : " x ") + group_digits(cluster.fabric.torus[i].nodes);
    }
    return text;
}

Result<Scenario> assemble_scenario(ModelSpec model, Cluster cluster, Job job, StackProfile stack,
                                   Calibration calibration, const Catalogue& catalogue) {
    if (Status status = check_cluster(cluster, "cluster"); !status) {
        return std::move(status).error();
    }
    if (Status status = check_job(job, "job"); !status) {
        return std::move(status).error();
    }
    Scenario scenario;
    for (std::size_t i = 0; i < cluster.node_groups.size(); ++i) {
        Result<Device> device = device_of(cluster, i, catalogue, scenario.assumptions);
        if (!device) {
            return std::move(device).error();
        }
        scenario.devices.push_back(std::move(device).value());
    }
    for (const std::string_view name : fabric_names(cluster)) {
        if (Status status = add_profiles(catalogue.fabrics, name, scenario); !status) {
            return std::move(status).error();
        }
    }
    scenario.model = std::move(model);
    scenario.mesh_rings = mesh_rings(cluster);
    scenario.cluster = std::move(cluster);
    scenario.job = std::move(job);
    scenario.stack = std::move(stack);
    scenario.calibration = std::move(calibration);
    if (Status status = apply_calibration(scenario); !status) {
        return std::move(status).error();
    }
    return scenario;
}

Result<Scenario> assemble_scenario(ModelSpec model, Cluster cluster, Job job, StackProfile stack,
                                   Calibration calibration) {
    const Result<Catalogue> catalogue = load_catalogue();
    if (!catalogue) {
        return catalogue.error();
    }
    return assemble_scenario(std::move(model), std::move(cluster), std::move(job), std::move(stack),
                             std::move(calibration), *catalogue);
}

} // namespace shardplan::sim
