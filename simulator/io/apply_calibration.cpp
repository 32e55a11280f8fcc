#include "simulator/io/apply_calibration.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "simulator/io/setting.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {

namespace {

/// Writes one entry over the Constant at `path` of `target`.
template <class T>
Status set_constant(T& target, const CalibrationEntry& entry, const std::string& path,
                    const std::string& where) {
    const double spread = entry.value * entry.residual;
    const std::pair<const char*, std::string> parts[] = {
        {".value", fmt::format("{:.17g}", entry.value)},
        {".lo", fmt::format("{:.17g}", std::max(0.0, entry.value - spread))},
        {".hi", fmt::format("{:.17g}", entry.value + spread)},
        {".sigma", fmt::format("{:.17g}", entry.residual)},
        {".origin", "own_measurement"},
        {".source", entry.source.empty() ? "calibration" : entry.source},
    };
    for (const auto& [field_name, text] : parts) {
        if (Status status = apply_setting(target, path + field_name, text, where); !status) {
            return status;
        }
    }
    return Done{};
}

Status apply_entry(const CalibrationEntry& entry, const std::string& where, Scenario& scenario) {
    constexpr std::string_view stack_prefix = "stack.";
    constexpr std::string_view fabric_prefix = "fabric.";
    const std::string_view path = entry.path;
    if (path.starts_with(stack_prefix)) {
        Status status = set_constant(scenario.stack, entry,
                                     std::string(path.substr(stack_prefix.size())), where);
        return status ? check_stack(scenario.stack, where) : status;
    }
    const std::size_t dot = path.find('.', fabric_prefix.size());
    if (!path.starts_with(fabric_prefix) || dot == std::string_view::npos) {
        return Error{ErrorCode::not_found, where, in_quotes(entry.path) + " names no constant",
                     "write stack.time.NAME, stack.memory.NAME or fabric.KIND.NAME, as in "
                     "fabric.infiniband.step_latency"};
    }
    const std::string_view kind = path.substr(fabric_prefix.size(), dot - fabric_prefix.size());
    for (FabricProfile& fabric : scenario.fabrics) {
        if (fabric.name == kind) {
            Status status = set_constant(fabric, entry, std::string(path.substr(dot + 1)), where);
            return status ? check_fabric(fabric, where) : status;
        }
    }
    return Done{};
}

} // namespace

Status apply_calibration(Scenario& scenario) {
    const std::vector<CalibrationEntry> entries = scenario.calibration.entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::string where = "calibration: /entries/" + std::to_string(i);
        if (Status status = apply_entry(entries[i], where, scenario); !status) {
            return status;
        }
    }
    return Done{};
}

} // namespace shardplan::sim
