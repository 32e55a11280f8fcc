#include <algorithm>

#include "planner/import/build_parts.hpp"
#include "planner/import/import_text.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

using sim::Bandwidth;
using sim::Device;
using sim::ScaleupKind;

/// One link of the scale-up network; 0: not known.
Bandwidth per_link(const Device* device) {
    return device != nullptr && device->scaleup_links > 0
               ? device->scaleup_per_direction / static_cast<double>(device->scaleup_links)
               : Bandwidth();
}

Bandwidth slot_of(const NodeView& view, const Device* device, const sim::NodeTemplate* base) {
    Bandwidth least;
    for (const NodePart& gpu : view.gpus) {
        if (gpu.pcie.value() > 0.0 && (least.value() <= 0.0 || gpu.pcie < least)) {
            least = gpu.pcie;
        }
    }
    // Files made for clouds state speeds that only keep NCCL on the right paths.
    if (least.value() > 0.0 && (view.links_stated || device == nullptr)) {
        return least;
    }
    if (base != nullptr && base->host.pcie_per_device.physical.value() > 0.0) {
        return base->host.pcie_per_device.physical;
    }
    return device != nullptr ? device->pcie_per_direction : Bandwidth();
}

/// Whether devices read one another over PCIe: some pair is behind common switches, and the driver
/// allows it.
bool peer_access(const NodeView& view, const Device* device) {
    if (device != nullptr && !device->pcie_peer_access) {
        return false;
    }
    bool any_known = false;
    for (std::size_t a = 0; a < view.gpus.size(); ++a) {
        for (std::size_t b = a + 1; b < view.gpus.size(); ++b) {
            const PathKind kind = view.path(a, b).kind;
            any_known = any_known || kind != PathKind::unknown;
            if (is_near(kind)) {
                return true;
            }
        }
    }
    return !any_known;
}

/// The board's own network, for files that say nothing of links.
void take_board_links(sim::Scaleup& scaleup, const Device& device,
                      std::vector<sim::Assumption>& assumptions) {
    scaleup.kind = device.scaleup_kind;
    scaleup.per_device.physical = device.scaleup_per_direction;
    assumptions.push_back({"cluster.scaleup",
                           std::string(name_of(device.scaleup_kind)) + ", " +
                               sim::to_text(device.scaleup_per_direction) + " per device",
                           "what " + device.name + " has",
                           "the file does not say how fast the links between devices are"});
}

void set_scaleup(sim::NodeTemplate& node, const NodeView& view, const LinkShape& shape,
                 const Device* device, const sim::NodeTemplate* base,
                 std::vector<sim::Assumption>& assumptions) {
    sim::Scaleup& scaleup = node.scaleup;
    const auto gpus = static_cast<std::int64_t>(view.gpus.size());
    const Bandwidth link = per_link(device);
    const bool whole = shape.any && shape.domain == gpus;
    const bool in_sets =
        shape.any && shape.equal_domains && shape.domain > 1 && shape.domain < gpus;
    if ((whole || in_sets) && link.value() > 0.0) {
        const bool board_switch = device->scaleup_kind == ScaleupKind::nvswitch;
        scaleup.kind = view.xgmi ? ScaleupKind::xgmi_mesh
                       : shape.switched || (shape.uniform && gpus == 2 && board_switch)
                           ? ScaleupKind::nvswitch
                           : ScaleupKind::nvlink_mesh;
        scaleup.per_device.physical = link * static_cast<double>(shape.least_links);
        scaleup.domain_devices = in_sets ? shape.domain : view.hosts > 1 ? view.hosts * gpus : 0;
        scaleup.peer_access = true;
        return;
    }
    const bool board_links = device != nullptr && device->scaleup_per_direction.value() > 0.0 &&
                             (device->scaleup_kind == ScaleupKind::nvswitch ||
                              device->scaleup_kind == ScaleupKind::xgmi_mesh);
    if (whole && board_links) { // links are counted, but nobody says how fast one is
        take_board_links(scaleup, *device, assumptions);
        return;
    }
    if (!shape.any && !view.links_stated && gpus > 1) {
        if (base != nullptr) {
            scaleup = base->scaleup;
            if (scaleup.domain_devices > 0 && scaleup.domain_devices % gpus != 0 &&
                gpus % scaleup.domain_devices != 0) {
                scaleup.domain_devices = 0;
            }
            return;
        }
        if (view.collective_bandwidth.value() > 0.0 && device != nullptr) {
            scaleup.kind = device->scaleup_kind == ScaleupKind::none ? ScaleupKind::pcie
                                                                     : device->scaleup_kind;
            scaleup.per_device.physical =
                std::max(device->scaleup_per_direction, view.collective_bandwidth);
            scaleup.per_device.achievable = view.collective_bandwidth;
            return;
        }
        if (board_links) {
            take_board_links(scaleup, *device, assumptions);
            return;
        }
    }
    scaleup.kind = ScaleupKind::pcie;
    scaleup.per_device.physical = slot_of(view, device, base);
    scaleup.peer_access = peer_access(view, device);
}

void set_nics(sim::NodeTemplate& node, const NodeView& view, const sim::NodeTemplate* base,
              std::vector<sim::Assumption>& assumptions) {
    const auto rails = view.rails();
    if (view.paths.empty() && rails.empty()) { // the file is silent about cards
        if (base != nullptr) {
            node.nics = base->nics;
        }
        return;
    }
    node.nics.count = static_cast<std::int64_t>(rails.size());
    Bandwidth least;
    bool near = false;
    bool any_path = false;
    std::vector<std::int64_t> forbidden;
    for (std::size_t card = 0; card < rails.size(); ++card) {
        const std::size_t nic = rails[card];
        const NodePart& part = view.part(nic);
        if (part.speed.value() > 0.0 && (least.value() <= 0.0 || part.speed < least)) {
            least = part.speed;
        }
        if (part.gpudirect && !*part.gpudirect) {
            forbidden.push_back(static_cast<std::int64_t>(card));
        }
        for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
            const PathKind kind = view.path(gpu, nic).kind;
            near = near || is_near(kind);
            any_path = any_path || kind != PathKind::unknown;
        }
    }
    node.nics.per_nic.physical = least;
    const bool all_forbidden = !rails.empty() && forbidden.size() == rails.size();
    node.nics.gpudirect = !all_forbidden && (near || !any_path);
    if (node.nics.gpudirect) {
        node.nics.staged = std::move(forbidden);
    }
    if (base != nullptr && least.value() <= 0.0) {
        node.nics.per_nic = base->nics.per_nic;
    }
    for (const NodePart& nic : view.nics) {
        if (!nic.aside.empty()) {
            assumptions.push_back({"cluster.nics",
                                   nic.name +
                                       (nic.product.empty() ? "" : " (" + nic.product + ")") +
                                       " is not counted",
                                   "the file", nic.aside});
        }
    }
}

/// Whether the summary fields say less than the paths do.
bool needs_graph(const NodeView& view, const LinkShape& shape) {
    if (view.paths.empty()) {
        return false;
    }
    if (shape.any && !shape.uniform) {
        return true;
    }
    const PathKind first = nearest_rail(view, 0).kind;
    for (std::size_t gpu = 1; gpu < view.gpus.size(); ++gpu) {
        if (is_near(nearest_rail(view, gpu).kind) != is_near(first)) {
            return true;
        }
    }
    return false;
}

} // namespace

NodeView keep_gpus(const NodeView& view, const std::function<bool(const NodePart&)>& keep) {
    NodeView out = view;
    out.gpus.clear();
    out.paths.clear();
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < view.size(); ++i) {
        if (i >= view.gpus.size() || keep(view.gpus[i])) {
            kept.push_back(i);
            if (i < view.gpus.size()) {
                out.gpus.push_back(view.gpus[i]);
            }
        }
    }
    for (const std::size_t a : kept) {
        for (const std::size_t b : kept) {
            out.paths.push_back(view.path(a, b));
        }
    }
    return out;
}

sim::NodeTemplate node_of(const NodeView& view, const Device* device, const sim::NodeTemplate* base,
                          std::vector<sim::Assumption>& assumptions) {
    sim::NodeTemplate node;
    node.devices = static_cast<std::int64_t>(view.gpus.size());
    if (base != nullptr) {
        node.host = base->host;
    }
    const LinkShape shape = link_shape(view, device);
    set_scaleup(node, view, shape, device, base, assumptions);
    set_nics(node, view, base, assumptions);
    const Bandwidth slot = slot_of(view, device, base);
    if (node.host.pcie_per_device.physical.value() <= 0.0 || base == nullptr) {
        node.host.pcie_per_device.physical = slot;
    }
    if (needs_graph(view, shape) && slot.value() > 0.0 &&
        (!shape.any || per_link(device).value() > 0.0)) {
        add_graph(node, view, shape, per_link(device), assumptions);
    }
    return node;
}

void add_graph(sim::NodeTemplate& node, const NodeView& view, const LinkShape& shape,
               Bandwidth link, std::vector<sim::Assumption>& assumptions) {
    const auto name_of_part = [&](std::size_t i) {
        return i < view.gpus.size() ? "gpu" + std::to_string(i)
                                    : "nic" + std::to_string(i - view.gpus.size());
    };
    const auto add_link = [&](std::string from, std::string to, std::int64_t count,
                              Bandwidth speed) {
        node.links.push_back({std::move(from), std::move(to), count, {speed, {}, {}}, {}});
    };
    const Bandwidth slot = node.host.pcie_per_device.physical;
    const PcieTree tree = pcie_tree(view);
    for (std::size_t i = 0; i < view.size(); ++i) {
        const bool gpu = i < view.gpus.size();
        if (gpu || view.part(i).aside.empty()) {
            node.vertices.push_back(
                {name_of_part(i), gpu ? sim::VertexKind::device : sim::VertexKind::nic});
        }
    }
    for (std::size_t i = 0; i < tree.groups.size(); ++i) {
        const std::string name = "pcie" + std::to_string(i);
        std::vector<std::size_t> parts = tree.groups[i].parts;
        std::erase_if(parts, [&](std::size_t part) {
            return part >= view.gpus.size() && !view.part(part).aside.empty();
        });
        if (parts.empty()) {
            continue;
        }
        node.vertices.push_back({name, sim::VertexKind::pcie_switch});
        for (const std::size_t part : parts) {
            const Bandwidth own = view.part(part).pcie;
            add_link(name_of_part(part), name, 1, own.value() > 0.0 ? own : slot);
        }
        add_link(name, "cpu" + std::to_string(tree.groups[i].socket), 1, slot);
    }
    for (std::size_t socket = 0; socket < tree.sockets; ++socket) {
        node.vertices.push_back({"cpu" + std::to_string(socket), sim::VertexKind::host});
        if (socket > 0) {
            add_link("cpu" + std::to_string(socket - 1), "cpu" + std::to_string(socket), 1, slot);
        }
    }
    if (tree.sockets > 1) {
        assumptions.push_back({"cluster.links", "processors linked at " + sim::to_text(slot),
                               "as one slot", "the file does not say how fast that link is"});
    }
    if (shape.switched) {
        node.vertices.push_back({"nvswitch", sim::VertexKind::scaleup_switch});
    }
    for (std::size_t a = 0; a < view.gpus.size(); ++a) {
        if (shape.switched) {
            if (const auto links = links_of(view, a, shape); links > 0) {
                add_link(name_of_part(a), "nvswitch", links, link);
            }
            continue;
        }
        for (std::size_t b = a + 1; b < view.gpus.size(); ++b) {
            const Path path = view.path(a, b);
            if (path.kind == PathKind::nvlink && path.links > 0) {
                add_link(name_of_part(a), name_of_part(b), path.links, link);
            }
        }
    }
}

} // namespace shardplan::plan
