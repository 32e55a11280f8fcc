#include "executor/run/program/work.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <unistd.h>

#include "executor/comm/agree.hpp"
#include "executor/kernels/thread_pool.hpp"
#include "executor/run/program/stop_signal.hpp"
#include "executor/run/rank_facts.hpp"
#include "executor/run/sweep.hpp"
#include "simulator/engine/pass_flops.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/measurement.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::exec {
namespace {

/// Ranks that the launcher put on this machine; `otherwise` where it does not say.
long ranks_on_this_machine(long otherwise) {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
        const char* text = std::getenv(name);
        if (text != nullptr && *text != '\0') return std::max(1L, std::strtol(text, nullptr, 10));
    }
    return otherwise;
}

/// Bytes that a rank goes through from one use of a weight to the next, at least: its weights,
/// their gradients and two moments.
std::int64_t working_set(const TrainingPlan& plan) {
    const std::int64_t parts = static_cast<std::int64_t>(plan.layout.tp) * plan.layout.pp;
    return 4 * 4 * sim::count_parameters(plan.model).total / parts;
}

/// Measures operators and collectives with the shapes of the plan among others.
Status sweep(Communicator& world, const ProgramOptions& options, const LoadedPlan& loaded,
             const RecordSink& out) {
    SweepOptions wanted;
    wanted.budget = std::chrono::seconds(options.budget);
    wanted.threads = std::max(1, loaded.plan.threads);
    wanted.cpu_time = options.cpu_time;
    wanted.models = {{loaded.plan.model, loaded.plan.sequence, loaded.plan.layout.micro_batch}};
    wanted.working_set = working_set(loaded.plan);
    if (!loaded.device.empty()) wanted.device = loaded.device;
    wanted.backend = loaded.names.backend;
    wanted.network = loaded.network;
    std::ostringstream lines;
    if (Status status = run_sweep(world, wanted, lines); !status) return status;
    Status written = sim::Done{};
    if (world.rank() == 0) written = sim::write_file(options.sweep, lines.str());
    if (Status status = agree(world, written); !status) return status;
    if (world.rank() == 0) {
        sim::JsonWriter json(sim::Indent::compact);
        json.begin_object()
            .member("event", "sweep")
            .member("path", options.sweep)
            .member("ranks", world.size())
            .end_object();
        out(json.str());
    }
    return sim::Done{};
}

} // namespace

void share_processors(const ProgramOptions& options, TrainingPlan& plan, bool launched) {
    const long allowed = allowed_processors();
    const auto all = static_cast<long>(sim::rank_count(plan.layout));
    const bool bound = launched && allowed < ::sysconf(_SC_NPROCESSORS_ONLN);
    const long sharing = bound ? 1 : launched ? ranks_on_this_machine(all) : all;
    if (launched) ThreadPool::share_machine(static_cast<int>(sharing));
    if (options.threads > 0) return;
    plan.threads = static_cast<int>(std::max(1L, allowed / sharing));
}

std::map<std::string, std::string> build_versions() {
    return {{"shardplan", SHARDPLAN_VERSION}, {"compiler", __VERSION__}};
}

Status do_work(Communicator& world, const ProgramOptions& options, const LoadedPlan& loaded,
               const RecordSink& out) {
    // what is measured is what is trained with
    if (Status status = world.set_choice(loaded.plan.collectives); !status) return status;
    if (!options.sweep.empty()) return sweep(world, options, loaded, out);
    auto tokens = tokens_of(options, loaded.plan);
    if (!tokens) return tokens.error();
    RunControl control;
    control.steps = options.steps;
    control.measure = !options.measure.empty() || options.attach;
    control.timeline = options.timeline;
    control.stop = stop_was_asked;
    control.hash_every = options.hash_every;
    control.save = options.save;
    control.save_every = options.save_every;
    control.resume = options.resume;
    const auto make = [&](Communicator& all) {
        return Trainer::make(all, loaded.plan, std::move(*tokens));
    };
    auto end = run_training(world, loaded.plan, loaded.names, control, make, out);
    if (!end) return end.error();
    Status written = sim::Done{};
    if (end->measurement) {
        sim::add_flops(loaded.scenario, loaded.plan.layout, loaded.plan.tables, *end->measurement);
    }
    if (end->measurement && !options.measure.empty()) {
        written = sim::write_measurement_file(options.measure, *end->measurement);
    }
    if (end->measurement && options.attach && written) {
        written = sim::attach_to_document_file(options.plan, *end->measurement);
    }
    return agree(world, written);
}

} // namespace shardplan::exec
