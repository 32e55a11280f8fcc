#include "simulator/spec/calibration_subject.hpp"

#include <algorithm>

namespace shardplan::sim {

bool names_part_of(const CalibrationEntry& entry, const Scenario& scenario) {
    const std::string_view path = entry.path;
    if (path.starts_with("stack.")) {
        return concerns(entry, {scenario.stack.name, scenario.stack.derived_from});
    }
    if (path.starts_with("device.")) {
        return std::any_of(scenario.devices.begin(), scenario.devices.end(),
                           [&](const Device& device) { return concerns(entry, {device.name}); });
    }
    if (counts_processors(entry)) {
        return std::any_of(
            scenario.cluster.node_groups.begin(), scenario.cluster.node_groups.end(),
            [&](const NodeGroup& group) { return concerns(entry, {group.node.device}); });
    }
    constexpr std::string_view fabric = "fabric.";
    return path.starts_with(fabric) &&
           std::any_of(scenario.fabrics.begin(), scenario.fabrics.end(),
                       [&](const FabricProfile& profile) {
                           return path.substr(fabric.size()).starts_with(profile.name + ".");
                       });
}

bool holds_for(const CalibrationEntry& entry, const Scenario& scenario) {
    return names_part_of(entry, scenario) &&
           (entry.ranks == 0 || entry.ranks == device_count(scenario.cluster));
}

} // namespace shardplan::sim
