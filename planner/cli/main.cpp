// The only translation unit that knows CLI11, whose header takes longer to compile than any room of
// ours: flags (flags/*.hpp) are parsed into the plain structs of options.hpp, and a verb is called.
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "planner/cli/command_line_error.hpp"
#include "planner/cli/completion.hpp"
#include "planner/cli/empty_value.hpp"
#include "planner/cli/flags/analysis.hpp"
#include "planner/cli/flags/measured.hpp"
#include "planner/cli/flags/run.hpp"

namespace {

using namespace shardplan::plan::cli;
namespace sim = shardplan::sim;

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
        "  shardplan cluster topo.txt --device H100-SXM-80GB\n"
        "  shardplan cluster topology.conf --node dgx-h100 --nodes \"node-[1-9]\"\n"
        "  shardplan cluster dgx-h100 --gpus 512 --between 0,300\n"
        "  shardplan cluster dgx-h100 --set \"cluster.fabric.levels[0].oversubscription=2\"\n");
    cluster->add_option("cluster", all.cluster.cluster, "cluster file or built-in name")
        ->required();
    cluster->add_option("--gpus,-g", all.cluster.gpus, "devices to use")->type_name("N");
    cluster
        ->add_option("--between", all.cluster.between,
                     "links, bottleneck and number of shortest ways between two devices")
        ->type_name("A,B");
    add_import(cluster, all.cluster.import);
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
}

/// The options of a verb, also those in groups of options, which the parser keeps as verbs without
/// a name.
std::vector<const CLI::Option*> options_of(const CLI::App& verb) {
    std::vector<const CLI::Option*> out = verb.get_options();
    for (const CLI::App* group : verb.get_subcommands([](const CLI::App*) { return true; })) {
        if (group->get_name().empty()) {
            for (const CLI::Option* option : options_of(*group)) {
                out.push_back(option);
            }
        }
    }
    return out;
}

/// The table of verbs as the parser knows it.
std::vector<CompletedVerb> verb_table(const CLI::App& app) {
    std::vector<CompletedVerb> out;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
        CompletedVerb row{verb->get_name(), verb->get_description(), {}, {}};
        for (const CLI::Option* option : options_of(*verb)) {
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
    for (const CLI::Option* option : options_of(*verb)) {
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
    add_validate(app, all);
    add_analysts(app, all);
    add_fit(app, all);
    add_calendar(app, all);
    add_sweep(app, all);
    add_sensitivity(app, all);
    add_simulate(app, all);
    add_run(app, all);
    add_calibrate(app, all);
    add_completion(app, all);

    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Console console{std::cout, std::cerr};
    if (const auto error = empty_value(arguments)) {
        return fail(console, *error);
    }
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
