#include "executor/run/program/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::exec {
namespace {

using sim::Done;
using sim::ErrorCode;

/// One flag: what it is called, what stands after it, and where its value goes.
struct Flag {
    std::string_view name;
    std::string_view value; ///< in --help; empty: the flag stands alone
    std::string_view doc;
    std::function<sim::Status(ProgramOptions&, const std::string& text)> set;
};

sim::Error bad_value(std::string_view flag, const std::string& text, std::string hint) {
    return {ErrorCode::bad_input, std::string(flag), sim::in_quotes(text) + " is no value for it",
            std::move(hint)};
}

Flag number(std::string_view name, Index ProgramOptions::*target, Index least,
            std::string_view doc) {
    return {name, "N", doc,
            [name, target, least](ProgramOptions& options, const std::string& text) -> sim::Status {
                Index value = 0;
                const char* end = text.data() + text.size();
                const auto [stop, error] = std::from_chars(text.data(), end, value);
                if (error != std::errc() || stop != end || value < least) {
                    return bad_value(name, text,
                                     fmt::format("write a whole number from {} on", least));
                }
                options.*target = value;
                return Done{};
            }};
}

Flag text(std::string_view name, std::string ProgramOptions::*target, std::string_view value,
          std::string_view doc) {
    return {name, value, doc,
            [name, target](ProgramOptions& options, const std::string& given) -> sim::Status {
                if (given.empty()) return bad_value(name, given, "name a file or folder");
                options.*target = given;
                return Done{};
            }};
}

Flag alone(std::string_view name, bool ProgramOptions::*target, std::string_view doc) {
    return {name, "", doc, [target](ProgramOptions& options, const std::string&) -> sim::Status {
                options.*target = true;
                return Done{};
            }};
}

template <class E>
Flag choice(std::string_view name, E ProgramOptions::*target, std::string_view value,
            std::string_view doc) {
    return {name, value, doc,
            [name, target](ProgramOptions& options, const std::string& given) -> sim::Status {
                const auto known = sim::enum_from<E>(given);
                if (!known) {
                    return bad_value(name, given,
                                     sim::nearest_hint(given, sim::EnumNames<E>::names));
                }
                options.*target = *known;
                return Done{};
            }};
}

Flag rate_flag() {
    return {"--rate", "X", "largest learning rate (1e-3)",
            [](ProgramOptions& options, const std::string& text) -> sim::Status {
                char* end = nullptr;
                const double value = std::strtod(text.c_str(), &end);
                if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0.0) {
                    return bad_value("--rate", text, "write for example 3e-4");
                }
                options.rate = value;
                return Done{};
            }};
}

const std::vector<Flag>& flags() {
    using O = ProgramOptions;
    static const std::vector<Flag> all = {
        number("--plan", &O::plan_number, 1, "which plan of the file, from 1"),
        choice("--backend", &O::backend, "threads|mpi",
               "what ranks are; by itself MPI where mpirun or srun started this"),
        number("--ranks", &O::ranks, 1, "ranks; must be those of the plan"),
        number("--steps", &O::steps, 1, "optimizer steps (10)"),
        text("--data", &O::data, "FILE", "tokens to train on; without: made-up ones"),
        choice("--format", &O::format, "bytes|u16|u32", "how tokens lie in the file (bytes)"),
        rate_flag(),
        number("--warmup", &O::warmup, 0, "steps in which the rate rises (0)"),
        number("--decay", &O::decay, 0, "step at which the rate has fallen to a tenth; 0: never"),
        number("--seed", &O::seed, 0, "of parameters and made-up tokens (1)"),
        alone("--deterministic", &O::deterministic, "sums in the order of ranks: the same bits"),
        number("--threads", &O::threads, 0, "of each rank; 0: the machine's, shared out"),
        number("--timeout", &O::timeout, 1, "seconds an exchange may take (300)"),
        text("--measure", &O::measure, "FILE", "write a measurement"),
        alone("--attach", &O::attach, "add the measurement to the plan file"),
        alone("--timeline", &O::timeline, "with the last step as each rank lived it"),
        number("--hash-every", &O::hash_every, 0, "steps between comparisons of replicas"),
        text("--save", &O::save, "DIR", "save checkpoints, at the end and when stopped"),
        number("--save-every", &O::save_every, 0, "and after each N steps"),
        alone("--resume", &O::resume, "go on from the latest checkpoint of --save"),
        text("--offload-dir", &O::offload_dir, "DIR", "for states offloaded to disk"),
        text("--sweep", &O::sweep, "FILE", "measure operators and collectives, do not train"),
        number("--budget", &O::budget, 1, "seconds of a sweep (60)"),
        alone("--cpu-time", &O::cpu_time,
              "of a sweep: time computed, where others use the machine"),
        alone("--help", &O::help, "this text"),
        alone("--version", &O::version, "the version"),
    };
    return all;
}

sim::Error unknown_flag(const std::string& word) {
    std::vector<std::string> names;
    for (const Flag& flag : flags()) {
        names.emplace_back(flag.name);
    }
    return {ErrorCode::bad_input, word, "there is no such flag", sim::nearest_hint(word, names)};
}

/// What flags ask for that cannot go together.
sim::Status check(const ProgramOptions& o) {
    const auto needs = [](const char* flag, const char* other) {
        return sim::Error{ErrorCode::bad_input, flag, std::string("it needs ") + other,
                          std::string("add ") + other + ", or leave it out"};
    };
    if (o.help || o.version) return Done{};
    if (o.plan.empty()) {
        return sim::Error{ErrorCode::bad_input, "PLAN", "there is no plan to run",
                          "name a file that `shardplan plan -o` or `shardplan estimate -o` wrote"};
    }
    const bool measures = !o.measure.empty() || o.attach;
    if (o.timeline && !measures) return needs("--timeline", "--measure FILE or --attach");
    if (o.cpu_time && o.sweep.empty()) return needs("--cpu-time", "--sweep FILE");
    if (!o.sweep.empty() && measures) {
        return sim::Error{ErrorCode::bad_input, "--sweep", "it does not train, so there is no run",
                          "leave out --measure and --attach, or sweep on its own"};
    }
    if (o.save_every > 0 && o.save.empty()) return needs("--save-every", "--save DIR");
    if (o.resume && o.save.empty()) return needs("--resume", "--save DIR");
    return Done{};
}

} // namespace

sim::Result<ProgramOptions> parse_options(std::span<const std::string> words) {
    ProgramOptions out;
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (!word.starts_with("--")) {
            if (!out.plan.empty()) {
                return sim::Error{ErrorCode::bad_input, sim::in_quotes(word),
                                  "there is a plan already: " + sim::in_quotes(out.plan),
                                  "name one plan; flags begin with --"};
            }
            out.plan = word;
            continue;
        }
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const auto flag = std::find_if(flags().begin(), flags().end(),
                                       [&](const Flag& f) { return f.name == name; });
        if (flag == flags().end()) return unknown_flag(name);
        if (!seen.insert(flag->name).second) {
            return sim::Error{ErrorCode::bad_input, name, "it stands there twice", "write it once"};
        }
        const bool has_value = equals != std::string::npos;
        if (flag->value.empty() && has_value) {
            return sim::Error{ErrorCode::bad_input, name, "it takes no value",
                              "write " + name + " alone"};
        }
        std::string value = has_value ? word.substr(equals + 1) : "";
        if (!flag->value.empty() && !has_value) {
            if (i + 1 == words.size()) {
                return sim::Error{ErrorCode::bad_input, name, "its value is missing",
                                  fmt::format("write {} {}", name, flag->value)};
            }
            value = words[++i];
        }
        if (const sim::Status status = flag->set(out, value); !status) return status.error();
    }
    if (const sim::Status status = check(out); !status) return status.error();
    return out;
}

std::string usage() {
    std::string out =
        "usage: shardplan-run-cpu PLAN [FLAG...]\n"
        "Trains the model of a plan on CPUs under its layout and writes one JSON object per line:\n"
        "how it starts, each step, how it ends. Ranks are threads, or processes that mpirun or\n"
        "srun start. SIGINT, SIGTERM and SIGUSR1 end it after the step, saved where --save says.\n"
        "Exit code 0: done or stopped; 2: the input is wrong; 3: the run failed.\n\n";
    for (const Flag& flag : flags()) {
        const std::string left = fmt::format("{} {}", flag.name, flag.value);
        out += fmt::format("  {:<24} {}\n", left, flag.doc);
    }
    return out +
           "\nExamples:\n"
           "  shardplan-run-cpu plan.shardplan.json --data text.txt --steps 100\n"
           "  mpirun -n 4 shardplan-run-cpu plan.shardplan.json --measure m.json\n";
}

} // namespace shardplan::exec
