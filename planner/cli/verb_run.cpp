#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <utility>

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "planner/analysis/vary.hpp"
#include "planner/cli/child_process.hpp"
#include "planner/cli/run_display.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/json.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan::cli {
namespace {

constexpr const char* runner = "shardplan-run-cpu";

/// What is run, and what is expected of it.
struct PlannedRun {
    sim::Scenario scenario;
    std::string layout;
    std::int64_t ranks = 0;
};

sim::Error bad(std::string where, std::string what, std::string hint) {
    return {sim::ErrorCode::bad_input, std::move(where), std::move(what), std::move(hint)};
}

sim::Result<PlannedRun> plan_from(const RunVerbOptions& options) {
    auto document = sim::read_document_file(options.document);
    if (!document) {
        return document.error();
    }
    const auto count = static_cast<std::int64_t>(document->plans.size());
    if (options.plan < 1 || options.plan > count) {
        return bad("--plan",
                   fmt::format("{} holds {} plans, there is no plan {}", options.document, count,
                               options.plan),
                   fmt::format("write a number from 1 to {}", count));
    }
    PlannedRun out;
    out.layout = document->plans[static_cast<std::size_t>(options.plan - 1)].layout;
    out.scenario = std::move(document->scenario);
    sim::LayoutTables tables;
    const auto layout = layout_for(out.layout, options.document, out.scenario, tables);
    if (!layout) {
        return layout.error();
    }
    out.ranks = sim::rank_count(*layout);
    if (options.ranks && *options.ranks != out.ranks) {
        const std::string more =
            *options.ranks > 0
                ? fmt::format(", or plan for {0} devices with --gpus {0}", *options.ranks)
                : "";
        return bad("--ranks",
                   fmt::format("the plan's layout {} is one of {} ranks, not of {}", out.layout,
                               out.ranks, *options.ranks),
                   fmt::format("write --ranks {}, or leave it out{}", out.ranks, more));
    }
    return out;
}

/// Whether this system keeps processes from reading one another's memory, which Open MPI would do.
bool reading_other_processes_is_forbidden() {
    char from = 1;
    char to = 0;
    const iovec local{&to, 1};
    const iovec remote{&from, 1};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) != 1;
}

/// A command line: the program, then its words.
struct Command {
    std::string program;
    std::vector<std::string> words;
};

/// Flags of Open MPI's mpirun that this machine needs; each is said, with the reason.
std::vector<std::string> mpirun_needs(const RunVerbOptions& options, std::int64_t ranks,
                                      const Console& console) {
    std::vector<std::string> out;
    const auto add = [&](std::vector<std::string> words, const std::string& reason) {
        console.err << fmt::format("mpirun {}: {}\n", fmt::join(words, " "), reason);
        out.insert(out.end(), words.begin(), words.end());
    };
    if (::geteuid() == 0) {
        add({"--allow-run-as-root"}, "this is root");
    }
    const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
    if (options.hostfile.empty() && ranks > processors) {
        add({"--oversubscribe"},
            fmt::format("{} ranks share {} processors; times say little", ranks, processors));
    }
    if (reading_other_processes_is_forbidden()) {
        add({"--mca", "btl_vader_single_copy_mechanism", "none"},
            "processes may not read one another's memory here");
    }
    return out;
}

sim::Result<bool> is_open_mpi(const std::string& mpirun) {
    bool found = false;
    const auto look = [&](const std::string& line) {
        found = found || line.find("Open MPI") != std::string::npos ||
                line.find("OpenRTE") != std::string::npos;
    };
    const auto end = run_child(mpirun, {"--version"}, {look, look});
    if (!end) {
        return end.error();
    }
    return found;
}

sim::Result<Command> command_for(const RunVerbOptions& options, const PlannedRun& plan,
                                 const Console& console) {
    auto program = find_program_of_ours(runner);
    if (!program) {
        return program.error();
    }
    Command out;
    if (options.backend == "threads") {
        if (!options.hostfile.empty()) {
            return bad("--hostfile", "threads run on this machine alone",
                       "add --backend mpi, or leave it out");
        }
        out.program = std::move(*program);
    } else {
        out.program = find_in_path("mpirun");
        if (out.program.empty()) {
            return sim::Error{sim::ErrorCode::not_found, "--backend mpi",
                              "there is no mpirun in PATH",
                              "install openmpi-bin, or write --backend threads"};
        }
        out.words = {"-n", std::to_string(plan.ranks)};
        if (!options.hostfile.empty()) {
            out.words.insert(out.words.end(), {"--hostfile", options.hostfile});
        }
        const auto open_mpi = is_open_mpi(out.program);
        if (!open_mpi) {
            return open_mpi.error();
        }
        if (*open_mpi) {
            const auto needs = mpirun_needs(options, plan.ranks, console);
            out.words.insert(out.words.end(), needs.begin(), needs.end());
        }
        out.words.push_back(std::move(*program));
    }
    out.words.insert(out.words.end(), {options.document, "--plan", std::to_string(options.plan),
                                       "--backend", options.backend});
    out.words.insert(out.words.end(), options.passed.begin(), options.passed.end());
    return out;
}

/// What to say of a child that failed.
sim::Error error_of(const ChildEnd& end, const RunDisplay& display, const std::string& program) {
    sim::Error out;
    if (display.error()) {
        out = *display.error();
        out.code = end.code == exit_code::bad_input ? sim::ErrorCode::bad_input
                                                    : sim::ErrorCode::backend_failed;
        return out;
    }
    const std::string how = end.signal != 0 ? fmt::format("it was ended by signal {} ({})",
                                                          end.signal, ::strsignal(end.signal))
                                            : fmt::format("it ended with code {}", end.code);
    return {sim::ErrorCode::backend_failed, program, how + " and told no reason",
            "what it wrote to standard error stands above"};
}

/// The line of --json that compares.
void write_comparison(const Console& console, std::optional<double> measured,
                      const std::optional<sim::Band<sim::Seconds>>& predicted) {
    sim::JsonWriter json(sim::Indent::compact);
    json.begin_object().member("event", "comparison").member("measured_step_time_s", measured);
    if (predicted) {
        json.member("predicted_step_time_s", predicted->value.value())
            .member("predicted_step_time_low_s", predicted->low.value())
            .member("predicted_step_time_high_s", predicted->high.value());
        if (measured && *measured > 0.0) {
            json.member("error", predicted->value.value() / *measured - 1.0);
        }
    }
    json.end_object();
    console.out << json.str() << '\n';
}

/// The predicted step. Says so where the estimate cannot be made, or where the plan does not fit.
std::optional<sim::Band<sim::Seconds>> predict(const Console& console, PlannedRun plan) {
    const auto priced = price_legal_layout(std::move(plan.scenario), plan.layout, "plan");
    if (!priced) {
        console.err << "no prediction: " << sim::to_text(priced.error()) << '\n';
        return std::nullopt;
    }
    if (priced->estimate.verdict == sim::Verdict::does_not_fit) {
        console.err << "warning: the plan " << priced->estimate.verdict_text << '\n';
    }
    return priced->estimate.time.total;
}

void compare(const Console& console, const RunDisplay& display,
             const std::optional<sim::Band<sim::Seconds>>& predicted) {
    if (console.json) {
        write_comparison(console, display.median_step_seconds(), predicted);
    } else if (predicted && display.median_step_seconds()) {
        print_against_estimate(console, *display.median_step_seconds(), *predicted);
    }
}

/// The value of a flag among those passed on; empty: not given.
std::string passed_value(const RunVerbOptions& options, std::string_view flag) {
    const auto at = std::find(options.passed.begin(), options.passed.end(), flag);
    return at == options.passed.end() || at + 1 == options.passed.end() ? "" : *(at + 1);
}

} // namespace

int run_run(const RunVerbOptions& options, const Console& console) {
    const std::vector<std::string> backends = {"threads", "mpi"};
    if (std::find(backends.begin(), backends.end(), options.backend) == backends.end()) {
        return fail(console,
                    bad("--backend", "there is no back end " + sim::in_quotes(options.backend),
                        sim::nearest_hint(options.backend, backends)));
    }
    auto plan = plan_from(options);
    if (!plan) {
        return fail(console, plan.error());
    }
    const auto command = command_for(options, *plan, console);
    if (!command) {
        return fail(console, command.error());
    }
    const auto predicted = predict(console, std::move(*plan));
    RunDisplay display(console);
    std::deque<std::string> said; // on standard error; an error that was told makes it noise
    constexpr std::size_t most_lines = 200;
    const auto keep = [&](const std::string& line) {
        said.push_back(line);
        if (said.size() > most_lines) {
            said.pop_front();
        }
    };
    const auto end = run_child(command->program, command->words,
                               {[&](const std::string& line) { display.take(line); }, keep});
    display.finish();
    if (!end) {
        return fail(console, end.error());
    }
    if (end->good() || !display.error()) {
        for (const std::string& line : said) {
            console.err << line << '\n';
        }
    }
    if (!end->good()) {
        return fail(console, error_of(*end, display, command->program));
    }
    if (const std::string file = passed_value(options, "--sweep"); !file.empty()) {
        console.err << "wrote " << file << "; shardplan calibrate " << file
                    << " -o calibration.json\n";
    } else {
        compare(console, display, predicted);
    }
    if (const std::string file = passed_value(options, "--measure"); !file.empty()) {
        console.err << "wrote " << file << "; shardplan validate --measurement " << file << '\n';
    }
    if (std::find(options.passed.begin(), options.passed.end(), "--attach") !=
        options.passed.end()) {
        console.err << fmt::format("added to {0}; shardplan validate --measurement {0}\n",
                                   options.document);
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
