#pragma once

#include "planner/cli/flags/common.hpp"

/// Flags of the verbs that ask about a plan: diff, fit, calendar, sweep, sensitivity,
/// simulate.
namespace shardplan::plan::cli {

inline void add_analysts(CLI::App& app, Everything& all) {
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
inline void need_subject(const std::string& verb, const std::string& document,
                         const ScenarioOptions& scenario) {
    if (document.empty() && (scenario.model.empty() || scenario.cluster.empty())) {
        throw CLI::ValidationError(verb, "give a plan file, or --model and --cluster");
    }
}

inline void add_sweep(CLI::App& app, Everything& all) {
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

inline void add_fit(CLI::App& app, Everything& all) {
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

inline void add_calendar(CLI::App& app, Everything& all) {
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

inline void add_sensitivity(CLI::App& app, Everything& all) {
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

inline void add_simulate(CLI::App& app, Everything& all) {
    SimulateVerbOptions& o = all.simulate;
    CLI::App* verb = add_verb(app, all, help::simulate);
    verb->add_option("plan-file", o.document, "what `plan -o` wrote");
    verb->add_option("--plan", o.plan, "which plan of the file, from 1")->default_str("1");
    verb->add_option("--layout,-l", o.layout, "another layout; without a file the best one");
    verb->add_option("--what-if", o.what_if,
                     "compare with one thing changed, as in stages=11-12-12-11 or "
                     "job.sequence.max=8192; may be repeated")
        ->type_name("CHANGE")
        ->expected(1)
        ->take_all();
    verb->add_option("--trace", o.trace, "write a Chrome trace")->type_name("FILE");
    verb->add_option("--html", o.html, "write a page with the timeline")->type_name("FILE");
    verb->add_option(
            "--over", o.over,
            "lay the timeline of a run over it: what `run --measure --timeline` wrote, or the "
            "plan that `run --attach --timeline` added it to")
        ->type_name("FILE");
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

} // namespace shardplan::plan::cli
