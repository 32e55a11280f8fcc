#include "planner/import/build_cluster.hpp"

#include <algorithm>
#include <set>

#include "planner/import/build_parts.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/pcie.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/lower_case.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {

using sim::Device;
using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

std::vector<std::string> products_of(const ForeignCluster& file) {
    std::set<std::string> out;
    if (file.node) {
        for (const NodePart& gpu : file.node->gpus) {
            out.insert(gpu.product);
        }
    } else if (file.fabric) {
        for (const FabricNode& node : file.fabric->nodes) {
            if (node.gpus > 0 && node.trouble.empty()) {
                out.insert(node.product);
            }
        }
    }
    out.erase("");
    return {out.begin(), out.end()};
}

namespace {

/// Labels have dashes in the place of blanks, and keep some of the product's own.
std::string plain(std::string_view name) {
    std::string out = sim::lower_case(name);
    std::erase_if(out, [](char c) { return c == ' ' || c == '-' || c == '_'; });
    return out;
}

/// The first spelling in the catalogue that is `wanted`; names before aliases before those that fit
/// several products.
std::string spelling_of(const std::string& wanted, const std::vector<Device>& catalogue) {
    for (const Device& device : catalogue) {
        if (plain(device.name) == wanted) {
            return device.name;
        }
    }
    for (const Device& device : catalogue) {
        for (const std::string& alias : device.aliases) {
            if (plain(alias) == wanted) {
                return alias;
            }
        }
    }
    for (const Device& device : catalogue) {
        for (const sim::AssumedAlias& assumed : device.assumed_aliases) {
            if (plain(assumed.alias) == wanted) {
                return assumed.alias;
            }
        }
    }
    return {};
}

} // namespace

std::optional<sim::Loaded<Device>> find_product(const std::string& product,
                                                const std::vector<Device>& catalogue) {
    std::string wanted = plain(device_of_pci_id(product));
    wanted = wanted.empty() ? plain(product) : wanted;
    std::string spelling = spelling_of(wanted, catalogue);
    if (spelling.empty() && wanted.starts_with("nvidia")) {
        spelling = spelling_of(wanted.substr(6), catalogue);
    }
    if (spelling.empty()) {
        return std::nullopt;
    }
    auto found = sim::find_device(catalogue, spelling, "");
    return found ? std::optional(std::move(found).value()) : std::nullopt;
}

bool same_product(const std::string& a, const std::string& b,
                  const std::vector<Device>& catalogue) {
    const auto one = find_product(a, catalogue);
    const auto other = find_product(b, catalogue);
    return a == b || (one && other && one->value.name == other->value.name);
}

sim::Status check_base(const ForeignCluster& file, const ImportHelp& help,
                       const std::string& product) {
    if (!help.node || product.empty() || !help.device.empty()) {
        return sim::Done{};
    }
    const std::string& base = help.node->node_groups.front().node.device;
    if (same_product(product, base, help.catalogue)) {
        return sim::Done{};
    }
    return Error{ErrorCode::bad_input, "--node",
                 "its devices are " + in_quotes(base) + ", those of " + file.source + " " +
                     in_quotes(product),
                 "name a cluster with such devices, or add --device NAME if this one is meant"};
}

std::optional<Device> device_of(const ForeignCluster& file, const ImportHelp& help) {
    std::string name = help.device;
    if (name.empty()) {
        const auto products = products_of(file);
        if (products.size() == 1) {
            name = products.front();
        } else if (products.empty() && help.node && !help.node->node_groups.empty()) {
            name = help.node->node_groups.front().node.device;
        }
    }
    if (name.empty()) {
        return std::nullopt;
    }
    auto found = find_product(name, help.catalogue);
    if (!found) {
        return std::nullopt;
    }
    return std::move(found->value);
}

namespace {

/// Devices of the catalogue that have as many links, or the compute capability.
std::vector<std::string> candidates(const NodeView& view, const std::vector<Device>& catalogue) {
    const LinkShape shape = link_shape(view, nullptr);
    std::vector<std::string> out;
    for (const Device& device : catalogue) {
        const bool by_links = shape.any && device.scaleup_links == shape.most_links &&
                              (view.xgmi == (device.vendor == "AMD"));
        const bool by_capability = !view.compute_capability.empty() &&
                                   device.compute_capability == view.compute_capability;
        if (view.compute_capability.empty() ? by_links : by_capability) {
            out.push_back(device.name);
        }
    }
    return out;
}

Error ask_for_device(const ForeignCluster& file, const ImportHelp& help) {
    const auto fitting = candidates(*file.node, help.catalogue);
    return Error{ErrorCode::bad_input, file.source,
                 "it is " + file.format + ", which does not say what the devices are",
                 "add --device NAME" + (fitting.empty()
                                            ? std::string(" (`shardplan list devices` shows all)")
                                            : "; these fit: " + text::listed(fitting, 12))};
}

/// What to plan with for a product: the catalogue's device, with the memory that the file names.
struct Product {
    std::string name;
    std::optional<Device> known;
    bool changed = false; ///< known, but with other memory than the catalogue says
};

Product product_for(const std::string& name, sim::Bytes memory, const ImportHelp& help,
                    std::vector<sim::Assumption>& assumptions) {
    Product out;
    out.name = name;
    auto found = find_product(name, help.catalogue);
    if (!found) {
        return out;
    }
    assumptions.insert(assumptions.end(), found->assumptions.begin(), found->assumptions.end());
    out.known = std::move(found->value);
    out.name = out.known->name;
    if (differs_from_catalogue(memory, *out.known)) {
        out.changed = true;
        out.name += " with " + sim::to_text(memory);
        out.known->name = out.name;
        out.known->memory_visible = memory;
        out.known->memory_label = std::max(out.known->memory_label, memory);
        assumptions.push_back({"device.memory_visible", sim::to_text(memory), "the file",
                               "not what the catalogue says of the product"});
    }
    return out;
}

sim::Bytes least_memory(const std::vector<NodePart>& gpus) {
    sim::Bytes least;
    for (const NodePart& gpu : gpus) {
        if (gpu.memory.value() > 0.0 && (least.value() <= 0.0 || gpu.memory < least)) {
            least = gpu.memory;
        }
    }
    return least;
}

/// The devices of a node that a plan is made for: all, or those of the kind asked for.
sim::Result<NodeView> chosen_devices(const ForeignCluster& file, const ImportHelp& help) {
    NodeView view = *file.node;
    const auto products = products_of(file);
    if (products.size() < 2) {
        return view;
    }
    const auto is_asked_for = [&](const NodePart& gpu) {
        return same_product(gpu.product, help.device, help.catalogue);
    };
    const auto kept = std::count_if(view.gpus.begin(), view.gpus.end(), is_asked_for);
    if (help.device.empty() || kept == 0) {
        return Error{ErrorCode::bad_input, file.source,
                     "the node holds devices of " + std::to_string(products.size()) +
                         " kinds: " + text::listed(products),
                     "choose one with --device NAME"};
    }
    if (!view.paths.empty()) {
        return keep_gpus(view, is_asked_for);
    }
    std::erase_if(view.gpus, [&](const NodePart& gpu) { return !is_asked_for(gpu); });
    return view;
}

sim::Result<ImportedCluster> build_node(const ForeignCluster& file, const ImportHelp& help) {
    const auto view = chosen_devices(file, help);
    if (!view) {
        return view.error();
    }
    ImportedCluster out;
    std::string name = help.device;
    if (name.empty()) {
        const auto products = products_of(file);
        name = products.empty() && help.node ? help.node->node_groups.front().node.device
               : products.empty()            ? std::string()
                                             : products.front();
    }
    if (name.empty()) {
        return ask_for_device(file, help);
    }
    const sim::Bytes memory = least_memory(view->gpus);
    const Product product = product_for(name, memory, help, out.assumptions);
    if (!product.known && memory.value() <= 0.0) {
        const auto found = sim::find_device(help.catalogue, name, "--device");
        return Error{ErrorCode::not_found, help.device.empty() ? file.source : "--device",
                     "no device " + in_quotes(name) + " is in the catalogue",
                     help.device.empty() ? "name it as the catalogue does, with --device NAME "
                                           "(`shardplan list devices` shows all)"
                     : found             ? ""
                                         : found.error().hint};
    }
    if (const auto products = products_of(file); !products.empty()) {
        if (const auto status = check_base(file, help, products.front()); !status) {
            return status.error();
        }
    }
    sim::NodeGroup group;
    group.name = "node";
    group.count = view->hosts;
    const sim::NodeTemplate* base = help.node ? &help.node->node_groups.front().node : nullptr;
    group.node = node_of(*view, product.known ? &*product.known : nullptr, base, out.assumptions);
    group.node.device = product.name;
    if (help.node) {
        const sim::NodeGroup& from = help.node->node_groups.front();
        group.price_per_device_hour = from.price_per_device_hour;
        group.mean_time_to_failure = from.mean_time_to_failure;
        out.cluster.fabric = help.node->fabric;
        out.cluster.currency = help.node->currency;
        out.cluster.storage = help.node->storage;
        out.cluster.devices = help.node->devices;
    } else if (view->infiniband) {
        out.cluster.fabric.kind = sim::FabricKind::infiniband;
        out.cluster.fabric.rails = view->rails().size() == view->gpus.size() && !view->gpus.empty();
    }
    if (product.changed) {
        out.cluster.devices.push_back(*product.known);
    } else if (!product.known) {
        Device unknown;
        unknown.name = product.name;
        unknown.memory_label = memory;
        unknown.memory_visible = memory;
        out.unknown_devices.push_back(std::move(unknown));
    }
    out.cluster.node_groups.push_back(std::move(group));
    out.cluster.scalable = true;
    return out;
}

} // namespace

bool differs_from_catalogue(sim::Bytes memory, const Device& device) {
    // Drivers keep some percent for themselves; a modified card or a share differs by far more.
    constexpr double tolerance = 0.08;
    return memory.value() > 0.0 && (memory > device.memory_label * (1.0 + tolerance) ||
                                    memory < device.memory_visible * (1.0 - tolerance));
}

sim::Result<ImportedCluster> build_cluster(const ForeignCluster& file, const ImportHelp& help) {
    if (help.node && help.node->node_groups.empty()) {
        return Error{ErrorCode::bad_input, "--node", "that cluster has no node", "name another"};
    }
    sim::Result<ImportedCluster> built = [&]() -> sim::Result<ImportedCluster> {
        if (file.log) {
            return Error{
                ErrorCode::bad_input, file.source,
                "it is " + file.format + ": timings, not the description of a machine",
                "name the cluster it ran on; `shardplan validate --collectives FILE` compares "
                "with what the log says"};
        }
        return file.node ? build_node(file, help) : build_nodes(file, help);
    }();
    if (!built) {
        return built;
    }
    const std::size_t slash = file.source.find_last_of('/');
    std::string name = slash == std::string::npos ? file.source : file.source.substr(slash + 1);
    built->cluster.name = name.substr(0, name.rfind('.'));
    built->cluster.note = "Imported from " + file.format + ".";
    for (const sim::NodeGroup& group : built->cluster.node_groups) {
        if (group.node.host.memory.value() <= 0.0) {
            built->assumptions.push_back({"cluster.host.memory", "not known", file.format,
                                          "offload to host memory is refused"});
            break;
        }
    }
    return built;
}

void settle_nics(sim::Cluster& cluster, std::vector<sim::Assumption>& assumptions) {
    const bool several = cluster.node_groups.size() > 1 || cluster.node_groups.empty() ||
                         cluster.node_groups.front().count > 1;
    if (several) {
        return;
    }
    sim::NodeTemplate& node = cluster.node_groups.front().node;
    if (node.nics.count == 0 || usable(node.nics.per_nic).value() > 0.0) {
        return;
    }
    assumptions.push_back(
        {"cluster.nics", "none used", "the file",
         "it does not give the speed of its " + text::counted(node.nics.count, "card") +
             "; for several nodes add --set \"cluster.node_groups[0].node.nics.per_nic."
             "physical=400 Gbit/s\" --set cluster.fabric.kind=infiniband, or --node CLUSTER"});
    node.nics.count = 0;
    std::set<std::string> gone;
    std::erase_if(node.vertices, [&](const sim::Vertex& vertex) {
        return vertex.kind == sim::VertexKind::nic && gone.insert(vertex.name).second;
    });
    std::erase_if(node.links, [&](const sim::GraphLink& link) {
        return gone.count(link.from) + gone.count(link.to) > 0;
    });
}

} // namespace shardplan::plan
