#pragma once

// Flags, in headers that main.cpp alone includes: CLI11 takes longer to compile than any room of
// ours, so one translation unit knows it.
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/cli/help.hpp"
#include "planner/cli/verbs.hpp"

namespace shardplan::plan::cli {

/// Flags that every verb has.
struct Common {
    bool json = false;
    bool exit_zero = false;
    std::string color = "auto";
};

/// The options of all verbs; one is filled by a run.
struct Everything {
    Common common;
    ModelOptions model;
    ClusterOptions cluster;
    ListOptions list;
    EstimateOptions estimate;
    PlanOptions plan;
    ExplainOptions explain;
    DiffOptions diff;
    FitOptions fit;
    CalendarOptions calendar;
    std::string shell;
    SweepOptions sweep;
    SensitivityOptions sensitivity;
    SimulateVerbOptions simulate;
    RunVerbOptions run;
    ValidateOptions validate;
    CalibrateVerbOptions calibrate;
    std::function<int(const Console&)> verb;
};

inline void add_common(CLI::App* app, Common& common) {
    app->add_flag("--json", common.json, "print one JSON value and nothing else");
    app->add_flag("--exit-zero", common.exit_zero, "exit with 0 where the answer is no");
    app->add_option("--color", common.color, "auto, always or never (NO_COLOR is honoured)")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->default_str("auto");
}

inline void add_sets(CLI::App* app, std::vector<std::string>& sets, const std::string& example) {
    app->add_option("--set", sets, "change one field, as in " + example + "; may be repeated")
        ->type_name("PATH=VALUE")
        ->expected(1)
        ->take_all();
}

/// What an imported cluster file may lack.
inline void add_import(CLI::App* app, ImportOptions& options) {
    const char* group = "With topology prints, NCCL, Slurm and Kubernetes files as the cluster";
    app->add_option("--device", options.device, "what the devices are")
        ->type_name("D")
        ->group(group);
    app->add_option("--node", options.node, "cluster whose node fills in what the file lacks")
        ->type_name("C")
        ->group(group);
    app->add_option("--nodes", options.nodes, "nodes that exist, as in node-[1-9]")
        ->type_name("LIST")
        ->group(group);
}

/// Flags of everything a scenario is made of. `needed`: model and cluster must be given.
inline void add_scenario(CLI::App* app, ScenarioOptions& options, bool needed) {
    app->add_option("--model,-m", options.model, "model config, model file or built-in name")
        ->required(needed)
        ->type_name("M")
        ->group("What is given");
    app->add_option("--cluster,-c", options.cluster, "cluster file or built-in name")
        ->required(needed)
        ->type_name("C")
        ->group("What is given");
    app->add_option("--gpus,-g", options.gpus, "devices to use: whole nodes, or part of one")
        ->type_name("N")
        ->group("What is given");
    app->add_option("--job,-j", options.job, "job file or built-in name")
        ->type_name("J")
        ->group("What is given");
    app->add_option("--stack,-s", options.stack,
                    "software stack, as in megatron-core; plan takes several: a,b")
        ->type_name("S")
        ->group("What is given");
    app->add_option("--feature", options.features, "switch of the stack, as in fused-ce")
        ->expected(1)
        ->take_all()
        ->group("What is given");
    app->add_option("--calibration", options.calibration, "calibration file")
        ->group("What is given");
    app->add_option("--device-peak", options.device_peak,
                    "dense 16-bit peak of a device, as in \"165 TFLOP/s\"")
        ->group("What is given");
    app->add_option("--device-memory", options.device_memory, "its memory, as in \"24 GiB\"")
        ->group("What is given");
    app->add_option("--device-bandwidth", options.device_bandwidth,
                    "its memory bandwidth, as in \"1008 GB/s\"")
        ->group("What is given");
    add_import(app, options.import);
    for (const JobFlag& flag : job_flags()) {
        const std::string name(flag.flag);
        const std::string path(flag.path);
        constexpr const char* group = "The job (any other field: --set job.PATH=VALUE)";
        if (flag.is_switch) {
            app->add_flag_callback(
                   name,
                   [&options, name, path] {
                       options.job_fields.push_back({name, path, "true"});
                   },
                   std::string(flag.doc))
                ->group(group);
            continue;
        }
        app->add_option_function<std::string>(
               name,
               [&options, name, path](const std::string& value) {
                   options.job_fields.push_back({name, path, value});
               },
               std::string(flag.doc))
            ->type_name("VALUE")
            ->group(group);
    }
    add_sets(app, options.sets, "job.sequence.max=8192");
}

/// Losses of a whole run, each with its flag.
inline void add_losses(CLI::App* app, LossOptions& losses) {
    const char* group = "The whole run (needs --tokens)";
    const auto add = [&](const char* flag, std::string& target, const char* doc) {
        app->add_option(flag, target, doc)->type_name("VALUE")->group(group);
    };
    add("--mttf", losses.mean_time_to_failure, "mean time to failure of one node: \"6000 h\"");
    add("--checkpoint-time", losses.checkpoint_time, "how long one checkpoint stops training");
    add("--checkpoint-interval", losses.checkpoint_interval, "training between checkpoints");
    add("--restart", losses.restart, "from a stop to the first new step: \"10 min\"");
    add("--requeue", losses.requeue, "waiting for nodes after a stop");
    add("--queue", losses.queue, "waiting before the first step");
    add("--planned", losses.planned, "share lost to maintenance and evaluation: 5%");
    add("--power-overhead", losses.power_overhead, "energy of the building over the devices: 1.2");
}

inline CLI::App* add_verb(CLI::App& app, Everything& all, const std::string& name,
                          const std::string& summary, const std::string& examples) {
    CLI::App* verb = app.add_subcommand(name, summary);
    verb->footer("\nExamples:\n" + examples);
    add_common(verb, all.common);
    return verb;
}

inline CLI::App* add_verb(CLI::App& app, Everything& all, const VerbHelp& help) {
    return add_verb(app, all, help.name, help.summary, help.examples);
}

} // namespace shardplan::plan::cli
