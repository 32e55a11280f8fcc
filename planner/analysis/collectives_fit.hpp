#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/collectives.hpp"

/// Constants of a network from measured collectives on it.
namespace shardplan::plan {

/// What a fit gave for the records of one system and shape.
struct FabricFit {
    std::string system;
    std::string fabric; ///< the network that was fitted: "infiniband", on one node "nvswitch"
    std::int64_t nodes = 1;
    std::int64_t ranks = 1;
    /// "fabric.KIND.NAME" for every constant that moved; residual and size range on each.
    sim::Calibration calibration;
    ErrorFigures before; ///< predicted / measured - 1 with the constants of the profile
    ErrorFigures after;  ///< and with those fitted
    /// The measured times stand so far above what these links give that the system is probably
    /// mistuned: the fit matches it all the same, and says so. Empty: it looks right.
    std::string flag;
    std::vector<double> residuals; ///< of the records, in their order

    friend bool operator==(const FabricFit&, const FabricFit&) = default;
};

/// Fits latency, bandwidth, half size and ramp of the outermost network of records that share one
/// system and shape (any collectives and sizes): least sum of the sizes of the relative deviations,
/// from the constants of the profile, by a search along one constant after the other in fixed
/// order; what the records do not decide stays where it was.
/// Errors: records that cannot be predicted, of several shapes, or fewer than four of them.
sim::Result<FabricFit> fit_fabric(const CollectiveReproducer& reproducer,
                                  const std::vector<sim::CollectiveRecord>& records);

/// The records of a file fitted shape by shape, in the order they first appear; shapes with fewer
/// than four usable records or with a fault by their source's own word are left out.
/// Errors: data files that are missing or broken.
sim::Result<std::vector<FabricFit>> fit_fabrics(const std::vector<sim::CollectiveRecord>& records);

/// How well a fit predicts sizes it has not seen: every curve with at least eight sizes of 1 MiB
/// and up is fitted on the first, third, ... of them and tested on the others.
struct CurveTest {
    std::string curve;
    std::int64_t sizes = 0;
    ErrorFigures tested;

    friend bool operator==(const CurveTest&, const CurveTest&) = default;
};
sim::Result<std::vector<CurveTest>> test_curves(const std::vector<sim::CollectiveRecord>& records);

} // namespace shardplan::plan
