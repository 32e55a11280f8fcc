#include "planner/import/fabric_view.hpp"

#include <algorithm>
#include <set>

#include "planner/import/import_text.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {

using sim::in_quotes;
using text::counted;
using text::listed;

std::size_t FabricBuilder::add_switch(const std::string& name, std::int64_t line) {
    const auto [at, fresh] = switches_.emplace(name, view().switches.size());
    if (fresh) {
        FabricSwitch made;
        made.name = name;
        made.line = line;
        // Tools that write these files put nodes without a known place under such a name.
        made.placeless = name == "unknown" || name.ends_with(".unknown");
        view().switches.push_back(std::move(made));
    }
    return at->second;
}

std::size_t FabricBuilder::add_node(const std::string& name, std::int64_t line) {
    const auto [at, fresh] = nodes_.emplace(name, view().nodes.size());
    if (fresh) {
        FabricNode made;
        made.name = name;
        made.line = line;
        view().nodes.push_back(std::move(made));
    }
    return at->second;
}

void FabricBuilder::hang_node(std::size_t under, const std::string& name, std::int64_t line) {
    const std::size_t node = add_node(name, line);
    auto& leaf = view().nodes[node].leaf;
    if (leaf && *leaf != under) {
        out_.find("duplicate-node", line,
                  "node " + in_quotes(name) + " hangs on " +
                      in_quotes(view().switches[*leaf].name) + " already; it is left there",
                  "a node has one place");
        return;
    }
    if (!leaf) {
        leaf = under;
        view().switches[under].nodes.push_back(node);
    }
}

void FabricBuilder::hang_switch(std::size_t under, std::size_t child, std::int64_t line) {
    FabricSwitch& below = view().switches[child];
    if (under == child || below.has_parent) {
        out_.find("duplicate-switch", line,
                  in_quotes(below.name) + (under == child ? " stands below itself"
                                                          : " stands below two switches; the first "
                                                            "one counts"),
                  "a tree names each switch below one other");
        return;
    }
    below.has_parent = true;
    view().switches[under].children.push_back(child);
}

std::vector<std::string> FabricBuilder::expand(const std::string& list, std::int64_t line,
                                               const std::string& what) {
    constexpr std::size_t most_in_file = std::size_t{1} << 20;
    if (expanded_ > most_in_file) {
        out_.lose(line, what + ": the file names more than " + std::to_string(most_in_file));
        return {};
    }
    auto names = text::expand_hosts(list, out_.source);
    if (!names) {
        out_.lose(line, what + ": " + names.error().what);
        return {};
    }
    expanded_ += names->size();
    return std::move(*names);
}

void compare_with_inventory(ForeignCluster& file, const std::vector<std::string>& inventory) {
    if (!file.fabric) {
        return;
    }
    const std::set<std::string> there(inventory.begin(), inventory.end());
    std::set<std::string> named;
    for (FabricNode& node : file.fabric->nodes) {
        named.insert(node.name);
        if (there.count(node.name) == 0) {
            file.find("no-such-node", node.line,
                      "node " + in_quotes(node.name) + " does not exist: it is not among --nodes",
                      "remove it from the file, or add it to --nodes");
            node.trouble = "does not exist";
        }
    }
    std::vector<std::string> absent;
    for (const std::string& name : inventory) {
        if (named.count(name) == 0) {
            absent.push_back(name);
        }
    }
    if (!absent.empty()) {
        file.find("unlisted-node", 0,
                  listed(absent) + (absent.size() == 1 ? " is" : " are") +
                      " among --nodes, but not in the file",
                  "add them to the file, or take them out of --nodes");
    }
}

namespace {

void find_trees(ForeignCluster& file) {
    const FabricView& view = *file.fabric;
    std::vector<std::string> trees;
    for (const std::size_t root : view.roots()) {
        const FabricSwitch& top = view.switches[root];
        const auto nodes = static_cast<std::int64_t>(view.nodes_below(root).size());
        if (top.placeless) {
            file.find("no-place", top.line,
                      counted(nodes, "node") + " under " + in_quotes(top.name) +
                          (nodes == 1 ? " has" : " have") + " no known place in the fabric",
                      "a plan leaves them out unless --nodes names them alone");
        } else if (nodes == 0) {
            file.find("empty-switch", top.line, in_quotes(top.name) + " holds no node",
                      "remove it, or add its nodes");
        } else {
            trees.push_back(in_quotes(top.name) + " (" + counted(nodes, "node") + ")");
        }
    }
    if (trees.size() > 1 && trees_are_separate(view)) {
        file.find(
            "separate-trees", 0,
            std::to_string(trees.size()) + " trees without a way between them: " + listed(trees),
            "a job runs within one; --nodes chooses which");
    }
}

void find_rings(ForeignCluster& file) {
    const FabricView& view = *file.fabric;
    std::set<std::size_t> reached;
    for (const std::size_t root : view.roots()) {
        for (const std::size_t node : view.nodes_below(root)) {
            reached.insert(node);
        }
    }
    for (const FabricNode& node : view.nodes) {
        if (node.leaf && reached.count(static_cast<std::size_t>(&node - view.nodes.data())) == 0) {
            file.find("switch-ring", view.switches[*node.leaf].line,
                      "switches stand below one another in a ring, among them " +
                          in_quotes(view.switches[*node.leaf].name),
                      "one of them must be the top");
            return;
        }
    }
}

void find_degraded(ForeignCluster& file) {
    std::vector<std::string> names;
    for (const FabricNode& node : file.fabric->nodes) {
        if (!node.trouble.empty() && node.trouble != "does not exist") {
            names.push_back(node.name + " (" + node.trouble + ")");
        }
    }
    if (!names.empty()) {
        file.find("degraded-node", 0,
                  counted(static_cast<std::int64_t>(names.size()), "node") +
                      " cannot be planned with: " + listed(names),
                  "they are left out of a plan until they are whole again");
    }
}

} // namespace

void diagnose_fabric(ForeignCluster& file) {
    if (!file.fabric) {
        return;
    }
    if (file.fabric->nodes.empty() && file.fabric->switches.empty()) {
        file.find("empty", 0, "the file is valid, but names no switch and no node",
                  "nothing is assumed about the fabric; fill the file, or give a cluster file");
        return;
    }
    find_trees(file);
    find_rings(file);
    find_degraded(file);
}

std::vector<std::int64_t> leaf_sizes(const FabricView& view, bool usable_only) {
    std::vector<std::int64_t> out;
    for (const std::size_t leaf : view.leaves()) {
        std::int64_t nodes = 0;
        for (const std::size_t node : view.switches[leaf].nodes) {
            nodes += !usable_only || view.nodes[node].trouble.empty() ? 1 : 0;
        }
        out.push_back(nodes);
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::int64_t gangs_in_leaves(const FabricView& view, std::int64_t nodes) {
    std::int64_t gangs = 0;
    for (const std::int64_t size : leaf_sizes(view, true)) {
        gangs += size / nodes;
    }
    return gangs;
}

} // namespace shardplan::plan
