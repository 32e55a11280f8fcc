#include <algorithm>
#include <map>

#include "planner/import/build_parts.hpp"
#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

// From a tree of switches to levels of equal groups. Real trees are uneven; a level is taken to
// hold as many nodes as the groups that half of all nodes sit in have at least.
namespace shardplan::plan {
namespace {

using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

/// Usable nodes below a switch.
std::vector<std::size_t> usable_below(const FabricView& view, std::size_t root) {
    std::vector<std::size_t> nodes = view.nodes_below(root);
    std::erase_if(nodes, [&](std::size_t node) { return !view.nodes[node].trouble.empty(); });
    return nodes;
}

/// The size such that half of all members sit in groups at least as large.
std::int64_t middle_size(std::vector<std::int64_t> sizes) {
    std::sort(sizes.rbegin(), sizes.rend());
    std::int64_t all = 0;
    for (const std::int64_t size : sizes) {
        all += size;
    }
    std::int64_t seen = 0;
    for (const std::int64_t size : sizes) {
        seen += size;
        if (2 * seen >= all) {
            return size;
        }
    }
    return 0;
}

/// Sizes of all groups by their height above the nodes, below `root`.
void sizes_by_height(const FabricView& view, std::size_t at, std::vector<bool>& seen,
                     std::map<int, std::vector<std::int64_t>>& sizes, int& height,
                     std::int64_t& nodes, int depth) {
    seen[at] = true;
    height = 0;
    nodes = 0;
    for (const std::size_t node : view.switches[at].nodes) {
        nodes += view.nodes[node].trouble.empty() ? 1 : 0;
    }
    constexpr int deepest = 64;
    for (const std::size_t child : view.switches[at].children) {
        if (seen[child] || depth > deepest) {
            continue;
        }
        int below = 0;
        std::int64_t inside = 0;
        sizes_by_height(view, child, seen, sizes, below, inside, depth + 1);
        height = std::max(height, below + 1);
        nodes += inside;
    }
    sizes[height].push_back(nodes);
}

std::string level_name(const FabricView& view, int height, bool top) {
    if (static_cast<std::size_t>(height) < view.level_names.size()) {
        return view.level_names[static_cast<std::size_t>(height)];
    }
    if (height == 0) {
        return view.level_word == "block" ? "block" : "leaf";
    }
    return top ? "top" : height == 1 ? "spine" : "level " + std::to_string(height);
}

/// Levels of the trees below `roots`; of several roots a level above holds all.
std::vector<sim::FabricLevel> levels_below(const FabricView& view,
                                           const std::vector<std::size_t>& roots,
                                           std::vector<sim::Assumption>& assumptions) {
    std::map<int, std::vector<std::int64_t>> sizes;
    std::vector<bool> seen(view.switches.size(), false);
    int tallest = 0;
    for (const std::size_t root : roots) {
        int height = 0;
        std::int64_t nodes = 0;
        sizes_by_height(view, root, seen, sizes, height, nodes, 0);
        tallest = std::max(tallest, height);
    }
    const int top = roots.size() > 1 ? tallest + 1 : tallest;
    std::vector<sim::FabricLevel> out;
    std::int64_t below = 1;
    for (const auto& [height, groups] : sizes) {
        if (height == top) {
            break;
        }
        const std::int64_t middle = middle_size(groups);
        const std::int64_t fitted = std::max(middle / below, std::int64_t{1}) * below;
        const bool even = std::all_of(groups.begin(), groups.end(),
                                      [&](std::int64_t size) { return size == fitted; });
        if (!even) {
            const auto [least, most] = std::minmax_element(groups.begin(), groups.end());
            assumptions.push_back(
                {"cluster.fabric.levels",
                 level_name(view, height, false) + " of " + text::counted(fitted, "node"),
                 "half of the nodes sit in groups of that size or more",
                 "the file has groups of " + std::to_string(*least) + " to " +
                     std::to_string(*most)});
        }
        if (out.empty() || fitted > below) {
            out.push_back({level_name(view, height, false), fitted, 1.0, {}});
            below = fitted;
        }
    }
    out.push_back({level_name(view, top, true), 0, 1.0, {}});
    assumptions.push_back({"cluster.fabric.oversubscription", "1 : 1", "default",
                           "the file does not count uplinks; --set "
                           "\"cluster.fabric.levels[0].oversubscription=2\""});
    return out;
}

/// Trees to plan with: all where they are joined, else the one with the most usable nodes.
std::vector<std::size_t> chosen_roots(const FabricView& view,
                                      std::vector<sim::Assumption>& assumptions) {
    std::vector<std::size_t> roots;
    std::size_t most = 0;
    for (const std::size_t root : view.roots()) {
        const std::size_t nodes = usable_below(view, root).size();
        if (view.switches[root].placeless || nodes == 0) {
            continue;
        }
        if (!trees_are_separate(view)) {
            roots.push_back(root);
        } else if (nodes > most) {
            most = nodes;
            roots = {root};
        }
    }
    const auto usable = static_cast<std::size_t>(
        std::count_if(view.nodes.begin(), view.nodes.end(),
                      [](const FabricNode& node) { return node.trouble.empty(); }));
    if (trees_are_separate(view) && most > 0 && most < usable) {
        assumptions.push_back({"cluster.nodes", "those below " + view.switches[roots.front()].name,
                               "the largest tree",
                               "nodes of other trees have no way to it; --nodes chooses others"});
    }
    return roots;
}

struct Kind {
    std::string product;
    std::int64_t gpus = -1;
    std::int64_t nics = -1;

    auto operator<=>(const Kind&) const = default;
};

/// The node of a kind, from `--node`, or from the device where the file names one.
sim::Result<sim::NodeTemplate> node_of_kind(const ForeignCluster& file, const Kind& kind,
                                            const FabricNode& example, const ImportHelp& help,
                                            std::vector<sim::Assumption>& assumptions) {
    const sim::NodeTemplate* base = help.node ? &help.node->node_groups.front().node : nullptr;
    const std::string product = !help.device.empty() ? help.device : kind.product;
    if (base != nullptr && (product.empty() || kind.gpus < 1)) {
        sim::NodeTemplate node = *base;
        if (kind.gpus > 0 && kind.gpus != node.devices) {
            return Error{ErrorCode::bad_input, "--node",
                         "its nodes have " + text::counted(node.devices, "device") +
                             ", those of the file " + std::to_string(kind.gpus),
                         "name a cluster with such nodes"};
        }
        return node;
    }
    if (product.empty() || kind.gpus < 1) {
        return Error{ErrorCode::bad_input, file.source,
                     "it is " + file.format +
                         ": it says how nodes hang together, not what is in "
                         "them",
                     "add --node CLUSTER, a name or file whose nodes are like these, as in --node "
                     "dgx-h100"};
    }
    if (const auto status = check_base(file, help, kind.product); !status) {
        return status.error();
    }
    auto found = find_product(product, help.catalogue);
    if (!found && base == nullptr) {
        return Error{ErrorCode::not_found, file.source,
                     "no device " + in_quotes(product) + " is in the catalogue",
                     "name it as the catalogue does, with --device NAME"};
    }
    NodeView view;
    view.gpus.resize(static_cast<std::size_t>(std::min<std::int64_t>(kind.gpus, 256)));
    view.links_stated = false;
    sim::NodeTemplate node = node_of(view, found ? &found->value : nullptr, base, assumptions);
    if (found) {
        assumptions.insert(assumptions.end(), found->assumptions.begin(), found->assumptions.end());
    }
    node.device = found ? found->value.name : product;
    if (kind.nics > 0) {
        node.nics.count = kind.nics;
    }
    node.host.cores = example.cores > 0 ? example.cores : node.host.cores;
    node.host.memory = example.memory.value() > 0.0 ? example.memory : node.host.memory;
    return node;
}

} // namespace

sim::Result<ImportedCluster> build_nodes(const ForeignCluster& file, const ImportHelp& help) {
    if (!file.fabric || file.fabric->nodes.empty()) {
        return Error{ErrorCode::bad_input, file.source,
                     "it is " + file.format + ", and names no node: there is nothing to plan with",
                     "fill the file, or name a cluster"};
    }
    const FabricView& view = *file.fabric;
    ImportedCluster out;
    const auto roots = chosen_roots(view, out.assumptions);
    std::vector<std::size_t> nodes;
    for (const std::size_t root : roots) {
        const auto below = usable_below(view, root);
        nodes.insert(nodes.end(), below.begin(), below.end());
    }
    if (roots.empty()) {
        for (std::size_t i = 0; i < view.nodes.size(); ++i) {
            if (view.nodes[i].trouble.empty()) {
                nodes.push_back(i);
            }
        }
        out.assumptions.push_back({"cluster.fabric.levels", "none", file.format,
                                   "the file does not say how the nodes are connected"});
    } else {
        out.cluster.fabric.levels = levels_below(view, roots, out.assumptions);
    }
    std::vector<std::pair<Kind, std::vector<std::size_t>>> kinds;
    for (const std::size_t node : nodes) {
        const Kind kind{view.nodes[node].product, view.nodes[node].gpus, view.nodes[node].nics};
        if (kind.gpus == 0) {
            continue; // a node without devices
        }
        const auto at = std::find_if(kinds.begin(), kinds.end(),
                                     [&](const auto& k) { return k.first == kind; });
        if (at == kinds.end()) {
            kinds.push_back({kind, {node}});
        } else {
            at->second.push_back(node);
        }
    }
    if (kinds.size() > 1) { // nodes of a login or a controller have no device to speak of
        std::erase_if(kinds, [](const auto& kind) { return kind.first.gpus < 0; });
    }
    const auto is_asked_for = [&](const auto& kind) {
        return same_product(kind.first.product, help.device, help.catalogue);
    };
    if (std::any_of(kinds.begin(), kinds.end(), is_asked_for)) { // --device chooses among kinds
        std::erase_if(kinds, [&](const auto& kind) { return !is_asked_for(kind); });
    }
    if (kinds.empty()) {
        return Error{ErrorCode::bad_input, file.source, "no node of it can be planned with",
                     "see `shardplan cluster " + file.source + "` for what each one lacks"};
    }
    for (const auto& [kind, members] : kinds) {
        auto node = node_of_kind(file, kind, view.nodes[members.front()], help, out.assumptions);
        if (!node) {
            return node.error();
        }
        sim::NodeGroup group;
        group.name = kinds.size() == 1 ? "nodes" : "nodes of " + node->device;
        group.count = static_cast<std::int64_t>(members.size());
        group.node = std::move(*node);
        if (help.node) {
            group.price_per_device_hour = help.node->node_groups.front().price_per_device_hour;
            group.mean_time_to_failure = help.node->node_groups.front().mean_time_to_failure;
        }
        out.cluster.node_groups.push_back(std::move(group));
    }
    if (help.node) {
        out.cluster.fabric.kind = help.node->fabric.kind;
        out.cluster.fabric.rails = help.node->fabric.rails;
        out.cluster.currency = help.node->currency;
        out.cluster.storage = help.node->storage;
        out.cluster.devices = help.node->devices;
    }
    return out;
}

} // namespace shardplan::plan
