#include <algorithm>
#include <map>

#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

using text::counted;
using text::listed;

std::string pair_name(const NodeView& view, std::size_t a, std::size_t b) {
    return view.gpus[a].name + "-" + view.gpus[b].name;
}

/// A third device that both are linked to.
bool share_a_neighbour(const NodeView& view, std::size_t a, std::size_t b) {
    for (std::size_t c = 0; c < view.gpus.size(); ++c) {
        if (c != a && c != b && view.path(a, c).kind == PathKind::nvlink &&
            view.path(c, b).kind == PathKind::nvlink) {
            return true;
        }
    }
    return false;
}

/// Pairs that reach one another only through the host: NCCL lets devices read one another over
/// PCIe switches, not over host bridges (its default, NCCL_P2P_LEVEL=PXB).
void find_no_peer_access(ForeignCluster& file, const sim::Device* device) {
    const NodeView& view = *file.node;
    std::vector<std::string> staged;
    std::vector<std::string> through_a_peer;
    std::int64_t pairs = 0;
    for (std::size_t a = 0; a < view.gpus.size(); ++a) {
        for (std::size_t b = a + 1; b < view.gpus.size(); ++b) {
            const PathKind kind = view.path(a, b).kind;
            ++pairs;
            if (kind == PathKind::nvlink || kind == PathKind::unknown) {
                continue;
            }
            const bool forbidden = device != nullptr && !device->pcie_peer_access;
            if (share_a_neighbour(view, a, b)) {
                through_a_peer.push_back(pair_name(view, a, b));
            } else if (!is_near(kind) || forbidden) {
                staged.push_back(pair_name(view, a, b));
            }
        }
    }
    if (!staged.empty()) {
        file.find("no-peer-access", 0,
                  std::to_string(staged.size()) + " of " + counted(pairs, "pair") +
                      " of devices have no direct way to one another: " + listed(staged, 4) +
                      "; their messages are staged through host memory",
                  device != nullptr && !device->pcie_peer_access
                      ? "the stock driver of this device allows no peer access"
                      : "keep tensor parallelism inside the pairs that are linked");
    }
    if (!through_a_peer.empty()) {
        file.find("no-direct-link", 0,
                  std::to_string(through_a_peer.size()) + " of " + counted(pairs, "pair") +
                      " of devices have no link of their own and go through a third: " +
                      listed(through_a_peer, 4),
                  "keep tensor parallelism inside the sets that are fully linked");
    }
}

void find_far_nics(ForeignCluster& file) {
    const NodeView& view = *file.node;
    const auto rails = view.rails();
    if (rails.empty() || view.paths.empty()) {
        return;
    }
    std::map<PathKind, std::vector<std::string>> far;
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
        const Path path = nearest_rail(view, gpu);
        if (path.kind > PathKind::pxb && path.kind < PathKind::unknown) {
            far[path.kind].push_back(view.gpus[gpu].name);
        }
    }
    for (const auto& [kind, names] : far) {
        file.find("far-nic", 0,
                  listed(names) + (names.size() == 1 ? " reaches" : " reach") +
                      " the nearest network card over " + std::string(name_of(kind)) +
                      (kind == PathKind::sys ? " (across sockets)" : " (through the host)"),
                  "GPUDirect RDMA is off on such a path: NCCL goes through a peer device that is "
                  "nearer, or stages through host memory");
    }
}

/// Cards and devices behind each PCIe switch: all alike, or some devices share a card.
void find_uneven_rails(ForeignCluster& file) {
    const NodeView& view = *file.node;
    if (view.rails().empty() || view.paths.empty()) {
        return;
    }
    std::map<double, std::vector<std::string>> by_share;
    for (const PcieGroup& group : pcie_tree(view).groups) {
        std::int64_t gpus = 0;
        std::int64_t rails = 0;
        std::string name;
        for (const std::size_t part : group.parts) {
            const bool gpu = part < view.gpus.size();
            gpus += gpu ? 1 : 0;
            rails += !gpu && view.part(part).aside.empty() ? 1 : 0;
            if (gpu) {
                name += (name.empty() ? "" : "+") + view.gpus[part].name;
            }
        }
        if (gpus > 0) {
            by_share[static_cast<double>(rails) / static_cast<double>(gpus)].push_back(name);
        }
    }
    const bool some_near = !by_share.empty() && by_share.rbegin()->first > 0.0;
    if (by_share.size() < 2 || !some_near) {
        return;
    }
    const auto& [least, names] = *by_share.begin();
    file.find(least == 0.0 ? "missing-nic" : "uneven-rails", 0,
              listed(names) +
                  (least == 0.0 ? " have no card behind their PCIe switch, "
                                : " share fewer cards behind their PCIe switch than ") +
                  (least == 0.0 ? "where " : "") + listed(by_share.rbegin()->second) +
                  (least == 0.0 ? " have one" : ""),
              "a card is missing, or the node is built that way: the slowest device sets the pace");
}

void find_half_speed(ForeignCluster& file, const sim::Device* device) {
    const NodeView& view = *file.node;
    const LinkShape shape = link_shape(view, device);
    // Meshes of AMD differ from device to device by design.
    if (shape.any && (!view.xgmi || (device != nullptr && device->scaleup_links > 0))) {
        std::vector<std::string> poor;
        const std::int64_t full = device != nullptr && device->scaleup_links > 0
                                      ? device->scaleup_links
                                      : shape.most_links;
        for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
            if (const auto links = links_of(view, gpu, shape); links < full) {
                poor.push_back(view.gpus[gpu].name + " (" + std::to_string(links) + ")");
            }
        }
        if (!poor.empty()) {
            file.find(
                "half-speed", 0,
                listed(poor) + (poor.size() == 1 ? " has" : " have") + " fewer than the " +
                    counted(full, "link") +
                    (device != nullptr && device->scaleup_links == full ? " of " + device->name
                                                                        : " of the best one"),
                "links that are down show in `nvidia-smi nvlink -s`");
        }
    }
    std::map<double, std::vector<std::string>> slots;
    for (const NodePart& gpu : view.gpus) {
        if (gpu.pcie.value() > 0.0) {
            slots[gpu.pcie.value()].push_back(gpu.name);
        }
    }
    // Sheets round; a slot of half the lanes or of an older generation has half the rate or less.
    constexpr double clearly_less = 0.75;
    // Files made for clouds state speeds that only keep NCCL on the right paths.
    const double full =
        device != nullptr && device->pcie_per_direction.value() > 0.0 && view.links_stated
            ? device->pcie_per_direction.value()
        : slots.empty() ? 0.0
                        : slots.rbegin()->first;
    for (const auto& [speed, names] : slots) {
        if (speed < clearly_less * full) {
            file.find("half-speed", 0,
                      listed(names) + (names.size() == 1 ? " sits" : " sit") + " in a slot of " +
                          sim::to_text(sim::Bandwidth(speed)) + ", below " +
                          sim::to_text(sim::Bandwidth(full)),
                      "fewer lanes or an older generation than the device could use");
        }
    }
}

void find_unequal_cards(ForeignCluster& file) {
    const NodeView& view = *file.node;
    std::map<double, std::vector<std::string>> speeds;
    std::map<std::pair<double, double>, std::vector<std::string>> slow_slots;
    for (const std::size_t i : view.rails()) {
        const NodePart& nic = view.part(i);
        if (nic.speed.value() > 0.0) {
            speeds[nic.speed.value()].push_back(nic.name);
        }
        constexpr double clearly_less = 0.9; // sheets round
        if (nic.pcie.value() > 0.0 && nic.pcie < nic.speed * clearly_less) {
            slow_slots[{nic.speed.value(), nic.pcie.value()}].push_back(nic.name);
        }
    }
    for (const auto& [rates, names] : slow_slots) {
        file.find("half-speed", 0,
                  listed(names) + " of " + sim::to_text(sim::Bandwidth(rates.first)) +
                      (names.size() == 1 ? " sits" : " sit") + " in a slot of " +
                      sim::to_text(sim::Bandwidth(rates.second)),
                  "the slot limits the card");
    }
    if (speeds.size() > 1) {
        const auto& [speed, names] = *speeds.begin();
        file.find("half-speed", 0,
                  listed(names) + (names.size() == 1 ? " runs" : " run") + " at " +
                      sim::to_text(sim::Bandwidth(speed)) + ", the fastest card at " +
                      sim::to_text(sim::Bandwidth(speeds.rbegin()->first)),
                  "a link that came up at a lower rate, or a card of another kind");
    }
}

} // namespace

void diagnose_node(ForeignCluster& file, const sim::Device* device) {
    if (!file.node) {
        return;
    }
    if (!file.node->paths.empty()) {
        if (file.node->links_stated) {
            find_no_peer_access(file, device);
        }
        find_far_nics(file);
        find_uneven_rails(file);
    }
    find_half_speed(file, device);
    find_unequal_cards(file);
}

} // namespace shardplan::plan
