#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// One measured or fitted value that replaces a Constant: `path` names it as explain prints it.
struct CalibrationEntry {
    /// "stack.time.launch", "device.compute.matrix_efficiency", "fabric.infiniband.step_latency"
    std::string path;
    std::string subject; ///< stack, device or fabric it holds for; empty: any
    double value = 0.0;
    double size_lo = 0.0; ///< range of sizes (bytes or flops) it was fitted on
    double size_hi = 0.0;
    double residual = 0.0; ///< relative
    std::int64_t samples = 0;
    std::string source;
    /// own_measurement; or fitted_to_runs, which gives way to everything else: it replaces a
    /// Constant of that origin only.
    Origin origin = Origin::own_measurement;
    bool unconfirmed = false; ///< as in Constant
    /// Devices that were busy at once: it holds for a cluster of as many. 0: any number.
    std::int64_t ranks = 0;

    friend bool operator==(const CalibrationEntry&, const CalibrationEntry&) = default;
};

/// What was measured on one machine, or fitted to published runs. Precedence: measured here >
/// fabric fit > stack > device.
struct Calibration {
    std::string id;
    std::string date;
    std::string machine;
    std::vector<CalibrationEntry> entries;
    std::string tool;                  ///< program and version that wrote it
    std::string input;                 ///< name and content hash of what it was fitted to
    std::vector<std::string> groups;   ///< of runs, used
    std::vector<std::string> excluded; ///< of runs, left out on purpose

    friend bool operator==(const Calibration&, const Calibration&) = default;
};

/// Of entries that say how many devices of a node compute at once, NodeTemplate::processors, or of
/// all nodes, Cluster::processors.
inline constexpr std::string_view node_processors_path = "node.processors";
inline constexpr std::string_view cluster_processors_path = "cluster.processors";
inline bool counts_processors(const CalibrationEntry& entry) {
    return entry.path == node_processors_path || entry.path == cluster_processors_path;
}

/// Does the entry hold for something that goes by one of these names?
inline bool concerns(const CalibrationEntry& entry, std::initializer_list<std::string_view> names) {
    return entry.subject.empty() ||
           std::find(names.begin(), names.end(), entry.subject) != names.end();
}

void describe(FieldVisitor& v, CalibrationEntry& x);
void describe(FieldVisitor& v, Calibration& x);

} // namespace shardplan::sim
