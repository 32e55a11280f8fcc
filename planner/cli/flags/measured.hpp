#pragma once

#include "planner/analysis/kernels.hpp"
#include "planner/analysis/validate.hpp"
#include "planner/cli/flags/common.hpp"

/// Flags of the verbs that deal in what was measured: validate, calibrate.
namespace shardplan::plan::cli {

/// What somebody adds to timings of collectives. `timings`: the option that names them.
inline void add_timing(CLI::App* app, TimingOptions& timing, CLI::Option* timings) {
    ClusterOptions& machine = timing.machine;
    const char* group = "Timings of collectives: what a log does not say";
    std::vector<CLI::Option*> options = {
        app->add_option("--cluster,-c", machine.cluster,
                        "machine they were taken on: cluster file or built-in name")
            ->type_name("C"),
        app->add_option("--gpus,-g", machine.gpus, "ranks that took part")->type_name("N"),
        app->add_option("--collective", timing.collective,
                        "what was timed, as in all_reduce or reduce_scatter")
            ->type_name("NAME"),
        app->add_option("--device", machine.import.device,
                        "what the devices are, where all ranks ran on one node or the cluster file "
                        "does not say")
            ->type_name("D"),
        app->add_option("--node", machine.import.node,
                        "cluster whose node fills in what the cluster file lacks")
            ->type_name("C"),
        app->add_option("--set", machine.sets, "change one field, as in cluster.fabric.kind=roce")
            ->type_name("PATH=VALUE")
            ->expected(1)
            ->take_all()};
    for (CLI::Option* option : options) {
        option->group(group)->needs(timings);
    }
}

inline void add_validate(CLI::App& app, Everything& all) {
    CLI::App* validate = add_verb(app, all, help::validate);
    CLI::Option_group* measured =
        validate->add_option_group("measurements", "what to predict and compare with");
    const auto add = [&](const char* flag, std::string& file, const char* doc) {
        return measured->add_option(flag, file, doc)->type_name("FILE");
    };
    CLI::Option* runs = add("--runs", all.validate.runs, "run records, one JSON object per line");
    CLI::Option* kernels =
        add("--kernels", all.validate.kernels,
            "kernel records, one JSON object per line: each kernel against its timing");
    CLI::Option* timings =
        add("--collectives", all.validate.collectives,
            "timings of collectives, one JSON object per line, or a log of nccl-tests");
    CLI::Option* measurement =
        measured
            ->add_option(
                "--measurement", all.validate.measurements,
                "what `run --measure` wrote, or a plan with what `run --attach` added: term "
                "by term; of several how far off they are, and which layout is best")
            ->type_name("FILE")
            ->expected(1, 1'000'000);
    measured->require_option(1);
    validate
        ->add_option("--plan", all.validate.plan,
                     "plan of the measurement, where it is not the file it was run from")
        ->type_name("FILE")
        ->needs(measurement);
    const auto listed = [](const std::vector<std::string>& names) {
        std::string out;
        for (const std::string& name : names) {
            out += (out.empty() ? "" : ", ") + name;
        }
        return out;
    };
    validate
        ->add_option("--by", all.validate.by,
                     "group the figures by: " + listed(shardplan::plan::grouping_names()) +
                         "; kernels by: " + listed(shardplan::plan::kernel_grouping_names()))
        ->delimiter(',')
        ->type_name("KEY,...");
    validate->add_flag("--notes", all.validate.notes, "with --json: what each row assumed");
    validate->add_flag("--sweeps", all.validate.sweeps, "every sweep, not only their groups");
    validate
        ->add_option("--calibration", all.validate.calibration,
                     "calibration file that collectives or the plan of a measurement are "
                     "predicted with")
        ->type_name("FILE")
        ->excludes(runs)
        ->excludes(kernels);
    add_timing(validate, all.validate.timing, timings);
    validate->callback([&all] {
        all.verb = [&all](const Console& console) { return run_validate(all.validate, console); };
    });
}

inline void add_calibrate(CLI::App& app, Everything& all) {
    CLI::App* verb = add_verb(app, all, help::calibrate);
    CLI::Option_group* measured =
        verb->add_option_group("measurements", "what constants are fitted to");
    CLI::Option* timings =
        measured
            ->add_option("timings", all.calibrate.collectives,
                         "timings of collectives: logs of nccl-tests, or records, one JSON "
                         "object per line; or sweeps of a machine by the executor")
            ->type_name("FILE");
    CLI::Option* runs =
        measured->add_option("--runs", all.calibrate.runs, "run records, one JSON object per line")
            ->type_name("FILE");
    measured->require_option(1);
    verb->add_option("--exclude", all.calibrate.exclude,
                     "group of runs that is not looked at; may be repeated")
        ->expected(1)
        ->take_all()
        ->type_name("GROUP")
        ->needs(runs);
    verb->add_option("--system", all.calibrate.timing.system,
                     "the only system of the timings that is looked at")
        ->type_name("NAME")
        ->needs(timings);
    verb->add_flag("--match-mistuned", all.calibrate.match_mistuned,
                   "write also constants of systems that run far below their links")
        ->needs(timings);
    add_timing(verb, all.calibrate.timing, timings);
    verb->add_option("-o,--output", all.calibrate.output,
                     "write what --calibration takes; - for stdout")
        ->type_name("FILE");
    verb->add_option("--attach", all.calibrate.attach,
                     "add it to a plan file, which --calibration takes as well")
        ->type_name("PLAN");
    verb->callback([&all] {
        all.verb = [&all](const Console& console) { return run_calibrate(all.calibrate, console); };
    });
}

} // namespace shardplan::plan::cli
