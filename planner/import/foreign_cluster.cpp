#include "planner/import/foreign_cluster.hpp"

#include <array>

namespace shardplan::plan {

std::string_view name_of(PathKind kind) {
    constexpr std::array<std::string_view, 8> names = {"X",   "NV",   "PIX", "PXB",
                                                       "PHB", "NODE", "SYS", "?"};
    return names[static_cast<std::size_t>(kind)];
}

std::vector<std::size_t> NodeView::rails() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < nics.size(); ++i) {
        if (nics[i].aside.empty()) {
            out.push_back(gpus.size() + i);
        }
    }
    return out;
}

std::vector<std::size_t> FabricView::roots() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < switches.size(); ++i) {
        if (!switches[i].has_parent) {
            out.push_back(i);
        }
    }
    return out;
}

std::vector<std::size_t> FabricView::nodes_below(std::size_t root) const {
    // A switch may be named below two others, or below itself: each is visited once.
    std::vector<bool> seen(switches.size(), false);
    std::vector<bool> taken(nodes.size(), false);
    std::vector<std::size_t> open = {root};
    seen[root] = true;
    while (!open.empty()) {
        const FabricSwitch& at = switches[open.back()];
        open.pop_back();
        for (const std::size_t node : at.nodes) {
            taken[node] = true;
        }
        for (const std::size_t child : at.children) {
            if (!seen[child]) {
                seen[child] = true;
                open.push_back(child);
            }
        }
    }
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (taken[i]) {
            out.push_back(i);
        }
    }
    return out;
}

std::vector<std::size_t> FabricView::leaves() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < switches.size(); ++i) {
        if (!switches[i].nodes.empty()) {
            out.push_back(i);
        }
    }
    return out;
}

} // namespace shardplan::plan
