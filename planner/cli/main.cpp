// The only file that knows CLI11, whose header takes longer to compile than any room of ours: flags
// are parsed into the plain structs of options.hpp, and a verb is called.
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "planner/analysis/validate.hpp"
#include "planner/cli/command_line_error.hpp"
#include "planner/cli/completion.hpp"
#include "planner/cli/help.hpp"
#include "planner/cli/verbs.hpp"

namespace {

using namespace shardplan::plan::cli;
namespace sim = shardplan::sim;

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
    ValidateOptions validate;
    std::function<int(const Console&)> verb;
};

void add_common(CLI::App* app, Common& common) {
    app->add_flag("--json", common.json, "print one JSON value and nothing else");
    app->add_flag("--exit-zero", common.exit_zero, "exit with 0 where the answer is no");
    app->add_option("--color", common.color, "auto, always or never (NO_COLOR is honoured)")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->default_str("auto");
}

void add_sets(CLI::App* app, std::vector<std::string>& sets, const std::string& example) {
    app->add_option("--set", sets, "change one field, as in " + example + "; may be repeated")
        ->type_name("PATH=VALUE")
        ->expected(1)
        ->take_all();
}

/// Flags of everything a scenario is made of. `needed`: model and cluster must be given.
void add_scenario(CLI::App* app, ScenarioOptions& options, bool needed) {
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
    app->add_option("--stack,-s", options.stack, "software stack, as in megatron-core")
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
    for (const JobFlag& flag : job_flags()) {
        const std::string name(flag.flag);
        const std::string path(flag.path);
        app->add_option_function<std::string>(
               name,
               [&options, name, path](const std::string& value) {
                   options.job_fields.push_back({name, path, value});
               },
               std::string(flag.doc))
            ->type_name("VALUE")
            ->group("The job (any other field: --set job.PATH=VALUE)");
    }
    add_sets(app, options.sets, "job.sequence.max=8192");
}

/// Losses of a whole run, each with its flag.
void add_losses(CLI::App* app, LossOptions& losses) {
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

CLI::App* add_verb(CLI::App& app, Everything& all, const std::string& name,
                   const std::string& summary, const std::string& examples) {
    CLI::App* verb = app.add_subcommand(name, summary);
    verb->footer("\nExamples:\n" + examples);
    add_common(verb, all.common);
    return verb;
}

CLI::App* add_verb(CLI::App& app, Everything& all, const VerbHelp& help) {
    return add_verb(app, all, help.name, help.summary, help.examples);
}

void add_readers(CLI::App& app, Everything& all) {
    CLI::App* model =
        add_verb(app, all, "model", "exact parameter counts of a model, and what was assumed",
                 "  shardplan model config.json\n"
                 "  shardplan model llama-3-70b --json\n"
                 "  shardplan model llama-3-8b --set model.embedding.tied=true\n");
    model->add_option("model", all.model.model, "config.json, model file or built-in name")
        ->required();
    add_sets(model, all.model.sets, "model.embedding.tied=true");
    model->callback([&all] {
        all.verb = [&all](const Console& console) { return run_model(all.model, console); };
    });

    CLI::App* cluster = add_verb(
        app, all, "cluster", "what a cluster file or name says",
        "  shardplan cluster dgx-h100 --gpus 512\n"
        "  shardplan cluster my-cluster.json --json\n"
        "  shardplan cluster dgx-h100 --set \"cluster.fabric.levels[0].oversubscription=2\"\n");
    cluster->add_option("cluster", all.cluster.cluster, "cluster file or built-in name")
        ->required();
    cluster->add_option("--gpus,-g", all.cluster.gpus, "devices to use")->type_name("N");
    add_sets(cluster, all.cluster.sets, "cluster.fabric.rails=false");
    cluster->callback([&all] {
        all.verb = [&all](const Console& console) { return run_cluster(all.cluster, console); };
    });

    CLI::App* list = add_verb(app, all, "list", "what is built in",
                              "  shardplan list models\n"
                              "  shardplan list clusters --json\n");
    list->add_option("what", all.list.what, "models, clusters, devices, stacks, jobs or features")
        ->required();
    list->callback([&all] {
        all.verb = [&all](const Console& console) { return run_list(all.list, console); };
    });
}

void add_planners(CLI::App& app, Everything& all) {
    CLI::App* plan = add_verb(
        app, all, "plan", "rank the ways to split a job over a cluster",
        "  shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512\n"
        "  shardplan plan -m config.json -c dgx-a100 -g 64 --sequence 8192 --global-batch 256\n"
        "  shardplan plan -m llama-3-8b -c 8xrtx4090-pcie --method lora --sequence 4096\n"
        "  shardplan plan -m mixtral-8x7b -c dgx-h100 -g 64 --top 3 -o plan.shardplan.json\n"
        "Without --job: the positions of the model up to 8192 tokens per sample, about 4 million\n"
        "tokens per step, bf16, AdamW; every default taken is listed under Assumed.\n"
        "Exit code 0: something fits; 1: nothing does; 2: the input is wrong.\n");
    add_scenario(plan, all.plan.scenario, true);
    plan->add_option("--top", all.plan.top, "plans to show")->type_name("K")->default_str("10");
    add_losses(plan, all.plan.losses);
    plan->add_option("--objective", all.plan.objective, "time, cost or headroom");
    plan->add_option("-o,--output", all.plan.output, "write the plans to a file; - for stdout")
        ->type_name("FILE");
    plan->callback([&all] {
        all.verb = [&all](const Console& console) { return run_plan(all.plan, console); };
    });

    CLI::App* estimate = add_verb(
        app, all, "estimate", "one layout, every term",
        "  shardplan estimate -m llama-3-70b -c dgx-h100 -g 64 --layout tp8,sp,pp4,mb1,zero1\n"
        "  shardplan estimate -m llama-3-8b -c dgx-h100 -g 8 --stack pytorch-fsdp2 \\\n"
        "      --layout zero3,mb2,rc=selective --json\n"
        "Terms of a layout: tp8 sp pp4 v2 dp16 cp2:ring ep8 etp1 mb1 zero1 rc=full:12\n"
        "off=opt:1.0:host sched=1f1b order=tp-cp-ep-dp-pp stages=11-12-12-11; dp may be left out.\n"
        "Exit code 0: it fits or nearly; 1: it does not, or is not legal; 2: the input is "
        "wrong.\n");
    add_scenario(estimate, all.estimate.scenario, true);
    estimate->add_option("--layout,-l", all.estimate.layout, "text form of the layout")->required();
    add_losses(estimate, all.estimate.losses);
    estimate->add_option("-o,--output", all.estimate.output, "write a plan file; - for stdout")
        ->type_name("FILE");
    estimate->callback([&all] {
        all.verb = [&all](const Console& console) { return run_estimate(all.estimate, console); };
    });
}

void add_explainers(CLI::App& app, Everything& all) {
    CLI::App* explain = add_verb(
        app, all, "explain", "the tree under one figure",
        "  shardplan explain plan.shardplan.json --term memory\n"
        "  shardplan explain plan.shardplan.json --plan 2 --term time.gemm\n"
        "  shardplan explain -m llama-3-8b -c dgx-h100 -g 8 --layout zero1,mb1 --term memory\n");
    explain->add_option("plan-file", all.explain.document, "what `plan -o` wrote");
    explain->add_option("--plan", all.explain.plan, "which plan of the file, from 1")
        ->default_str("1");
    explain->add_option("--term", all.explain.term, "memory, memory.<class>.<kind>, time.<kind>")
        ->default_str("memory");
    explain->add_option("--depth", all.explain.depth, "levels to show; 0: all")->default_str("0");
    explain->add_option("--layout,-l", all.explain.layout, "another layout");
    add_scenario(explain, all.explain.scenario, false);
    explain->callback([&all] {
        const ExplainOptions& o = all.explain;
        const bool by_flags =
            !o.scenario.model.empty() && !o.scenario.cluster.empty() && !o.layout.empty();
        if (o.document.empty() && !by_flags) {
            throw CLI::ValidationError("explain",
                                       "give a plan file, or --model, --cluster and "
                                       "--layout");
        }
        all.verb = [&all](const Console& console) { return run_explain(all.explain, console); };
    });

    CLI::App* validate = add_verb(app, all, "validate", "predict published runs and compare",
                                  "  shardplan validate --runs runs.jsonl\n"
                                  "  shardplan validate --runs runs.jsonl --by stack,device\n"
                                  "  shardplan validate --runs runs.jsonl --json > report.json\n");
    validate->add_option("--runs", all.validate.runs, "run records, one JSON object per line")
        ->required()
        ->type_name("FILE");
    std::string names;
    for (const std::string& name : shardplan::plan::grouping_names()) {
        names += (names.empty() ? "" : ", ") + name;
    }
    validate->add_option("--by", all.validate.by, "group the figures by: " + names)
        ->delimiter(',')
        ->type_name("KEY,...");
    validate->add_flag("--notes", all.validate.notes, "with --json: what each row assumed");
    validate->callback([&all] {
        all.verb = [&all](const Console& console) { return run_validate(all.validate, console); };
    });
}

void add_analysts(CLI::App& app, Everything& all) {
    CLI::App* diff = add_verb(app, all, help::diff);
    diff->add_option("a", all.diff.a, "what `plan -o` or `estimate -o` wrote")->required();
    diff->add_option("b", all.diff.b, "another such file");
    diff->add_option("--plan-a", all.diff.plan_a, "which plan of the first file, from 1")
        ->default_str("1");
    diff->add_option("--plan-b", all.diff.plan_b, "which plan of the second file");
    diff->callback([&all] {
        all.verb = [&all](const Console& console) { return run_diff(all.diff, console); };
    });
}

/// Asks for a plan file, or model and cluster by flag.
void need_subject(const std::string& verb, const std::string& document,
                  const ScenarioOptions& scenario) {
    if (document.empty() && (scenario.model.empty() || scenario.cluster.empty())) {
        throw CLI::ValidationError(verb, "give a plan file, or --model and --cluster");
    }
}

void add_sweep(CLI::App& app, Everything& all) {
    CLI::App* sweep = add_verb(app, all, help::sweep);
    sweep->add_option("plan-file", all.sweep.document, "what `plan -o` wrote");
    sweep->add_option("--plan", all.sweep.plan, "which plan of the file, from 1")->default_str("1");
    sweep->add_option("--over", all.sweep.over, "inputs and values: INPUT=VALUES[,INPUT=VALUES]")
        ->required();
    sweep->add_option("--layout,-l", all.sweep.layout,
                      "layout of every point; `plan`: that of the file; else planned at each");
    sweep->add_flag("--csv", all.sweep.csv, "print comma-separated values");
    sweep->add_option("--report", all.sweep.report, "write a page with plots")->type_name("FILE");
    add_scenario(sweep, all.sweep.scenario, false);
    sweep->callback([&all] {
        need_subject("sweep", all.sweep.document, all.sweep.scenario);
        all.verb = [&all](const Console& console) { return run_sweep(all.sweep, console); };
    });
}

void add_fit(CLI::App& app, Everything& all) {
    CLI::App* fit = add_verb(app, all, help::fit);
    add_scenario(fit, all.fit.scenario, true);
    fit->add_option("--layout,-l", all.fit.layout, "the layout that single changes start from");
    fit->add_option("--max-gpus", all.fit.max_gpus, "the largest machine tried")
        ->type_name("N")
        ->default_str("16384");
    fit->callback([&all] {
        all.verb = [&all](const Console& console) { return run_fit(all.fit, console); };
    });
}

void add_calendar(CLI::App& app, Everything& all) {
    CLI::App* verb = add_verb(app, all, help::calendar);
    verb->add_option("plan-file", all.calendar.document, "what `plan -o` wrote");
    verb->add_option("--plan", all.calendar.plan, "which plan of the file, from 1")
        ->default_str("1");
    verb->add_option("--layout,-l", all.calendar.layout, "another layout");
    add_losses(verb, all.calendar.losses);
    add_scenario(verb, all.calendar.scenario, false);
    verb->callback([&all] {
        need_subject("calendar", all.calendar.document, all.calendar.scenario);
        all.verb = [&all](const Console& console) { return run_calendar(all.calendar, console); };
    });
}

void add_sensitivity(CLI::App& app, Everything& all) {
    SensitivityOptions& o = all.sensitivity;
    CLI::App* verb = add_verb(app, all, help::sensitivity);
    verb->add_option("plan-file", o.document, "what `plan -o` wrote");
    verb->add_option("--plan", o.plan, "which plan of the file, from 1")->default_str("1");
    verb->add_option("--layout,-l", o.layout, "another layout; without a file the best one");
    verb->add_option("--by", o.by, "how far each input swings")->default_str("10%");
    verb->add_option("--target", o.target, "figure to reach, as in mfu=0.5");
    verb->add_option("--efficiency", o.efficiency, "the same as --target efficiency=SHARE")
        ->type_name("SHARE");
    verb->add_option("--solve", o.solve, "the input that shall reach it")->type_name("PATH");
    verb->add_flag("--all", o.all, "every input, not only the largest");
    add_scenario(verb, o.scenario, false);
    verb->callback([&all] {
        const SensitivityOptions& given = all.sensitivity;
        need_subject("sensitivity", given.document, given.scenario);
        all.verb = [&all](const Console& console) {
            return run_sensitivity(all.sensitivity, console);
        };
    });
}

void add_simulate(CLI::App& app, Everything& all) {
    SimulateVerbOptions& o = all.simulate;
    CLI::App* verb = add_verb(app, all, help::simulate);
    verb->add_option("plan-file", o.document, "what `plan -o` wrote");
    verb->add_option("--plan", o.plan, "which plan of the file, from 1")->default_str("1");
    verb->add_option("--layout,-l", o.layout, "another layout; without a file the best one");
    verb->add_option("--trace", o.trace, "write a Chrome trace")->type_name("FILE");
    verb->add_option("--html", o.html, "write a page with the timeline")->type_name("FILE");
    verb->add_flag("--no-collapse", o.every_rank, "play every rank on its own");
    verb->add_option("--stragglers", o.stragglers, "spread of the ranks' speed, as in 2%");
    verb->add_option("--seed", o.seed, "of the ranks' speeds")->default_str("1");
    verb->add_option("--max-events", o.most_events, "give up after as many")->default_str("1e9");
    add_scenario(verb, o.scenario, false);
    verb->callback([&all] {
        need_subject("simulate", all.simulate.document, all.simulate.scenario);
        all.verb = [&all](const Console& console) { return run_simulate(all.simulate, console); };
    });
}

/// The table of verbs as the parser knows it.
std::vector<CompletedVerb> verb_table(const CLI::App& app) {
    std::vector<CompletedVerb> out;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
        CompletedVerb row{verb->get_name(), verb->get_description(), {}, {}};
        for (const CLI::Option* option : verb->get_options()) {
            if (option->get_lnames().empty()) {
                row.positionals.push_back(value_kind_of(option->get_name(true)));
                continue;
            }
            const bool alone = option->get_items_expected_max() == 0;
            for (const std::string& name : option->get_lnames()) {
                row.flags.push_back({"--" + name, option->get_description(),
                                     alone ? ValueKind::none : value_kind_of("--" + name)});
            }
        }
        out.push_back(std::move(row));
    }
    return out;
}

void add_completion(CLI::App& app, Everything& all) {
    CLI::App* verb = add_verb(app, all, help::completion);
    verb->add_option("shell", all.shell, "bash, zsh or fish")->required();
    verb->callback([&app, &all] {
        all.verb = [&app, &all](const Console& console) {
            const auto script = completion_script(verb_table(app), all.shell);
            if (!script) {
                return fail(console, script.error());
            }
            console.out << (console.json ? verb_table_json(verb_table(app)) : *script);
            return exit_code::yes;
        };
    });
}

/// What is wrong with a command line, in our words where they say more than the parser's.
sim::Error explain(const CLI::App& app, const std::vector<std::string>& arguments,
                   const std::string& parser_says) {
    const auto used = app.get_subcommands();
    const CLI::App* verb = used.empty() ? &app : used.front();
    std::vector<std::string> known;
    if (used.empty()) {
        for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
            known.push_back(sub->get_name());
        }
    }
    for (const CLI::Option* option : verb->get_options()) {
        for (const std::string& name : option->get_lnames()) {
            known.push_back("--" + name);
        }
    }
    return command_line_error(used.empty() ? "" : verb->get_name(), known, arguments, parser_says);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

} // namespace

int main(int argc, char** argv) {
    Everything all;
    CLI::App app(
        "Shardplan plans how to split the training of large models over a cluster: does "
        "it fit, how fast is it, and what should change.",
        "shardplan");
    app.set_version_flag("--version", SHARDPLAN_VERSION);
    app.require_subcommand(1);
    app.footer(
        "\nStart with:\n"
        "  shardplan plan --model llama-3-70b --cluster dgx-h100 --gpus 512\n"
        "  shardplan fit --model llama-3-70b --cluster dgx-h100\n"
        "  shardplan list models\n"
        "  shardplan VERB --help\n");
    add_planners(app, all);
    add_readers(app, all);
    add_explainers(app, all);
    add_analysts(app, all);
    add_fit(app, all);
    add_calendar(app, all);
    add_sweep(app, all);
    add_sensitivity(app, all);
    add_simulate(app, all);
    add_completion(app, all);

    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Console console{std::cout, std::cerr};
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) { // --help, --version
        return app.exit(success, std::cout, std::cerr) == 0 ? exit_code::yes : exit_code::bad_input;
    } catch (const CLI::ParseError& error) {
        return fail(console, explain(app, arguments, first_line(error.what())));
    }
    const ColorMode mode = all.common.color == "always"  ? ColorMode::always
                           : all.common.color == "never" ? ColorMode::never
                                                         : ColorMode::automatic;
    console.color = wants_color(mode, isatty(STDOUT_FILENO) != 0);
    console.json = all.common.json;
    console.exit_zero = all.common.exit_zero;
    const int code = all.verb(console);
    std::cout.flush();
    if (!std::cout) {
        return fail(console, {sim::ErrorCode::bad_input, "standard output",
                              "the answer could not be written", "check the disk or the pipe"});
    }
    return code;
}
