#pragma once

#include "planner/analysis/kernels.hpp"
#include "planner/analysis/validate.hpp"
#include "planner/cli/flags/common.hpp"

/// Flags of the verbs that deal in what was measured: validate, calibrate.
namespace shardplan::plan::cli {

inline void add_validate(CLI::App& app, Everything& all) {
    CLI::App* validate = add_verb(app, all, help::validate);
    CLI::Option_group* measured =
        validate->add_option_group("measurements", "what to predict and compare with");
    const auto add = [&](const char* flag, std::string& file, const char* doc) {
        measured->add_option(flag, file, doc)->type_name("FILE");
    };
    add("--runs", all.validate.runs, "run records, one JSON object per line");
    add("--kernels", all.validate.kernels,
        "kernel records, one JSON object per line: each kernel against its timing");
    add("--collectives", all.validate.collectives,
        "timings of collectives, one JSON object per line, or a log of nccl-tests");
    measured->require_option(1);
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
    validate->callback([&all] {
        all.verb = [&all](const Console& console) { return run_validate(all.validate, console); };
    });
}

inline void add_calibrate(CLI::App& app, Everything& all) {
    CLI::App* verb = add_verb(app, all, help::calibrate);
    verb->add_option("--runs", all.calibrate.runs, "run records, one JSON object per line")
        ->required()
        ->type_name("FILE");
    verb->add_option("--exclude", all.calibrate.exclude,
                     "group of records that is not looked at; may be repeated")
        ->expected(1)
        ->take_all()
        ->type_name("GROUP");
    verb->add_option("-o,--output", all.calibrate.output,
                     "write what --calibration takes; - for stdout")
        ->type_name("FILE");
    verb->callback([&all] {
        all.verb = [&all](const Console& console) { return run_calibrate(all.calibrate, console); };
    });
}

} // namespace shardplan::plan::cli
