#pragma once

#include <string>
#include <string_view>

#include "simulator/engine/measurement.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// A measurement as it stands in a file.
struct MeasurementFile {
    std::string format;
    std::int64_t version = 0;
    Measurement measurement;
};
void describe(FieldVisitor& v, MeasurementFile& x);

/// Names a plan: what was given, and the layout in its text form.
std::string plan_hash(const Scenario& scenario, std::string_view layout);

/// Errors: figures that contradict one another (steps out of order, ranks missing, spans of no
/// track or task, spans that end before they begin); `where` and a pointer say which.
Status check_measurement(const Measurement& measurement, const std::string& where);

/// The text of a measurement file.
std::string write_measurement(const Measurement& measurement);
/// Errors: not a measurement, written by a later format, those of check_measurement.
Result<Measurement> parse_measurement(std::string_view text, std::string_view source_name);

Status write_measurement_file(const std::string& path, const Measurement& measurement);
Result<Measurement> read_measurement_file(const std::string& path);

} // namespace shardplan::sim
