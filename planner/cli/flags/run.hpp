#pragma once

#include "planner/cli/flags/common.hpp"

/// Flags of the verb that trains.
namespace shardplan::plan::cli {

inline void add_run(CLI::App& app, Everything& all) {
    RunVerbOptions& o = all.run;
    CLI::App* verb = add_verb(app, all, help::run);
    verb->add_option("plan-file", o.document, "what `plan -o` or `estimate -o` wrote")->required();
    verb->add_option("--plan", o.plan, "which plan of the file, from 1")->default_str("1");
    verb->add_option("--backend", o.backend, "threads of one process, or mpi")
        ->default_str("threads");
    verb->add_option("--ranks,-n", o.ranks, "ranks; must be those of the plan")->type_name("N");
    verb->add_option("--hostfile", o.hostfile, "machines, as mpirun reads them")->type_name("FILE");
    const auto passed = [&](const std::string& flag, const char* value, const char* doc) {
        verb->add_option_function<std::string>(
                flag,
                [&o, flag](const std::string& text) {
                    o.passed.push_back(flag);
                    o.passed.push_back(text);
                },
                doc)
            ->type_name(value)
            ->group("Training");
    };
    const auto passed_alone = [&](const std::string& flag, const char* doc) {
        verb->add_flag_callback(
                flag, [&o, flag] { o.passed.push_back(flag); }, doc)
            ->group("Training");
    };
    passed("--steps", "N", "optimizer steps (10)");
    passed("--data", "FILE", "tokens to train on; without: made-up ones");
    passed("--format", "bytes|u16|u32", "how tokens lie in the file (bytes)");
    passed("--rate", "X", "largest learning rate (1e-3)");
    passed("--warmup", "N", "steps in which the rate rises (0)");
    passed("--decay", "N", "step at which the rate has fallen to a tenth");
    passed("--seed", "N", "of parameters and made-up tokens (1)");
    passed_alone("--deterministic", "sums in the order of ranks: the same bits");
    passed("--threads", "N", "of each rank; without: the machine's, shared out");
    passed("--timeout", "N", "seconds an exchange may take (300)");
    passed("--measure", "FILE", "write a measurement, for validate and simulate --over");
    passed_alone("--attach", "add the measurement to the plan file");
    passed_alone("--timeline", "with the last step as each rank lived it");
    passed("--hash-every", "N", "steps between comparisons of replicas");
    passed("--save", "DIR", "save checkpoints, at the end and when stopped");
    passed("--save-every", "N", "and after each N steps");
    passed_alone("--resume", "go on from the latest checkpoint of --save");
    passed("--offload-dir", "DIR", "for states offloaded to disk");
    passed("--sweep", "FILE", "measure operators and collectives, do not train");
    passed("--budget", "N", "seconds of a sweep (60)");
    passed_alone("--cpu-time", "of a sweep: time computed, where others use the machine");
    verb->callback([&all] {
        all.verb = [&all](const Console& console) { return run_run(all.run, console); };
    });
}

} // namespace shardplan::plan::cli
