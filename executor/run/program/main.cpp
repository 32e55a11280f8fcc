// shardplan-run-cpu: trains a plan on threads of this process, or as one rank of an MPI run.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "executor/comm/threads.hpp"
#include "executor/run/level.hpp"
#include "executor/run/program/loaded_plan.hpp"
#include "executor/run/program/stop_signal.hpp"
#include "executor/run/program/work.hpp"
#include "executor/run/run_records.hpp"
#include "executor/run/training_run.hpp"
#ifdef SHARDPLAN_EXECUTOR_HAS_MPI
#include "executor/comm/mpi/mpi_world.hpp"
#endif

namespace {

using namespace shardplan;
using exec::Backend;
using exec::Communicator;
using exec::LoadedPlan;
using exec::ProgramOptions;

constexpr int bad_input = 2;
constexpr int run_failed = 3;

int code_of(const sim::Error& error) {
    return error.code == sim::ErrorCode::backend_failed ? run_failed : bad_input;
}

void print_line(const std::string& line) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout); // whoever reads along wants each line as it comes
}

/// A variable that launchers set in every process they start.
long launched(std::initializer_list<const char*> names, long otherwise) {
    for (const char* name : names) {
        const char* text = std::getenv(name);
        if (text != nullptr && *text != '\0') return std::strtol(text, nullptr, 10);
    }
    return otherwise;
}
long launched_ranks() { return launched({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 0); }
long launched_rank() {
    return launched({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}
/// srun sets SLURM_PROCID in each process; a batch script alone has it too, but one step of 0
/// tasks.
bool was_launched() {
    return launched({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 0) > 0 ||
           (launched({"SLURM_NTASKS"}, 0) > 1 && std::getenv("SLURM_STEP_ID") != nullptr);
}

int fail(const sim::Error& error, int rank) {
    print_line(exec::error_record(error, rank));
    std::fprintf(stderr, "error: %s\n", sim::to_text(error).c_str());
    return code_of(error);
}

int run_on_threads(const ProgramOptions& options, LoadedPlan& loaded) {
    const auto ranks = static_cast<int>(sim::rank_count(loaded.plan.layout));
    loaded.names.backend = "threads";
    const exec::RunOutcome outcome = exec::run_ranks(
        ranks,
        [&](Communicator& world) { return exec::do_work(world, options, loaded, print_line); },
        {.timeout = std::chrono::seconds(options.timeout)});
    const sim::Status status = outcome.status();
    if (status) return 0;
    return fail(status.error(), outcome.first_failed.value_or(0));
}

#ifdef SHARDPLAN_EXECUTOR_HAS_MPI
int run_on_mpi(const ProgramOptions& options, LoadedPlan& loaded) {
    auto mpi = exec::MpiWorld::start({.timeout = std::chrono::seconds(options.timeout)});
    if (!mpi) return fail(mpi.error(), static_cast<int>(launched_rank()));
    Communicator& world = (*mpi)->world();
    loaded.names.backend = "mpi";
    const exec::Index needed = sim::rank_count(loaded.plan.layout);
    if (world.size() != needed) {
        const sim::Error error = exec::wrong_rank_count(loaded, world.size());
        const int code = world.rank() == 0 ? fail(error, 0) : code_of(error);
        (*mpi)->finish(sim::Done{});
        return code;
    }
    const sim::Status status = exec::do_work(world, options, loaded, print_line);
    if (status) {
        (*mpi)->finish(status);
        return 0;
    }
    // What all ranks refuse alike is said once, and is no failure of the run.
    const bool refused = code_of(status.error()) == bad_input;
    if (!refused || world.rank() == 0) fail(status.error(), world.rank());
    (*mpi)->finish(refused ? sim::Status(sim::Done{}) : status);
    return code_of(status.error());
}
#else
int run_on_mpi(const ProgramOptions& /*options*/, LoadedPlan& /*loaded*/) {
    return fail({sim::ErrorCode::unsupported, "--backend mpi", "this program was built without MPI",
                 "install libopenmpi-dev and build it again, or write --backend threads"},
                0);
}
#endif

int run(const ProgramOptions& options, const std::string& level) {
    const bool mpi = options.backend == Backend::mpi ||
                     (options.backend == Backend::automatic && was_launched());
    const bool speaks = !mpi || launched_rank() == 0;
    const auto quiet = [&](const sim::Error& error) {
        return speaks ? fail(error, 0) : code_of(error);
    };
    const exec::Index started = mpi ? launched_ranks() : 0;
    auto loaded = exec::load_plan(options, options.ranks != 0 ? options.ranks : started);
    if (!loaded) return quiet(loaded.error());
    exec::share_processors(options, loaded->plan, mpi);
    loaded->names.program = "shardplan-run-cpu";
    loaded->names.versions = exec::build_versions();
    loaded->names.versions["instructions"] = level;
    exec::catch_stop_signals();
    return mpi ? run_on_mpi(options, *loaded) : run_on_threads(options, *loaded);
}

} // namespace

int main(int argc, char** argv) {
    const auto level = exec::run_best_level(argv);
    if (!level) {
        if (launched_rank() != 0) return bad_input;
        return fail(level.error(), 0);
    }
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto options = exec::parse_options(words);
    if (!options) {
        if (launched_rank() != 0) return bad_input;
        return fail(options.error(), 0);
    }
    if (options->help) {
        std::fputs(exec::usage().c_str(), stdout);
        return 0;
    }
    if (options->version) {
        std::puts(SHARDPLAN_VERSION);
        return 0;
    }
    return run(*options, *level);
}
