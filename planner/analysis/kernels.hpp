#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/validate.hpp"
#include "simulator/compute/op_time.hpp"
#include "simulator/io/kernel_record.hpp"
#include "simulator/units/result.hpp"

/// Published timings of single kernels predicted by the code that prices operators, and compared
/// with what was measured. The rules stand in simulator/io/schema/kernel_record.md.
namespace shardplan::plan {

/// The prediction for one record.
struct KernelPrediction {
    std::string id;
    std::string skipped;     ///< why there is no prediction; empty: there is one
    double seconds = 0.0;    ///< predicted
    double measured_s = 0.0; ///< what the record says: flops as counted over the rate reached
    std::vector<sim::Assumption> notes; ///< what was taken where the record is silent

    friend bool operator==(const KernelPrediction&, const KernelPrediction&) = default;
};

/// The figures of the kernel records that share a key.
struct KernelFigures {
    std::string name;
    std::int64_t records = 0;
    std::int64_t skipped = 0;
    ErrorFigures time;
    double max = 0.0; ///< largest size of the error

    friend bool operator==(const KernelFigures&, const KernelFigures&) = default;
};

/// What `--by` accepts for kernels: device, operator, kernel, dtype, stage.
std::vector<std::string> kernel_grouping_names();
/// The key of a record under the groupings, joined by " / ".
std::string kernel_group_key(const sim::KernelRecord& record, const std::vector<std::string>& by);

/// Figures by group in the order the groups first appear, and under the name "all" over all
/// records; `predictions[i]` belongs to `records[i]`.
std::vector<KernelFigures> score_kernels(const std::vector<sim::KernelRecord>& records,
                                         const std::vector<KernelPrediction>& predictions,
                                         const std::vector<std::string>& by);

/// The device with nothing added by a software stack: what compute_rates gives where every factor
/// of a stack is one.
sim::ComputeRates bare_rates(const sim::Device& device, sim::AttentionImpl attention);

/// The prediction for one record on a device that need not be in the catalogue, whatever device the
/// record names.
KernelPrediction predict_kernel(const sim::KernelRecord& record, const sim::Device& device);

/// Predicts every record, in order; what cannot be predicted carries the reason.
/// Errors: data files that are missing or broken.
sim::Result<std::vector<KernelPrediction>> predict_kernels(
    const std::vector<sim::KernelRecord>& records);

} // namespace shardplan::plan
