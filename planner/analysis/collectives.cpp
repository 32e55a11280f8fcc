#include "planner/analysis/collectives.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/reproduce_notes.hpp"
#include "planner/import/collective_file.hpp"
#include "simulator/io/apply_calibration.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

using sim::Result;

/// The description of a cluster that run records share with collective records.
sim::RunRecord cluster_part(const sim::CollectiveRecord& record) {
    sim::RunRecord out;
    sim::RunCluster& c = out.cluster;
    c.device = record.device;
    c.device_assumed = record.device_assumed;
    c.gpus = record.gpus;
    c.gpus_per_node = record.ranks_per_node;
    c.intra_kind = record.intra_kind;
    c.fabric_kind = record.fabric.kind;
    c.nics_per_node = record.fabric.nics_per_node;
    c.gbit_per_nic = record.fabric.gbit_per_nic;
    c.nvlink_domain_gpus = record.fabric.nvlink_domain_gpus;
    return out;
}

bool is_mesh(sim::ScaleupKind kind) {
    return kind == sim::ScaleupKind::nvlink_mesh || kind == sim::ScaleupKind::xgmi_mesh;
}

/// What decides the path and so the prediction besides the bytes.
auto setup_key(const sim::CollectiveRecord& r) {
    return std::make_tuple(r.device, r.gpus, r.ranks_per_node, r.intra_kind, r.fabric.kind,
                           r.fabric.nics_per_node, r.fabric.gbit_per_nic,
                           r.fabric.nvlink_domain_gpus, r.library, r.algorithm, r.protocol);
}

} // namespace

sim::GroupPath CollectiveSetup::path() const { return path_of(scenario, layout, sim::Group::dp); }

Result<CollectiveReproducer> CollectiveReproducer::make(std::optional<sim::Cluster> machine) {
    CollectiveReproducer out;
    out.machine_ = std::move(machine);
    auto catalogue = sim::load_catalogue();
    if (!catalogue) {
        return catalogue.error();
    }
    out.catalogue_ = std::move(*catalogue);
    auto clusters = sim::load_clusters();
    if (!clusters) {
        return clusters.error();
    }
    out.clusters_ = std::move(*clusters);
    return out;
}

const sim::NodeTemplate* CollectiveReproducer::typical_node(const std::string& device) const {
    if (machine_) {
        return &nodes_with(*machine_, device, catalogue_.devices);
    }
    for (const sim::Cluster& cluster : clusters_) {
        for (const sim::NodeGroup& group : cluster.node_groups) {
            if (group.node.device == device) {
                return &group.node;
            }
        }
    }
    return nullptr;
}

/// The machine in place of a cluster put together from a record, where the ranks take its nodes as
/// they are: all of each, or some of one; over all of the machine, all its node groups. What else
/// is on a machine than networks plays no part.
Result<sim::Cluster> CollectiveReproducer::on_machine(sim::Cluster cluster,
                                                      const std::string& device,
                                                      bool one_node) const {
    const sim::NodeTemplate& node = nodes_with(*machine_, device, catalogue_.devices);
    sim::NodeTemplate& built = cluster.node_groups.front().node;
    cluster.devices = machine_->devices;
    if (one_node ? built.devices <= node.devices : built.devices == node.devices) {
        built = node;
    }
    if (one_node) {
        return cluster;
    }
    if (machine_->node_groups.size() > 1 && device_count(cluster) == device_count(*machine_)) {
        cluster.node_groups = machine_->node_groups;
    }
    cluster.fabric = machine_->fabric;
    if (!cluster.fabric.torus.empty() && node_count(cluster) != node_count(*machine_)) {
        auto part = sim::resize(*machine_, node_count(cluster) * node.devices, "--cluster");
        if (!part) {
            return part.error();
        }
        cluster.fabric = part->fabric;
    }
    return cluster;
}

Result<CollectiveSetup> CollectiveReproducer::reproduce(const sim::CollectiveRecord& record) const {
    if (!record.device) {
        return missing("device");
    }
    CollectiveSetup out;
    auto device = sim::find_device(machine_ ? machine_->devices : catalogue_.devices,
                                   *record.device, "device");
    if (!device && machine_) {
        device = sim::find_device(catalogue_.devices, *record.device, "device");
    }
    if (!device) {
        return unusable("device", device.error().what);
    }
    const std::string& name = device->value.name;
    sim::RunRecord part = cluster_part(record);
    const sim::NodeTemplate* typical = typical_node(name);
    const bool one_node = record.nodes.value_or(1) <= 1;
    const bool cards_open =
        !one_node && (!part.cluster.nics_per_node || !part.cluster.gbit_per_nic);
    if (cards_open && typical != nullptr && typical->nics.count > 0) {
        part.cluster.nics_per_node = typical->nics.count;
        part.cluster.gbit_per_nic = typical->nics.per_nic.physical.value() * 8.0 / 1e9;
        note(out.notes, "fabric.nics_per_node", std::to_string(typical->nics.count),
             "a built-in cluster of " + name, "not in the record");
    }
    auto cluster = cluster_of(part, device->value, out.notes);
    if (!cluster) {
        return cluster.error();
    }
    if (machine_) {
        cluster = on_machine(std::move(*cluster), name, one_node);
        if (!cluster) {
            return cluster.error();
        }
    } else if (sim::NodeTemplate& node = cluster->node_groups.front().node;
               typical != nullptr && one_node && is_mesh(node.scaleup.kind) &&
               typical->scaleup.kind == node.scaleup.kind && typical->devices >= node.devices) {
        // which links a group of ranks has depends on the whole node
        node = *typical;
        note(out.notes, "intra_kind", "links of a node of " + std::to_string(node.devices),
             "a built-in cluster of " + name, "not in the record");
    }
    sim::StackProfile stack;
    auto policy =
        sim::policy_of(record.algorithm.value_or(""), record.protocol.value_or(""), "algorithm");
    if (!policy) {
        return policy.error();
    }
    stack.collectives = *policy;
    if (record.library == "gloo" || record.library == "mpi") {
        stack.collectives.library =
            record.library == "mpi" ? sim::CommLibrary::mpi : sim::CommLibrary::gloo;
    }
    auto scenario =
        sim::assemble_scenario({}, std::move(*cluster), {}, std::move(stack), {}, catalogue_);
    if (!scenario) {
        return scenario.error();
    }
    out.scenario = std::move(*scenario);
    out.layout.dp = static_cast<std::uint32_t>(*record.gpus);
    return out;
}

Result<std::vector<CollectivePrediction>> predict_collectives(
    const std::vector<sim::CollectiveRecord>& records, const sim::Calibration& calibration,
    const std::optional<sim::Cluster>& machine) {
    auto reproducer = CollectiveReproducer::make(machine);
    if (!reproducer) {
        return reproducer.error();
    }
    struct Known {
        std::string skipped;
        sim::GroupPath path;
        std::vector<sim::Assumption> notes;
    };
    std::map<decltype(setup_key(records.front())), Known> known;
    const auto setup_of = [&](const sim::CollectiveRecord& record) -> Result<const Known*> {
        const auto [it, is_new] = known.try_emplace(setup_key(record));
        if (!is_new) {
            return &it->second;
        }
        auto setup = reproducer->reproduce(record);
        if (!setup) {
            it->second.skipped = setup.error().what;
            return &it->second;
        }
        setup->scenario.calibration = calibration;
        if (const auto applied = sim::apply_calibration(setup->scenario); !applied) {
            return applied.error();
        }
        it->second = {"", setup->path(), setup->notes};
        return &it->second;
    };
    std::vector<CollectivePrediction> out;
    for (const sim::CollectiveRecord& record : records) {
        CollectivePrediction row;
        row.id = record.id;
        const auto op = sim::enum_from<sim::Collective>(record.collective);
        const auto setup = setup_of(record);
        if (!setup) {
            return setup.error();
        }
        if (!(*setup)->skipped.empty()) {
            row.skipped = (*setup)->skipped;
        } else if (!op) {
            row.skipped = "there is no collective " + sim::in_quotes(record.collective);
        } else if (record.size_bytes.value_or(0) < 1) {
            row.skipped = "size_bytes is missing";
        } else {
            const sim::Bytes bytes(static_cast<double>(*record.size_bytes));
            row.time_us = collective_time((*setup)->path, *op, bytes).value() * 1e6;
            const sim::CostLine line = chosen_line((*setup)->path, *op, bytes);
            row.algorithm = name_of(line.algorithm);
            row.protocol = name_of(line.protocol);
            row.notes = (*setup)->notes;
            if (record.fault_noted) {
                row.flag = "faulty: " + record.fault.value_or("by its source's word");
            }
        }
        out.push_back(std::move(row));
    }
    return out;
}

} // namespace shardplan::plan
