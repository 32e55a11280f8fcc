#include "simulator/estimate/node_groups.hpp"

#include <algorithm>

#include "simulator/compute/op_time.hpp"
#include "simulator/network/path_parts.hpp"

namespace shardplan::sim {

namespace {

void add_class(const ClassMemory& c, GroupUse& use) {
    use.ranks += c.ranks;
    use.stages.push_back(c.stage); // classes stand by stage
    if (use.usable.value() <= 0.0 || c.usable < use.usable) use.usable = c.usable;
}

void add_hardware(const Scenario& scenario, const Resolved& resolved, GroupUse& use) {
    const auto g = static_cast<std::size_t>(use.node_group);
    const NodeGroup& group = scenario.cluster.node_groups[g];
    const NodeTemplate& node = group.node;
    use.name = group.name.empty() ? "nodes " + std::to_string(g) : group.name;
    use.device = scenario.devices[g].name;
    use.peak = FlopRate(peak_of(scenario.devices[g], resolved.compute));
    use.scaleup = name_of(node.scaleup.kind);
    const std::int64_t domain =
        node.scaleup.domain_devices > 0 ? node.scaleup.domain_devices : node.devices;
    if (domain > 1) use.scaleup_per_rank = domain_level(scenario, g, domain).per_rank;
    if (scenario.cluster.fabric.kind != FabricKind::none) {
        use.network = name_of(scenario.cluster.fabric.kind);
        if (node.nics.count > 0) use.network_per_rank = nic_level(scenario, g).per_rank;
    }
    use.staged_cards = staged_cards(node.nics);
    use.price_per_device_hour = group.price_per_device_hour;
}

/// Marks the entry with the least of a figure; nothing where all have the same.
template <class Figure>
void mark_least(std::vector<GroupUse>& uses, Figure GroupUse::*figure, bool GroupUse::*mark) {
    const auto [least, most] = std::minmax_element(
        uses.begin(), uses.end(),
        [&](const GroupUse& a, const GroupUse& b) { return a.*figure < b.*figure; });
    if (least == uses.end() || !((*least).*figure < (*most).*figure)) return;
    const Figure lowest = (*least).*figure;
    for (GroupUse& use : uses)
        use.*mark = !(lowest < use.*figure);
}

} // namespace

std::vector<GroupUse> group_uses(const Scenario& scenario, const Resolved& resolved,
                                 const std::vector<ClassMemory>& classes) {
    std::vector<GroupUse> out;
    for (std::size_t g = 0; g < scenario.cluster.node_groups.size(); ++g) {
        GroupUse use;
        use.node_group = static_cast<std::int64_t>(g);
        for (const ClassMemory& c : classes) {
            if (c.node_group == use.node_group) add_class(c, use);
        }
        if (use.ranks == 0) continue;
        add_hardware(scenario, resolved, use);
        out.push_back(std::move(use));
    }
    mark_least(out, &GroupUse::peak, &GroupUse::slowest_device);
    mark_least(out, &GroupUse::scaleup_per_rank, &GroupUse::slowest_scaleup);
    mark_least(out, &GroupUse::network_per_rank, &GroupUse::slowest_network);
    return out;
}

} // namespace shardplan::sim
