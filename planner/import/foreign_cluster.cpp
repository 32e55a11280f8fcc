#include "planner/import/foreign_cluster.hpp"

#include <algorithm>
#include <array>
#include <set>

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
    // A switch may stand in a ring: each is visited once. The cost follows what is below, as large
    // files have many roots.
    std::set<std::size_t> seen = {root};
    std::vector<std::size_t> open = {root};
    std::vector<std::size_t> out;
    while (!open.empty()) {
        const FabricSwitch& at = switches[open.back()];
        open.pop_back();
        out.insert(out.end(), at.nodes.begin(), at.nodes.end());
        for (const std::size_t child : at.children) {
            if (seen.insert(child).second) {
                open.push_back(child);
            }
        }
    }
    std::sort(out.begin(), out.end());
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
