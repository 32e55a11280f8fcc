#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/import/foreign_cluster.hpp"

/// Building and judging the network between nodes.
namespace shardplan::plan {

/// Puts switches and nodes together by name, in the order of the file.
class FabricBuilder {
public:
    explicit FabricBuilder(ForeignCluster& out) : out_(out) { out_.fabric.emplace(); }

    /// The switch of this name; made if there is none.
    std::size_t add_switch(const std::string& name, std::int64_t line);
    [[nodiscard]] bool has_switch(const std::string& name) const {
        return switches_.count(name) > 0;
    }
    /// The node of this name; made if there is none.
    std::size_t add_node(const std::string& name, std::int64_t line);
    /// A node below a switch. A node that hangs on another switch already stays there, and that is
    /// a diagnosis.
    void hang_node(std::size_t under, const std::string& name, std::int64_t line);
    /// A switch below another.
    void hang_switch(std::size_t under, std::size_t child, std::int64_t line);

    /// The names behind a host list. Nothing, with what was lost by it, where the list is none or
    /// the lists of the file stand for more than a million names in all.
    std::vector<std::string> expand(const std::string& list, std::int64_t line,
                                    const std::string& what);

    FabricView& view() { return *out_.fabric; }

private:
    ForeignCluster& out_;
    std::size_t expanded_ = 0;
    std::map<std::string, std::size_t> switches_;
    std::map<std::string, std::size_t> nodes_;
};

/// Compares the nodes of a file with those that exist. A node of the file that is not in
/// `inventory` gets a diagnosis with its line and cannot be planned with; nodes of the inventory
/// that the file leaves out get one together.
void compare_with_inventory(ForeignCluster& file, const std::vector<std::string>& inventory);

/// Adds what is wrong with the fabric: trees without a way to one another, nodes without a place,
/// an empty file, degraded nodes.
void diagnose_fabric(ForeignCluster& file);

/// Whether trees of switches have no way to one another: in a Slurm tree, yes. Blocks, rings and
/// groups told by labels stand in a fabric that the file does not draw.
inline bool trees_are_separate(const FabricView& view) { return view.level_word == "switch"; }

/// Sizes of the leaves in nodes that can be planned with, smallest first; and how many gangs of
/// `nodes` nodes fit inside single leaves.
std::vector<std::int64_t> leaf_sizes(const FabricView& view, bool usable_only);
std::int64_t gangs_in_leaves(const FabricView& view, std::int64_t nodes);

} // namespace shardplan::plan
