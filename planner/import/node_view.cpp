#include "planner/import/node_view.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "planner/import/import_text.hpp"
#include "simulator/units/lower_case.hpp"

namespace shardplan::plan {
namespace {

/// Sets of parts that belong together.
class Sets {
public:
    explicit Sets(std::size_t size) : parent_(size) {
        std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    }
    std::size_t root(std::size_t i) {
        while (parent_[i] != i) {
            parent_[i] = parent_[parent_[i]];
            i = parent_[i];
        }
        return i;
    }
    /// The smaller number stays the root, so that sets keep the order of the file.
    void join(std::size_t a, std::size_t b) {
        a = root(a);
        b = root(b);
        parent_[std::max(a, b)] = std::min(a, b);
    }

private:
    std::vector<std::size_t> parent_;
};

/// "mlx5" of "mlx5_bond_0", "irdma" of "irdma0".
std::string driver_of(const std::string& product) {
    const std::size_t end = product.find('_');
    std::string stem = product.substr(0, end);
    if (end == std::string::npos) {
        while (!stem.empty() && stem.back() >= '0' && stem.back() <= '9') {
            stem.pop_back();
        }
    }
    return sim::lower_case(stem);
}

bool is_bond(const NodePart& nic) { return text::holds(sim::lower_case(nic.product), "bond"); }

bool any_near_gpu(const NodeView& view, std::size_t nic) {
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
        if (is_near(view.path(gpu, view.gpus.size() + nic).kind)) {
            return true;
        }
    }
    return false;
}

} // namespace

void set_cards_aside(NodeView& view) {
    std::map<std::string, int> by_driver;
    for (NodePart& nic : view.nics) {
        if (!is_bond(nic)) {
            ++by_driver[driver_of(nic.product)];
        }
    }
    if (by_driver.empty()) { // a bond is all there is
        return;
    }
    for (NodePart& nic : view.nics) {
        if (is_bond(nic)) {
            nic.aside = "a bond: management or storage";
        }
    }
    const auto usual =
        std::max_element(by_driver.begin(), by_driver.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    for (NodePart& nic : view.nics) {
        if (nic.aside.empty() && usual->second > by_driver[driver_of(nic.product)]) {
            nic.aside = "another make than the other " + std::to_string(usual->second);
        }
    }
    const auto rails = view.rails();
    const bool some_near = std::any_of(rails.begin(), rails.end(), [&](std::size_t nic) {
        return any_near_gpu(view, nic - view.gpus.size());
    });
    if (!some_near) {
        return;
    }
    for (std::size_t i = 0; i < view.nics.size(); ++i) {
        if (view.nics[i].aside.empty() && !any_near_gpu(view, i)) {
            view.nics[i].aside = "far from every device: management or storage";
        }
    }
}

PcieTree pcie_tree(const NodeView& view) {
    const std::size_t n = view.size();
    Sets groups(n);
    Sets sockets(n);
    for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = a + 1; b < n; ++b) {
            const PathKind kind = view.path(a, b).kind;
            if (is_near(kind)) {
                groups.join(a, b);
            }
            const NodePart& one = view.part(a);
            const NodePart& other = view.part(b);
            const bool same_numa = one.numa >= 0 ? one.numa == other.numa
                                                 : !one.cores.empty() && one.cores == other.cores;
            if (is_near(kind) || kind == PathKind::phb || kind == PathKind::node || same_numa) {
                sockets.join(a, b);
            }
        }
    }
    PcieTree out;
    std::map<std::size_t, std::size_t> group_of;
    std::map<std::size_t, std::size_t> socket_of;
    for (std::size_t i = 0; i < n; ++i) {
        const auto socket = socket_of.emplace(sockets.root(i), socket_of.size()).first;
        const auto group = group_of.emplace(groups.root(i), out.groups.size());
        if (group.second) {
            out.groups.push_back({{}, socket->second});
        }
        out.groups[group.first->second].parts.push_back(i);
    }
    out.sockets = socket_of.size();
    return out;
}

LinkShape link_shape(const NodeView& view, const sim::Device* device) {
    LinkShape out;
    const std::size_t g = view.gpus.size();
    Sets linked(g);
    std::int64_t pair_least = -1;
    std::int64_t pair_most = 0;
    for (std::size_t a = 0; a < g; ++a) {
        for (std::size_t b = a + 1; b < g; ++b) {
            const Path path = view.path(a, b);
            const std::int64_t links = path.kind == PathKind::nvlink ? path.links : 0;
            pair_least = pair_least < 0 ? links : std::min(pair_least, links);
            pair_most = std::max(pair_most, links);
            if (links > 0) {
                linked.join(a, b);
            }
        }
    }
    out.any = pair_most > 0;
    out.uniform = out.any && pair_least == pair_most;
    // Behind a switch every pair sees all links of a device; no device has that many for each peer.
    constexpr std::int64_t most_links_of_a_device = 18;
    const std::int64_t limit = device != nullptr && device->scaleup_links > 0
                                   ? device->scaleup_links
                                   : most_links_of_a_device;
    out.switched = view.switched || (out.any && pair_least > 0 &&
                                     pair_most * static_cast<std::int64_t>(g - 1) > limit);
    for (std::size_t a = 0; a < g; ++a) {
        const std::int64_t links = links_of(view, a, out);
        out.least_links = a == 0 ? links : std::min(out.least_links, links);
        out.most_links = std::max(out.most_links, links);
    }
    std::map<std::size_t, std::int64_t> sizes;
    for (std::size_t a = 0; a < g; ++a) {
        ++sizes[linked.root(a)];
    }
    for (const auto& [root, size] : sizes) {
        out.domain = out.domain == 0 ? size : std::min(out.domain, size);
    }
    for (const auto& [root, size] : sizes) {
        out.equal_domains = out.equal_domains && size == out.domain;
    }
    return out;
}

std::int64_t links_of(const NodeView& view, std::size_t gpu, const LinkShape& shape) {
    std::int64_t sum = 0;
    std::int64_t most = 0;
    for (std::size_t other = 0; other < view.gpus.size(); ++other) {
        const Path path = view.path(gpu, other);
        if (other != gpu && path.kind == PathKind::nvlink) {
            sum += path.links;
            most = std::max(most, path.links);
        }
    }
    return shape.switched ? most : sum;
}

Path nearest_rail(const NodeView& view, std::size_t gpu) {
    Path best;
    for (const std::size_t nic : view.rails()) {
        const Path path = view.path(gpu, nic);
        if (path.kind < best.kind) {
            best = path;
        }
    }
    return best;
}

} // namespace shardplan::plan
