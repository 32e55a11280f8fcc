#pragma once

#include <functional>
#include <string>
#include <vector>

#include "simulator/units/constant.hpp"

/// The search that fits constants to measurements.
namespace shardplan::plan {

/// A constant that a fit moves, wherever it stands.
struct Knob {
    std::string name; ///< within its profile, "tree.half_size"
    std::vector<sim::Constant*> constants;

    [[nodiscard]] double value() const { return constants.front()->value; }
    void set(double value) const {
        for (sim::Constant* constant : constants) {
            constant->value = value;
        }
    }
    double lo = 0.0; ///< above 0
    double hi = 1.0;
    double start = 0.0;
    double step = 0.0; ///< relative, of the next trial
};

/// Moves each constant up or down by a share of itself as long as that makes `misfit` smaller;
/// shares grow where it did and shrink where it did not. The order is fixed.
void search(std::vector<Knob>& knobs, const std::function<double()>& misfit);

} // namespace shardplan::plan
