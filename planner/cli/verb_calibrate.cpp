#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/calibrate.hpp"
#include "planner/cli/calibration_file.hpp"
#include "planner/cli/progress_bar.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/run_record.hpp"
#include "simulator/io/sweep_record.hpp"

namespace shardplan::plan::cli {
namespace {

/// What a cost model must reach on groups that it was not fitted to.
constexpr double bar_with_family = 0.10;
constexpr double bar_alone = 0.15;

double bar_of(const HeldOut& group) { return group.family_elsewhere ? bar_with_family : bar_alone; }

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

std::string range(double low, double high) { return number(low) + " .. " + number(high); }

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100.0 * share); }

/// "stacks/megatron-lm.json and 2 more".
std::string stated_in(const FittedConstant& constant) {
    if (constant.files.empty()) {
        return "";
    }
    const std::string& first = constant.files.front();
    const std::string name = first.substr(first.find('/') + 1);
    return constant.files.size() == 1
               ? name
               : fmt::format("{} and {} more", name, constant.files.size() - 1);
}

std::string standing(const ConstantFit& fit) {
    return !fit.fitted ? "not fitted" : fit.unconfirmed() ? "unconfirmed" : "";
}

void print_constants(const Console& console, const RunCalibration& result) {
    Table table({{"constant", Align::left},
                 {"stated in", Align::left},
                 {"plausible", Align::left},
                 {"now", Align::right},
                 {"fitted", Align::right},
                 {"leaving one out", Align::left},
                 {"groups", Align::right},
                 {"rows", Align::right},
                 {"", Align::left}});
    for (const ConstantFit& fit : result.constants) {
        const sim::Constant& c = fit.constant.constant;
        table.add({fit.constant.path,
                   stated_in(fit.constant),
                   range(c.lo, c.hi),
                   number(c.value),
                   fit.fitted ? number(fit.value) : "",
                   fit.fitted && fit.groups.size() > 1 ? range(fit.lowest, fit.highest) : "",
                   std::to_string(fit.groups.size()),
                   std::to_string(fit.rows),
                   {standing(fit), Style::doubtful}});
    }
    print_heading(console.out, "Constants fitted to runs", console.color);
    table.print(console.out, console.color, 2);
}

void print_meanings(const Console& console, const RunCalibration& result) {
    print_heading(console.out, "What they are", console.color);
    for (const ConstantFit& fit : result.constants) {
        console.out << "  " << fit.constant.path << " (" << joined(fit.constant.files) << ")\n    "
                    << fit.constant.meaning << "\n    " << fit.constant.constant.source << '\n';
        if (!fit.groups.empty()) {
            console.out << "    informed by " << joined(fit.groups) << '\n';
        }
    }
}

void print_groups(const Console& console, const RunCalibration& result) {
    Table table({{"group", Align::left},
                 {"rows", Align::right},
                 {"now", Align::right},
                 {"fitted", Align::right},
                 {"left out", Align::right},
                 {"p90", Align::right},
                 {"bias", Align::right},
                 {"family", Align::left},
                 {"bar", Align::right},
                 {"", Align::left}});
    for (const HeldOut& group : result.groups) {
        const ErrorFigures& out = group.held_out;
        const bool met = out.median <= bar_of(group);
        const bool any = out.rows > 0;
        table.add({group.group, std::to_string(group.today.rows), percent(group.today.median),
                   percent(group.fitted.median), any ? percent(out.median) : "",
                   any ? percent(out.p90) : "", any ? signed_percent(out.bias) : "",
                   group.family_elsewhere ? "elsewhere" : "alone",
                   any ? fmt::format("{:.0f} %", 100.0 * bar_of(group)) : "",
                   any ? Cell(met ? "met" : "missed", met ? Style::good : Style::bad) : Cell("")});
    }
    const auto mean = [&](ErrorFigures HeldOut::*figures) {
        double sum = 0.0;
        for (const HeldOut& group : result.groups) {
            sum += (group.*figures).median;
        }
        return percent(sum / static_cast<double>(result.groups.size()));
    };
    if (result.groups.size() > 1) {
        table.add({"mean of groups", std::to_string(result.rows), mean(&HeldOut::today),
                   mean(&HeldOut::fitted), mean(&HeldOut::held_out)});
    }
    print_heading(console.out, "Median error of step times, each group left out in turn",
                  console.color);
    table.print(console.out, console.color, 2);
}

void write_texts(sim::JsonWriter& json, std::string_view key,
                 const std::vector<std::string>& texts) {
    json.begin_array(key);
    for (const std::string& text : texts) {
        json.value(text);
    }
    json.end_array();
}

std::string report_json(const RunCalibration& result) {
    sim::JsonWriter json;
    json.begin_object().member("rows", result.rows).begin_array("constants");
    for (const ConstantFit& fit : result.constants) {
        const sim::Constant& c = fit.constant.constant;
        json.begin_object().member("path", fit.constant.path);
        json.member("meaning", fit.constant.meaning).member("unit", c.unit);
        write_texts(json, "files", fit.constant.files);
        json.member("lo", c.lo).member("hi", c.hi).member("now", c.value);
        if (fit.fitted) {
            json.member("fitted", fit.value)
                .member("lowest", fit.lowest)
                .member("highest", fit.highest);
        }
        json.member("rows", fit.rows)
            .member("witnesses", fit.witnesses)
            .member("unconfirmed", fit.unconfirmed());
        write_texts(json, "groups", fit.groups);
        json.end_object();
    }
    json.end_array().begin_array("groups");
    for (const HeldOut& group : result.groups) {
        json.begin_object()
            .member("name", group.group)
            .member("rows", group.today.rows)
            .member("family_elsewhere", group.family_elsewhere);
        write_errors(json, "now", group.today);
        write_errors(json, "fitted", group.fitted);
        if (group.held_out.rows > 0) {
            write_errors(json, "left_out", group.held_out);
            json.member("bar", bar_of(group));
        }
        json.end_object();
    }
    json.end_array();
    write_texts(json, "excluded", result.excluded);
    return json.end_object().str();
}

/// The file's name without its folder: where it lay changes nothing.
std::string input_of(const std::string& path, const std::string& text) {
    return path.substr(path.find_last_of('/') + 1) + " " + sim::content_hash(text);
}

} // namespace

int run_calibrate(const CalibrateVerbOptions& options, const Console& console) {
    if (!options.collectives.empty()) {
        const auto first = sim::read_file(options.collectives.front());
        const bool sweeps = first && sim::is_sweep(*first);
        return sweeps ? run_calibrate_sweeps(options, console)
                      : run_calibrate_collectives(options, console);
    }
    const auto text = sim::read_file(options.runs);
    if (!text) {
        return fail(console, text.error());
    }
    const auto runs = sim::parse_run_records(*text, options.runs);
    if (!runs) {
        return fail(console, runs.error());
    }
    print_problems(console, *runs);
    CalibrateOptions how;
    how.exclude = options.exclude;
    sim::Result<RunCalibration> result = [&] {
        ProgressBar bar(console);
        how.progress = &bar;
        return calibrate_runs(runs->records, how);
    }();
    if (!result) {
        return fail(console, result.error());
    }
    if (is_kept(options)) {
        const auto printed =
            keep_calibration(options,
                             calibration_of(*result, std::string("shardplan ") + SHARDPLAN_VERSION,
                                            input_of(options.runs, *text)),
                             console);
        if (!printed) {
            return fail(console, printed.error());
        }
        if (*printed) {
            return exit_code::yes;
        }
    }
    if (console.json) {
        console.out << report_json(*result);
        return exit_code::yes;
    }
    console.out << fmt::format("{} step times of {} groups\n", result->rows, result->groups.size());
    print_constants(console, *result);
    print_groups(console, *result);
    print_meanings(console, *result);
    print_kept(options, console);
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
