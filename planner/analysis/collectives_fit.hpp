#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/collectives.hpp"

/// Constants of a network from measured collectives on it.
namespace shardplan::plan {

/// Ranks that took part in a measurement.
struct FitShape {
    std::int64_t nodes = 1;
    std::int64_t ranks = 1;

    friend bool operator==(const FitShape&, const FitShape&) = default;
};

/// A constant that the records decide: moved by the fit, or confirmed where it was.
struct DecidedConstant {
    std::string path; ///< "fabric.infiniband.step_latency"
    std::string unit;
    double before = 0.0;
    double after = 0.0;

    friend bool operator==(const DecidedConstant&, const DecidedConstant&) = default;
};

/// What a fit gave for the records of one system and network.
struct FabricFit {
    std::string system;
    std::string device;
    std::string fabric; ///< the network that was fitted: "infiniband", on one node "nvswitch"
    std::vector<FitShape> shapes; ///< each once, in the order of the records
    std::vector<DecidedConstant> decided;
    /// "fabric.KIND.NAME" for every decided constant; residual and size range on each.
    sim::Calibration calibration;
    ErrorFigures before; ///< predicted / measured - 1 before the fit
    ErrorFigures after;  ///< and with those fitted
    /// The measured times stand so far above what these links give that the system is probably
    /// mistuned: the fit matches it all the same, and says so. Empty: it looks right.
    std::string flag;
    std::vector<double> residuals; ///< of the records, in their order

    friend bool operator==(const FabricFit&, const FabricFit&) = default;
};

/// Fits latency, bandwidth, half size and ramp of the outermost network of records that share one
/// system, device and network (any collectives, sizes and numbers of ranks): least sum of the sizes
/// of the relative deviations, from the constants of the profile, by a search along one constant
/// after the other in fixed order; what the records do not decide stays where it was. `known` holds
/// for every other network.
/// Errors: records that cannot be predicted, of several systems or networks, or fewer than four.
sim::Result<FabricFit> fit_fabric(const CollectiveReproducer& reproducer,
                                  const std::vector<sim::CollectiveRecord>& records,
                                  const sim::Calibration& known = {});

/// Records that no fit was made of, and why.
struct NotFitted {
    std::string system;
    std::int64_t records = 0;
    std::string why;

    friend bool operator==(const NotFitted&, const NotFitted&) = default;
};

struct FabricFits {
    std::vector<FabricFit> fits;
    std::vector<NotFitted> left_out;

    friend bool operator==(const FabricFits&, const FabricFits&) = default;
};

/// The records of a file fitted by system, device and network, in the order they first appear, but
/// those of one node of a system first: what they show holds inside the nodes of the others.
/// Records with a fault are left out, and so is what cannot be predicted or has too few sizes.
/// `machine` as in CollectiveReproducer. Errors: data files that are missing or broken.
sim::Result<FabricFits> fit_fabrics(const std::vector<sim::CollectiveRecord>& records,
                                    const std::optional<sim::Cluster>& machine = {});

/// The fits as one file that `--calibration` takes; `tool` and `input` say what it came from.
/// Errors: two systems have a fit of one network, and a file holds one machine.
sim::Result<sim::Calibration> calibration_of(const std::vector<FabricFit>& fits, std::string tool,
                                             std::string input);

/// How well a fit predicts sizes it has not seen: every curve with at least eight sizes of 1 MiB
/// and up is fitted on the first, third, ... of them and tested on the others.
struct CurveTest {
    std::string curve;
    std::int64_t sizes = 0;
    ErrorFigures tested;

    friend bool operator==(const CurveTest&, const CurveTest&) = default;
};
sim::Result<std::vector<CurveTest>> test_curves(const std::vector<sim::CollectiveRecord>& records,
                                                const std::optional<sim::Cluster>& machine = {});

} // namespace shardplan::plan
