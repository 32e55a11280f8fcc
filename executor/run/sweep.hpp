#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "simulator/spec/model.hpp"

/// Measures the machine with the kernels and communicators that training uses, for `shardplan
/// calibrate`.
namespace shardplan::exec {

/// A model whose operators' shapes are measured, as one rank of a step has them.
struct SweepModel {
    sim::ModelSpec spec;
    std::int64_t sequence = 0;    ///< tokens of a sample
    std::int64_t micro_batch = 1; ///< samples of one pass
};

struct SweepOptions {
    /// Of the whole sweep. What does not fit into it is left out, large sizes first; each kind of
    /// sample keeps its smallest.
    std::chrono::nanoseconds budget = std::chrono::seconds(60);
    int threads = 1; ///< of the kernels of each rank
    int repeats = 7; ///< of every measurement, one round over all of them after the other
    std::int64_t most_bytes = std::int64_t{64} << 20U; ///< of a collective's buffer
    /// What a step touches between two uses of the same data, in bytes: calls go round over as much
    /// memory, so that they find in the caches what they would find there in training. More than
    /// twice the last cache is no different from twice. 0: that.
    std::int64_t working_set = 0;
    /// Kernels by the time their own thread computed, not by the clock on the wall: for a machine
    /// that has other work to do. One thread each; ranks that take turns are timed so anyway.
    bool cpu_time = false;
    std::vector<SweepModel> models;     ///< beside a grid of shapes
    std::string device = "cpu-generic"; ///< that a rank stands for, in the catalogue
    std::string backend = "threads";    ///< of the communicator, named in records
    std::string network = "none";       ///< between machines, as a cluster names its fabric
};

/// Every rank of `world` calls it, with the same options. All ranks compute at the same time, as in
/// a training step, on machines with fewer cores as many as there are cores for, in turns; with
/// several ranks products are also timed on rank 0 alone. Rank 0 writes to
/// `out`, one JSON object per line: the machine, kernels, collectives and a probe of the noise, in
/// the format of simulator/io/schema/sweep_record.md; other ranks write nothing.
/// Errors: options out of range, a model the executor does not know, those of the communicator.
Status run_sweep(Communicator& world, const SweepOptions& options, std::ostream& out);

} // namespace shardplan::exec
