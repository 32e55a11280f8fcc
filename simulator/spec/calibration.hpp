#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/spec/fields.hpp"

namespace shardplan::sim {

/// One measured or fitted value that replaces a Constant: `path` names it as explain prints it.
struct CalibrationEntry {
    std::string path;    ///< "stack.time.gemm_efficiency", "fabric.infiniband.step_latency"
    std::string subject; ///< device or fabric it holds for
    double value = 0.0;
    double size_lo = 0.0; ///< range of sizes (bytes or flops) it was fitted on
    double size_hi = 0.0;
    double residual = 0.0; ///< relative
    std::int64_t samples = 0;
    std::string source;

    friend bool operator==(const CalibrationEntry&, const CalibrationEntry&) = default;
};

/// What was measured on one machine. Precedence: measured here > fabric fit > stack > device.
struct Calibration {
    std::string id;
    std::string date;
    std::string machine;
    std::vector<CalibrationEntry> entries;

    friend bool operator==(const Calibration&, const Calibration&) = default;
};

void describe(FieldVisitor& v, CalibrationEntry& x);
void describe(FieldVisitor& v, Calibration& x);

} // namespace shardplan::sim
