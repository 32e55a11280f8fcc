#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

void describe(FieldVisitor& v, Assumption& x) {
    field(v, {"path", "field", "Path of the field nobody stated."}, x.path);
    field(v, {"value", "value", "What was taken, as a person would write it."}, x.value);
    field(v, {"origin", "origin", "Where the value comes from."}, x.origin);
    field(v, {"note", "note", "What it decides."}, x.note);
}

void describe(FieldVisitor& v, Scenario& x) {
    field(v, {"model", "model", "What is trained.", true}, x.model);
    field(v, {"cluster", "cluster", "What it is trained on.", true}, x.cluster);
    field(v, {"job", "job", "What the user insists on."}, x.job);
    field(v, {"stack", "stack", "The software that trains it.", true}, x.stack);
    field(v, {"calibration", "calibration", "What was measured on this machine."}, x.calibration);
    field(v, {"devices", "devices", "The products the node groups name, in the same order."},
          x.devices);
    field(v, {"fabrics", "fabrics", "The kinds of network the cluster uses."}, x.fabrics);
    field(v, {"assumptions", "assumptions", "Defaults taken while loading."}, x.assumptions);
}

} // namespace shardplan::sim
