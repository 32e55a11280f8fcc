#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/run/token_source.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

enum class Backend : std::uint8_t {
    automatic, ///< MPI where mpirun or srun started this process, else threads
    threads,
    mpi,
};

} // namespace shardplan::exec

namespace shardplan::sim {
template <>
struct EnumNames<exec::Backend> {
    static constexpr std::array<std::string_view, 3> names = {"auto", "threads", "mpi"};
};
template <>
struct EnumNames<exec::TokenFormat> {
    static constexpr std::array<std::string_view, 3> names = {"bytes", "u16", "u32"};
};
} // namespace shardplan::sim

namespace shardplan::exec {

/// What the program is asked for.
struct ProgramOptions {
    std::string plan;
    Index plan_number = 1; ///< of the file's plans
    Backend backend = Backend::automatic;
    Index ranks = 0; ///< 0: as many as the plan's layout has
    Index steps = 10;
    std::string data; ///< empty: synthetic tokens
    TokenFormat format = TokenFormat::bytes;
    double rate = 1e-3;
    Index warmup = 0;
    Index decay = 0; ///< step at which the rate has come down to a tenth; 0: it stays
    Index seed = 1;
    bool deterministic = false;
    Index threads = 0;       ///< of each rank; 0: the machine's, shared out to its ranks
    Index timeout = 300;     ///< of every exchange, seconds
    std::string measure;     ///< measurement file; empty: none
    bool attach = false;     ///< adds the measurement to the plan file
    bool timeline = false;   ///< with the last step as every rank lived it
    Index hash_every = 0;    ///< steps between comparisons of replicas; 0: never
    std::string save;        ///< folder of checkpoints; empty: none
    Index save_every = 0;    ///< steps; 0: at the end
    bool resume = false;     ///< from the latest checkpoint of `save`, if there is one
    std::string offload_dir; ///< for states offloaded to disk
    std::string sweep;       ///< file of measured operators; empty: training
    Index budget = 60;       ///< seconds of a sweep
    bool cpu_time = false;   ///< of a sweep: what kernels computed, not the clock on the wall
    bool help = false;
    bool version = false;
};

/// From the words after the program's name. Errors: unknown or repeated flags, values that are
/// missing or make no sense; `where` is the flag.
sim::Result<ProgramOptions> parse_options(std::span<const std::string> words);

/// What --help says.
std::string usage();

} // namespace shardplan::exec
