#include <map>

#include "planner/import/build_cluster.hpp"
#include "planner/import/build_parts.hpp"
#include "planner/import/fabric_view.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/node_view.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

using sim::Device;
using sim::in_quotes;

/// "NVIDIA GeForce RTX 4090 D" against "NVIDIA GeForce RTX 4090": the same name with more behind.
const Device* relative_of(const std::string& product, const std::vector<Device>& catalogue) {
    for (const Device& device : catalogue) {
        for (const std::string& alias : device.aliases) {
            if (product.size() > alias.size() && product.starts_with(alias) &&
                product[alias.size()] == ' ') {
                return &device;
            }
        }
    }
    return nullptr;
}

std::string names_of(const std::vector<const NodePart*>& parts) {
    std::vector<std::string> names;
    for (const NodePart* part : parts) {
        names.push_back(part->name);
    }
    return text::listed(names) + (names.size() == 1 ? " is " : " are ");
}

void diagnose_kind(ForeignCluster& file, const NodePart& gpu, const std::string& who,
                   const std::vector<Device>& catalogue) {
    const auto found = find_product(gpu.product, catalogue);
    if (found && differs_from_catalogue(gpu.memory, found->value)) {
        file.find("modified-device", gpu.line,
                  who + "called " + in_quotes(gpu.product) + ", with " + sim::to_text(gpu.memory) +
                      " and not " + sim::to_text(found->value.memory_visible) +
                      ": a modified card, or a share of one",
                  "its memory is taken from the file");
        return;
    }
    if (found) {
        return;
    }
    const Device* relative = relative_of(gpu.product, catalogue);
    const bool modified = relative != nullptr && differs_from_catalogue(gpu.memory, *relative);
    const std::string sold =
        modified ? "; cards of that name are sold with " +
                       sim::format_exact(relative->memory_label.value(), sim::Dimension::bytes) +
                       ", this one has " + sim::to_text(gpu.memory) + ": a modified card"
                 : "";
    const bool has_memory = gpu.memory.value() > 0.0;
    file.find(modified ? "modified-device" : "unknown-device", gpu.line,
              who + in_quotes(gpu.product) + ", which is not in the catalogue" + sold,
              has_memory ? "its memory is taken from the file; give its dense peak and its memory "
                           "bandwidth: --device-peak, --device-bandwidth"
                         : "name it as the catalogue does, with --device NAME");
}

/// Products nobody knows, and memory that is not that of the product.
void diagnose_products(ForeignCluster& file, const std::vector<Device>& catalogue) {
    if (!file.node) {
        return;
    }
    // Equal devices are spoken of together.
    std::map<std::pair<std::string, double>, std::vector<const NodePart*>> kinds;
    for (const NodePart& gpu : file.node->gpus) {
        if (!gpu.product.empty()) {
            kinds[{gpu.product, gpu.memory.value()}].push_back(&gpu);
        }
    }
    for (const auto& [kind, parts] : kinds) {
        diagnose_kind(file, *parts.front(), names_of(parts), catalogue);
    }
}

} // namespace

void diagnose(ForeignCluster& file, const ImportHelp& help,
              const std::vector<std::string>* inventory) {
    if (inventory != nullptr) {
        compare_with_inventory(file, *inventory);
    }
    const auto device = device_of(file, help);
    diagnose_products(file, help.catalogue);
    diagnose_node(file, device ? &*device : nullptr);
    diagnose_fabric(file);
}

} // namespace shardplan::plan
