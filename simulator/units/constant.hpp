#pragma once

#include <string>

namespace shardplan::sim {

/// Where a Constant comes from, from hardest to softest evidence.
enum class Origin {
    datasheet,       ///< the vendor's sheet
    source_code,     ///< read in the source of the software
    kernel_data,     ///< measured kernels
    collective_data, ///< measured collectives
    own_measurement, ///< measured by the executor
    fitted_to_runs,  ///< estimated from whole training runs
    assumed,         ///< engineering judgement, to be replaced
};

/// A number of the cost model with its provenance. Constants live in data files, never as literals
/// in code: a person must be able to see and change each one.
struct Constant {
    double value = 0.0; ///< in `unit`
    std::string unit;   ///< "", "B", "s", "B/s", "FLOP/s"; base units only
    Origin origin = Origin::assumed;
    std::string source;  ///< sheet, file of a repository, data file, or reason
    std::string version; ///< of the software or hardware it holds for; empty: any
    double lo = 0.0;     ///< plausible range
    double hi = 0.0;
    double sigma = 0.0; ///< relative standard deviation, for bands
    /// Fitted to a single group of runs: no other confirms the value, and the spread is that of the
    /// whole plausible range.
    bool unconfirmed = false;

    friend bool operator==(const Constant&, const Constant&) = default;
};

} // namespace shardplan::sim
