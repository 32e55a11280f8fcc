#include "simulator/io/apply_calibration.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "simulator/io/setting.hpp"
#include "simulator/spec/calibration_subject.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/spec/constants.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {

namespace {

/// The Constant at `path` below `target`, if there is one.
template <class T>
const Constant* find_constant(T& target, const std::string& path) {
    const Constant* found = nullptr;
    for_each_constant(target, "", [&](const std::string& at, const FieldMeta&, const Constant& c) {
        found = at == path ? &c : found;
    });
    return found;
}

/// Writes one entry over the Constant at `path` of `target`.
template <class T>
Status set_constant(T& target, const CalibrationEntry& entry, const std::string& path,
                    const std::string& where) {
    const Constant* now = find_constant(target, path);
    const bool fitted = entry.origin == Origin::fitted_to_runs;
    if (now != nullptr && fitted && now->origin != Origin::fitted_to_runs) {
        return Done{};
    }
    // A fitted value stays inside the plausible range; a measured one makes its own.
    const double spread = entry.value * entry.residual;
    const double lo = fitted && now != nullptr ? now->lo : std::max(0.0, entry.value - spread);
    const double hi = fitted && now != nullptr ? now->hi : entry.value + spread;
    const std::pair<const char*, std::string> parts[] = {
        {".value", fmt::format("{:.17g}", entry.value)},
        {".lo", fmt::format("{:.17g}", lo)},
        {".hi", fmt::format("{:.17g}", hi)},
        {".sigma", fmt::format("{:.17g}", entry.residual)},
        {".origin", std::string(name_of(entry.origin))},
        {".unconfirmed", entry.unconfirmed ? "true" : "false"},
        {".source", entry.source.empty() ? "calibration" : entry.source},
    };
    for (const auto& [field_name, text] : parts) {
        if (Status status = apply_setting(target, path + field_name, text, where); !status) {
            return status;
        }
    }
    return Done{};
}

/// A stack goes by its own name and by that of the profile it is derived from.
Status apply_to_stack(const CalibrationEntry& entry, const std::string& path,
                      const std::string& where, StackProfile& stack) {
    if (!concerns(entry, {stack.name, stack.derived_from})) {
        return Done{};
    }
    Status status = set_constant(stack, entry, path, where);
    return status ? check_stack(stack, where) : status;
}

/// "peak_dense.fp32": no Constant, but where products run faster than the sheet says, it is wrong.
Status set_peak(const CalibrationEntry& entry, std::string_view format, const std::string& where,
                Device& device) {
    const auto dtype = enum_from<Dtype>(format);
    if (!dtype || entry.value <= 0.0) {
        return Error{ErrorCode::bad_input, where,
                     in_quotes(entry.path) + " is no peak of a number format",
                     "write device.peak_dense.fp32 and flops/s above 0"};
    }
    device.peak_dense[std::string(format)] = FlopRate(entry.value);
    return Done{};
}

Status apply_to_devices(const CalibrationEntry& entry, const std::string& path,
                        const std::string& where, std::vector<Device>& devices) {
    constexpr std::string_view peak_prefix = "peak_dense.";
    for (Device& device : devices) {
        if (!concerns(entry, {device.name})) continue;
        if (path.starts_with(peak_prefix)) {
            const auto format = std::string_view(path).substr(peak_prefix.size());
            if (Status status = set_peak(entry, format, where, device); !status) return status;
            continue;
        }
        Status status = set_constant(device, entry, path, where);
        status = status ? check_compute(device.compute, where) : status;
        if (!status) {
            return status;
        }
    }
    return Done{};
}

/// What ranks of a job compute on, where they are devices.
Status set_processors(const CalibrationEntry& entry, const std::string& where, Cluster& cluster) {
    if (entry.value < 1.0 || entry.value > 1e6 || entry.value != std::floor(entry.value)) {
        return Error{ErrorCode::bad_input, where,
                     fmt::format("{:g} is no number of processors", entry.value),
                     "write how many devices of a node compute at once, 1 or more"};
    }
    for (NodeGroup& group : cluster.node_groups) {
        if (!concerns(entry, {group.node.device})) continue;
        const bool all = entry.path == cluster_processors_path;
        (all ? cluster.processors : group.node.processors) = static_cast<std::int64_t>(entry.value);
    }
    return Done{};
}

Status apply_entry(const CalibrationEntry& entry, const std::string& where, Scenario& scenario) {
    constexpr std::string_view stack_prefix = "stack.";
    constexpr std::string_view device_prefix = "device.";
    constexpr std::string_view fabric_prefix = "fabric.";
    const std::string_view path = entry.path;
    if (path.starts_with(stack_prefix)) {
        return apply_to_stack(entry, std::string(path.substr(stack_prefix.size())), where,
                              scenario.stack);
    }
    if (path.starts_with(device_prefix)) {
        return apply_to_devices(entry, std::string(path.substr(device_prefix.size())), where,
                                scenario.devices);
    }
    if (counts_processors(entry)) return set_processors(entry, where, scenario.cluster);
    const std::size_t dot = path.find('.', fabric_prefix.size());
    if (!path.starts_with(fabric_prefix) || dot == std::string_view::npos) {
        return Error{ErrorCode::not_found, where, in_quotes(entry.path) + " names no constant",
                     "write stack.time.NAME, stack.memory.NAME, device.compute.NAME or "
                     "fabric.KIND.NAME, as in fabric.infiniband.step_latency"};
    }
    const std::string_view kind = path.substr(fabric_prefix.size(), dot - fabric_prefix.size());
    for (FabricProfile& fabric : scenario.fabrics) {
        if (fabric.name == kind) {
            Status status = set_constant(fabric, entry, std::string(path.substr(dot + 1)), where);
            status = status ? check_fabric(fabric, where) : status;
            if (!status) {
                return status;
            }
        }
    }
    return Done{};
}

} // namespace

namespace {

/// What was measured with certain numbers of ranks at once says nothing of another number.
Status check_ranks(const Scenario& scenario, std::int64_t ranks) {
    std::vector<std::int64_t> measured;
    for (const CalibrationEntry& entry : scenario.calibration.entries) {
        if (entry.ranks == 0 || !names_part_of(entry, scenario)) continue;
        if (std::find(measured.begin(), measured.end(), entry.ranks) == measured.end()) {
            measured.push_back(entry.ranks);
        }
    }
    if (measured.empty() || std::find(measured.begin(), measured.end(), ranks) != measured.end()) {
        return Done{};
    }
    std::string known;
    for (const std::int64_t one : measured) {
        known += (known.empty() ? "" : ", ") + std::to_string(one);
    }
    return Error{ErrorCode::bad_input, "calibration",
                 "it was measured with " + known + " ranks at once, and the cluster has " +
                     std::to_string(ranks) + " devices",
                 "add --gpus with a number that was measured, or measure and calibrate with " +
                     std::to_string(ranks) + " ranks"};
}

} // namespace

Status apply_calibration(Scenario& scenario) {
    const std::vector<CalibrationEntry> entries = scenario.calibration.entries;
    const std::int64_t ranks = device_count(scenario.cluster);
    if (Status status = check_ranks(scenario, ranks); !status) return status;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].ranks != 0 && entries[i].ranks != ranks) continue;
        const std::string where = "calibration: /entries/" + std::to_string(i);
        if (Status status = apply_entry(entries[i], where, scenario); !status) {
            return status;
        }
    }
    return Done{};
}

} // namespace shardplan::sim
