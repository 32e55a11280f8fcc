#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/fitted_constants.hpp"
#include "planner/analysis/validate.hpp"
#include "planner/search/progress.hpp"
#include "simulator/spec/calibration.hpp"

/// Constants of origin fitted_to_runs estimated from measured step times.
///
/// What is least: the sum over groups of the mean Huber loss of ln(predicted / measured) over their
/// rows, so that a group counts as one however many rows it published, and a row that is far off
/// pulls no harder than by its sign (P. J. Huber, Robust estimation of a location parameter, Annals
/// of Mathematical Statistics 35, 1964); and a mild pull to the middle of each plausible range,
/// which decides where the runs do not. What files say today plays no part: it was chosen with the
/// same runs in view.
///
/// How: from the middles, the Constant whose best value saves most is given it, again and again
/// until none saves anything. Each time the whole of an even grid over the plausible range is
/// looked at, so that no step length and no order of the Constants enters.
namespace shardplan::plan {

struct CalibrateOptions {
    std::vector<std::string> exclude; ///< groups that are not looked at
    std::size_t threads = 0;          ///< 0: as many as the machine runs at once
    ProgressSink* progress = nullptr; ///< may be null
    FittedLimits limits;
};

/// What the runs say about one Constant.
struct ConstantFit {
    FittedConstant constant; ///< as the files state it
    /// With rows that inform it: across its plausible range their step times move by 2 % or more.
    std::vector<std::string> groups;
    std::int64_t rows = 0;      ///< that inform it
    std::int64_t witnesses = 0; ///< groups with three such rows or more, or half of theirs
    bool fitted = false;        ///< three rows or more inform it
    double value = 0.0;         ///< fitted; else what the files say
    double lowest = 0.0;        ///< least and largest value fitted without one of these groups
    double highest = 0.0;

    /// One group at most says so: nothing shows that it holds elsewhere.
    [[nodiscard]] bool unconfirmed() const { return fitted && witnesses < 2; }
    friend bool operator==(const ConstantFit&, const ConstantFit&) = default;
};

/// One group, predicted with constants fitted to all others.
struct HeldOut {
    std::string group;             ///< names of what shares a source, joined
    bool family_elsewhere = false; ///< other groups hold runs of each of its stacks
    ErrorFigures today;            ///< with what the files say
    ErrorFigures fitted;           ///< with the fit to all groups
    ErrorFigures held_out;         ///< with the fit to the others

    friend bool operator==(const HeldOut&, const HeldOut&) = default;
};

struct RunCalibration {
    std::vector<ConstantFit> constants; ///< in the order of fitted_constants()
    std::vector<HeldOut> groups;        ///< as they first appear; one alone holds nothing out
    std::vector<std::string> excluded;
    std::int64_t rows = 0; ///< step times used

    friend bool operator==(const RunCalibration&, const RunCalibration&) = default;
};

/// Errors: a group to exclude that no record is of, with the nearest; no step time left, or none
/// that a Constant moves; more Constants than the limits allow; broken data files.
sim::Result<RunCalibration> calibrate_runs(const std::vector<sim::RunRecord>& records,
                                           const CalibrateOptions& options);

/// The spread of a value that a single group informs: that of an even distribution over the
/// plausible range, relative to the value.
double unconfirmed_sigma(const sim::Constant& constant, double value);

/// As a file that `--calibration` takes: an entry for each Constant fitted and each stack, device
/// or network that reads it. Its spread is that of leaving groups out, but no narrower than what
/// the files say; or unconfirmed_sigma. `tool` and `input` say what it came from.
sim::Calibration calibration_of(const RunCalibration& fit, std::string tool, std::string input);

} // namespace shardplan::plan
