#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/import/build_cluster.hpp"
#include "planner/import/node_view.hpp"
#include "simulator/io/catalogue.hpp"

/// Steps of build_cluster().
namespace shardplan::plan {

/// Products that a file names for its usable devices, each once.
std::vector<std::string> products_of(const ForeignCluster& file);
/// A product by any of its spellings, also of labels and by its number on the PCI bus.
std::optional<sim::Loaded<sim::Device>> find_product(const std::string& product,
                                                     const std::vector<sim::Device>& catalogue);
/// Whether two spellings mean one product of the catalogue; spellings that nobody knows, if equal.
bool same_product(const std::string& a, const std::string& b,
                  const std::vector<sim::Device>& catalogue);
/// Refuses a node of --node whose devices are not those that the file names, unless --device says
/// that this is meant. `product`: of the file; empty: it names none.
sim::Status check_base(const ForeignCluster& file, const ImportHelp& help,
                       const std::string& product);
/// By more than drivers keep for themselves.
bool differs_from_catalogue(sim::Bytes memory, const sim::Device& device);

/// The view with those devices only.
NodeView keep_gpus(const NodeView& view, const std::function<bool(const NodePart&)>& keep);
/// The template of a node seen from the inside. `device`: nullptr where nobody knows it. `base`
/// fills in what the file lacks; nullptr: nothing does.
sim::NodeTemplate node_of(const NodeView& view, const sim::Device* device,
                          const sim::NodeTemplate* base, std::vector<sim::Assumption>& assumptions);
/// The explicit graph of a node, into its template, which has its devices, cards and bandwidths.
void add_graph(sim::NodeTemplate& node, const NodeView& view, const LinkShape& shape,
               sim::Bandwidth per_link, std::vector<sim::Assumption>& assumptions);

/// A cluster of nodes whose insides come from elsewhere.
sim::Result<ImportedCluster> build_nodes(const ForeignCluster& file, const ImportHelp& help);

} // namespace shardplan::plan
