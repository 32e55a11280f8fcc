#pragma once

#include <array>
#include <string>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/estimate/unit_time.hpp"

/// How far a step time may be off, from the spread of the Constants that priced it.
///
/// A Constant states its relative standard deviation. Every kind of time belongs to one class of
/// errors (`class_of`). Factors of one product are independent, so their spreads add in quadrature;
/// kinds of one class are wrong together, so their errors add up; classes are independent, so
/// theirs add in quadrature again:
///
///   sigma(kind)  = sqrt(sum over the Constants of the kind of (elasticity x sigma)^2)
///   error(class) = sum over its kinds of exposed(kind) x sigma(kind)      in seconds
///   sigma(step)  = sqrt(sum over classes of error(class)^2) / (step - bubble)
///
/// The bubble is other stages' passes, and as uncertain as they are: leaving it out on both sides
/// gives it the mean of the rest. Source: propagation of errors to first order (JCGM 100:2008,
/// section 5.1.2; fully correlated terms: 5.2.2, note 1).
namespace shardplan::sim {

/// The class a kind of time belongs to. The bubble has none of its own and is given `compute`.
ErrorClass class_of(TimeKind kind);

/// Relative standard deviations of what a Scenario prices its kinds of time with.
struct TimeSpread {
    /// Of the exposed seconds of a kind; 0 for communication, see LinkSpread.
    std::array<double, time_kind_count> exposed{};
    /// Of the hidden seconds: how much of them may be exposed, or slow down compute, after all.
    std::array<double, time_kind_count> hidden{};
    double software = 0.0; ///< of all compute, beside its Constants: what the stack does unseen
};
/// `device`: the one whose pace all ranks keep.
TimeSpread time_spread(const Scenario& scenario, const Resolved& resolved, const Device& device);

/// The same for communication, which depends on the links a layout uses: of tp, cp, ep, pp and dp,
/// in the order of their TimeKinds.
using LinkSpread = std::array<double, 5>;
LinkSpread link_spread(const GroupPaths& paths);

/// Standard deviations of a step, in seconds.
struct TimeErrors {
    double compute = 0.0;
    double communication = 0.0;
    double launch = 0.0;
    double step = 0.0; ///< all three together

    friend bool operator==(const TimeErrors&, const TimeErrors&) = default;
};
/// A handful of products: `score` calls it too.
TimeErrors time_errors(const TimeSpread& spread, const LinkSpread& links,
                       const SecondsByKind& exposed, const SecondsByKind& hidden, Seconds total);

/// Paths of the Constants that the attached calibration replaced in this Scenario, in its order;
/// empty: the Scenario is not calibrated.
std::vector<std::string> calibrated_constants(const Scenario& scenario);

} // namespace shardplan::sim
