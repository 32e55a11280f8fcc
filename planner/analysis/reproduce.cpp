#include "planner/analysis/reproduce.hpp"

#include <algorithm>
#include <cstdlib>

#include "planner/analysis/reproduce_notes.hpp"
#include "planner/import/catalogue_once.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

using sim::Result;
using Notes = std::vector<sim::Assumption>;

/// More devices than any machine has; keeps products of degrees inside 64 bits.
constexpr std::int64_t most_devices = 1 << 24;

/// "nvlink-mesh" of records is "nvlink_mesh" in our files.
std::string underscored(std::string text) {
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
}

std::int64_t devices_per_node(const sim::RunCluster& c, Notes& notes) {
    const std::int64_t gpus = *c.gpus;
    std::int64_t per_node = c.gpus_per_node.value_or(0);
    if (per_node < 1) {
        per_node = std::min<std::int64_t>(gpus, 8);
        note(notes, "cluster.gpus_per_node", std::to_string(per_node), "default");
    }
    if (gpus <= per_node) {
        return gpus;
    }
    std::int64_t used = per_node;
    while (gpus % used != 0) {
        --used;
    }
    if (used != per_node) {
        note(notes, "cluster.gpus_per_node", std::to_string(used),
             "largest count up to " + std::to_string(per_node) + " that divides " +
                 std::to_string(gpus) + " devices");
    }
    return used;
}

sim::Scaleup scaleup_of(const sim::RunCluster& c, const sim::Device& device, Notes& notes) {
    sim::Scaleup scaleup;
    const auto kind = sim::enum_from<sim::ScaleupKind>(underscored(lower(c.intra_kind)));
    scaleup.kind = kind.value_or(device.scaleup_kind);
    if (!kind) {
        note(notes, "cluster.intra_kind", std::string(name_of(scaleup.kind)), "the device's");
    }
    const bool pcie = scaleup.kind == sim::ScaleupKind::pcie;
    const sim::Bandwidth of_device =
        pcie ? device.pcie_per_direction : device.scaleup_per_direction;
    scaleup.per_device.physical =
        c.intra_gbytes_per_s ? sim::Bandwidth(*c.intra_gbytes_per_s * 1e9) : of_device;
    scaleup.peer_access = !pcie || device.pcie_peer_access;
    scaleup.domain_devices = c.nvlink_domain_gpus.value_or(0);
    return scaleup;
}

/// The network of a cluster of several nodes.
sim::Status add_fabric(const sim::RunCluster& c, sim::Cluster& cluster, Notes& notes) {
    const std::string word = underscored(lower(c.fabric_kind));
    const auto kind = sim::enum_from<sim::FabricKind>(word);
    sim::NodeGroup& group = cluster.node_groups.front();
    if (!kind || *kind == sim::FabricKind::none) {
        return unusable("cluster.fabric.kind", c.fabric_kind ? "several nodes with fabric " +
                                                                   sim::in_quotes(*c.fabric_kind)
                                                             : "cluster.fabric.kind is missing");
    }
    cluster.fabric.kind = *kind;
    if (c.nics_per_node.value_or(0) < 1 || c.gbit_per_nic.value_or(0.0) <= 0.0) {
        if (*kind != sim::FabricKind::nvlink_domain) {
            return missing(c.nics_per_node.value_or(0) < 1 ? "cluster.fabric.nics_per_node"
                                                           : "cluster.fabric.gbit_per_nic");
        }
        return sim::Done{};
    }
    group.node.nics.count = *c.nics_per_node;
    group.node.nics.per_nic.physical = sim::Bandwidth(*c.gbit_per_nic * 1e9 / 8.0);
    note(notes, "cluster.fabric.levels", "one full-bandwidth level", "not in the record");
    return sim::Done{};
}

} // namespace

Result<Reproducer> Reproducer::make() {
    const auto& catalogue = catalogue_once();
    if (!catalogue) {
        return catalogue.error();
    }
    Reproducer out;
    out.catalogue_ = *catalogue;
    return out;
}

Result<sim::Loaded<sim::StackProfile>> Reproducer::stack(const std::string& name,
                                                         const std::string& version) {
    const auto key = std::make_pair(name, version);
    if (const auto known = stacks_.find(key); known != stacks_.end()) {
        return known->second;
    }
    auto loaded = sim::load_stack_or_generic(name.empty() ? "unknown" : name, version);
    if (loaded) {
        stacks_.emplace(key, *loaded);
    }
    return loaded;
}

Result<sim::Cluster> cluster_of(const sim::RunRecord& record, const sim::Device& device,
                                Notes& notes) {
    const sim::RunCluster& c = record.cluster;
    if (!c.gpus) {
        return missing("cluster.gpus");
    }
    if (*c.gpus < 1 || *c.gpus > most_devices) {
        return unusable("cluster.gpus", "cluster.gpus is " + std::to_string(*c.gpus));
    }
    sim::Cluster cluster;
    cluster.name = "cluster of the record";
    sim::NodeGroup group;
    group.name = "nodes";
    group.node.device = device.name;
    group.node.devices = devices_per_node(c, notes);
    group.count = *c.gpus / group.node.devices;
    group.node.scaleup = scaleup_of(c, device, notes);
    group.node.host.pcie_per_device.physical = device.pcie_per_direction;
    if (record.layout.offload) {
        // The run used it, so the host had it; how much it had is not recorded.
        group.node.host.memory = sim::Bytes(0x1p40);
        group.node.host.memory_bandwidth = sim::Bandwidth(200e9);
        note(notes, "cluster.host.memory", "1 TiB at 200 GB/s", "not in the record",
             "offload needs a host");
    }
    cluster.node_groups.push_back(group);
    if (group.count > 1) {
        if (const auto fabric = add_fabric(c, cluster, notes); !fabric) {
            return fabric.error();
        }
    }
    return cluster;
}

sim::StackProfile stack_of(const sim::RunRecord& record, sim::StackProfile profile, Notes& notes) {
    // What the source says comes last, so that it wins over known defaults.
    std::vector<sim::Feature> features;
    for (const auto* names : {&record.stack.features_assumed, &record.stack.features}) {
        for (const std::string& name : *names) {
            if (const auto feature = sim::enum_from<sim::Feature>(name)) {
                features.push_back(*feature);
            } else {
                note(notes, "stack.features", name, "not known", "it changes nothing");
            }
        }
    }
    profile = sim::with_features(std::move(profile), features);
    if (!record.layout.flash_attention) {
        note(notes, "layout.flash_attention", std::string(name_of(profile.attention)),
             "default of the stack");
        return profile;
    }
    if (*record.layout.flash_attention && sim::writes_scores(profile.attention)) {
        profile.attention = sim::AttentionImpl::flash_2;
        note(notes, "layout.flash_attention", "flash_2", "flash_attention is true");
    } else if (!*record.layout.flash_attention && !sim::writes_scores(profile.attention)) {
        profile.attention = sim::AttentionImpl::unfused;
        note(notes, "layout.flash_attention", "unfused", "flash_attention is false");
    }
    if (profile.attention == sim::AttentionImpl::unfused &&
        sim::has_feature(profile, sim::Feature::fused_softmax)) {
        profile.attention = sim::AttentionImpl::fused_softmax;
        note(notes, "stack.attention", "fused_softmax", "feature fused-softmax",
             "the softmax of its unfused attention is one kernel");
    }
    return profile;
}

Result<Reproduction> Reproducer::reproduce(const sim::RunRecord& record) {
    Reproduction out;
    // said before what is missing: a source whose numbers contradict one another leaves out dp
    if (std::string text = rank_contradiction(record); !text.empty()) {
        return unusable("layout.dp", std::move(text));
    }
    if (!record.essentials_missing.empty()) {
        std::string list;
        for (const std::string& path : record.essentials_missing) {
            list += (list.empty() ? "" : ", ") + path;
        }
        return sim::Error{sim::ErrorCode::bad_input, "essentials_missing", "missing: " + list,
                          "a run cannot be predicted without it"};
    }
    if (!record.cluster.device) {
        return missing("cluster.device");
    }
    auto device = sim::find_device(catalogue_.devices, *record.cluster.device, "cluster.device");
    if (!device) {
        return unusable("cluster.device", device.error().what);
    }
    auto profile = stack(record.stack.name, record.stack.version.value_or(""));
    if (!profile) {
        return profile.error();
    }
    out.notes = device->assumptions;
    out.notes.insert(out.notes.end(), profile->assumptions.begin(), profile->assumptions.end());

    sim::StackProfile stack = stack_of(record, std::move(profile->value), out.notes);
    if (record.model.vocab_divisor.value_or(0) > 0) {
        stack.capabilities.vocab_multiple = *record.model.vocab_divisor;
    }
    auto model = model_of(record, stack, out.notes);
    if (!model) {
        return model.error();
    }
    auto cluster = cluster_of(record, device->value, out.notes);
    if (!cluster) {
        return cluster.error();
    }
    sim::NodeTemplate& node = cluster->node_groups.front().node;
    if (node.scaleup.kind == sim::ScaleupKind::nvlink_mesh) {
        const auto drawn = drawn_mesh(device->value, node.devices);
        if (!drawn) {
            return drawn.error();
        }
        if (*drawn != nullptr) {
            draw_links(**drawn, node);
            note(out.notes, "cluster.intra_kind",
                 "links of a node of " + std::to_string(node.devices), "a built-in cluster",
                 "not in the record");
        }
    }
    auto job = job_of(record, out.notes);
    if (!job) {
        return job.error();
    }
    const auto layout = layout_of(record, stack, out.tables, out.notes);
    if (!layout) {
        return layout.error();
    }
    out.layout = *layout;
    auto scenario = sim::assemble_scenario(std::move(*model), std::move(*cluster), std::move(*job),
                                           std::move(stack), {}, catalogue_);
    if (!scenario) {
        return unusable(scenario.error().where, scenario.error().what);
    }
    out.scenario = std::move(*scenario);
    return out;
}

} // namespace shardplan::plan
