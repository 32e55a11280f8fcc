#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/collective_record.hpp"
#include "simulator/io/kernel_record.hpp"
#include "simulator/units/result.hpp"

/// Sweeps: what the executor measures of a machine, one JSON object per line. The format is
/// described in simulator/io/schema/sweep_record.md; kernels and collectives in it are kernel and
/// collective records.
namespace shardplan::sim {

/// Where a sweep was made, and how.
struct SweepMachine {
    std::string cpu, compiler, instructions, date, device, backend;
    std::string clock; ///< of kernels: wall, cpu
    std::int64_t cores = 0;
    std::int64_t memory_bytes = 0;
    std::int64_t ranks = 1;
    std::int64_t threads = 1;    ///< of each rank
    std::int64_t processors = 0; ///< ranks of a machine that computed at once; 0: not recorded
    std::int64_t nodes = 1;      ///< by name
    std::int64_t machines = 1;   ///< fewer than nodes: those are virtual
    double probe_spread = 0.0; ///< of one product repeated between measurements: between quartiles
    std::int64_t probes = 0;

    friend bool operator==(const SweepMachine&, const SweepMachine&) = default;
};

/// One timing of an operator that is no product: norm_fwd, update, copy, launch, ...
struct OperatorRecord {
    std::string id;
    std::string op;
    std::int64_t line = 0;
    std::optional<std::int64_t> rows, width;
    std::optional<std::int64_t> hidden, chunk; ///< of a loss, which runs the head's products
    std::optional<double> bytes;               ///< as a step's list of operators counts them
    std::optional<double> seconds;

    friend bool operator==(const OperatorRecord&, const OperatorRecord&) = default;
};

/// What was measured with one number of ranks.
struct Sweep {
    SweepMachine machine;
    std::vector<KernelRecord> kernels; ///< products and attention, all ranks at once
    std::vector<KernelRecord> alone;   ///< products while other ranks waited
    std::vector<OperatorRecord> operators;
    std::vector<CollectiveRecord> collectives;

    friend bool operator==(const Sweep&, const Sweep&) = default;
};

/// What a file of sweeps gave: one for each line that describes a machine.
struct Sweeps {
    std::vector<Sweep> sweeps;
    std::vector<Error> problems; ///< as in KernelRecords

    friend bool operator==(const Sweeps&, const Sweeps&) = default;
};

/// Does the text begin with the line of a sweep's machine?
bool is_sweep(std::string_view text);

/// Reads JSON lines. `source_name` is used in problems. Errors: no line describes a machine, a
/// measurement stands before the first that does, or a machine's line lacks its device.
Result<Sweeps> parse_sweeps(std::string_view text, std::string_view source_name);
/// The same from a file. Errors: as above, and a file that cannot be read.
Result<Sweeps> read_sweeps(const std::string& path);

} // namespace shardplan::sim
