#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/run/sweep.hpp"
#include "simulator/io/json.hpp"

/// What a sweep times. Private to executor/run.
namespace shardplan::exec {

/// Who takes part in a case.
enum class Together : std::uint8_t {
    all,   ///< every rank, each for itself
    alone, ///< rank 0, while the others wait
    group, ///< every rank with the others of its group: over when the last one is
};

/// Something that is timed.
struct SweepCase {
    std::string kind; ///< "gemm", "all_reduce": what the record names it
    Together together = Together::all;
    double work = 0.0;       ///< rough seconds on any machine: what comes first, what is left out
    std::int64_t floats = 0; ///< of memory that `run` is given
    /// In training its data come straight from the operator before: every call has the same memory.
    bool warm = false;
    std::int64_t machines = 1; ///< that the group's ranks are on
    std::function<Status(float* memory)> run;
    /// The members of its record beside the time.
    std::function<void(sim::JsonWriter& json, double seconds)> describe;
};

/// Products, attention and element-wise operators of the models and of a grid, copies, and a call
/// that does nothing. Where there are several ranks, products of the grid also alone.
std::vector<SweepCase> kernel_cases(Kernels<float>& kernels, const SweepOptions& options,
                                    bool several_ranks);
/// Every collective over sizes on one communicator, whose ranks are spread evenly over `machines`;
/// messages on one of two ranks.
std::vector<SweepCase> collective_cases(Communicator& group, std::int64_t machines,
                                        const SweepOptions& options);

/// A product of this shape that is not recorded: how steady the machine is.
SweepCase probe_case(Kernels<float>& kernels);

} // namespace shardplan::exec
