#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/collectives_fit.hpp"
#include "planner/analysis/validate.hpp"
#include "simulator/io/sweep_record.hpp"
#include "simulator/spec/calibration.hpp"
#include "simulator/spec/cluster.hpp"
#include "simulator/spec/device.hpp"
#include "simulator/units/result.hpp"

/// A device and a network from what the executor measured of a machine.
namespace shardplan::plan {

/// A constant of the device that a sweep decides.
struct FittedRate {
    std::string path; ///< "device.compute.matrix_efficiency"
    std::string unit;
    double before = 0.0; ///< 0: the device states none
    double after = 0.0;
    double residual = 0.0; ///< median of |predicted / measured - 1| over its samples
    std::int64_t samples = 0;
    double size_lo = 0.0; ///< of the samples, flops or bytes
    double size_hi = 0.0;

    friend bool operator==(const FittedRate&, const FittedRate&) = default;
};

/// How far predictions of one kind of sample are off.
struct SampleErrors {
    std::string kind; ///< "gemm", "norm_fwd"
    ErrorFigures before;
    ErrorFigures after;

    friend bool operator==(const SampleErrors&, const SampleErrors&) = default;
};

/// What one sweep says of the device a rank is.
struct DeviceFit {
    std::string device;
    std::vector<FittedRate> rates;
    std::vector<SampleErrors> errors;
    /// Rate of large products while other ranks wait over that while all compute; 0: not measured.
    double alone = 0.0;

    friend bool operator==(const DeviceFit&, const DeviceFit&) = default;
};

/// Fits products (efficiency, ramp), attention (efficiencies, exponential, edge), element-wise
/// operators, the optimizer's step, memory and the cost of a call, each from its own samples: the
/// least mean size of the logarithm of predicted over measured, by a search in fixed order, or the
/// median of what single samples give. Where products run faster than the device's peak, the peak
/// is raised to the fastest.
/// Errors: fewer than four products, a device without rates of operators, no usable time.
sim::Result<DeviceFit> fit_device(const sim::Sweep& sweep, const sim::Device& device);

/// One sweep: device and network.
struct SweepFit {
    sim::SweepMachine machine;
    DeviceFit device;
    FabricFits network; ///< nothing in it where the sweep had one rank
};

/// Fits every sweep by itself: what it finds holds for as many ranks as it had. `machine`: where
/// the ranks are; without one the first built-in cluster of the same device.
/// Errors: two sweeps with as many ranks, a device the catalogue does not have, those of
/// fit_device and of fit_fabrics.
sim::Result<std::vector<SweepFit>> fit_sweeps(const std::vector<sim::Sweep>& sweeps,
                                              const std::optional<sim::Cluster>& machine = {});

/// The fits as one file that `--calibration` takes; `tool` and `input` say what it came from.
sim::Calibration calibration_of(const std::vector<SweepFit>& fits, std::string tool,
                                std::string input);

} // namespace shardplan::plan
