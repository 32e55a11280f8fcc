#include "simulator/spec/calibration.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, CalibrationEntry& x) {
    field(v,
          {"path", "path", "The Constant it replaces, as explain prints it: stack.time.launch.",
           true},
          x.path);
    field(v, {"subject", "subject", "Stack, device or network it holds for; empty: any."},
          x.subject);
    field(v, {"value", "value", "In the base unit of the Constant.", true}, x.value);
    field(v,
          {"size_lo", "smallest size", "Smallest bytes or flops it was fitted on; 0: any.", false,
           0.0},
          x.size_lo);
    field(
        v,
        {"size_hi", "largest size", "Largest bytes or flops it was fitted on; 0: any.", false, 0.0},
        x.size_hi);
    field(v, {"residual", "residual", "Relative residual of the fit.", false, 0.0}, x.residual);
    field(v, {"samples", "samples", "Number of measurements.", false, 0.0}, x.samples);
    field(v, {"source", "source", "What was measured, and how.", true}, x.source);
    field(v,
          {"origin", "origin",
           "own_measurement, or fitted_to_runs: that replaces Constants of the same origin only."},
          x.origin);
    field(v,
          {"ranks", "ranks", "Devices busy at once: it holds for a cluster of as many; 0: any.",
           false, 0.0},
          x.ranks);
    field(v, {"unconfirmed", "unconfirmed", "Fitted to a single group of runs."}, x.unconfirmed);
}

void describe(FieldVisitor& v, Calibration& x) {
    field(v, {"id", "id", "Name of the calibration.", true}, x.id);
    field(v, {"date", "date", "Day of the measurement, 2026-11-29."}, x.date);
    field(v, {"machine", "machine", "What it was measured on."}, x.machine);
    field(v, {"tool", "tool", "Program and version that wrote it."}, x.tool);
    field(v, {"input", "input", "Name and content hash of what it was fitted to."}, x.input);
    field(v, {"groups", "groups", "Groups of runs that were used."}, x.groups);
    field(v, {"excluded", "excluded groups", "Groups of runs left out on purpose."}, x.excluded);
    field(v, {"entries", "entries", "Measured or fitted values."}, x.entries);
}

} // namespace shardplan::sim
