#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/collectives_fit.hpp"
#include "planner/cli/collective_input.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {
namespace {

/// "2 x 8, 4 x 8": nodes and ranks on each.
std::string shapes_of(const FabricFit& fit) {
    std::string out;
    for (const FitShape& shape : fit.shapes) {
        out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", shape.nodes,
                           shape.ranks / shape.nodes);
    }
    return out;
}

void print_fits(const Console& console, const std::vector<FabricFit>& fits) {
    Table table({{"system", Align::left},
                 {"device", Align::left},
                 {"network", Align::left},
                 {"nodes x ranks", Align::left},
                 {"rows", Align::right},
                 {"error before", Align::right},
                 {"after", Align::right},
                 {"p90 after", Align::right},
                 {"", Align::left}});
    for (const FabricFit& fit : fits) {
        table.add({fit.system,
                   fit.device,
                   fit.fabric,
                   shapes_of(fit),
                   std::to_string(fit.after.rows),
                   percent(fit.before.median),
                   percent(fit.after.median),
                   percent(fit.after.p90),
                   {fit.flag.empty() ? "" : "mistuned?", Style::bad}});
    }
    print_heading(console.out, "Fits: median error = |predicted / measured - 1|", console.color);
    table.print(console.out, console.color, 2);
    for (const FabricFit& fit : fits) {
        if (!fit.flag.empty()) {
            console.out << fmt::format("{}, {}: {}\n", fit.system, fit.fabric, fit.flag);
        }
    }
}

void print_constants(const Console& console, const std::vector<FabricFit>& fits) {
    Table table({{"system", Align::left},
                 {"constant", Align::left},
                 {"before", Align::right},
                 {"after", Align::right},
                 {"", Align::left}});
    for (const FabricFit& fit : fits) {
        for (const DecidedConstant& one : fit.decided) {
            table.add({fit.system, one.path, fmt::format("{:.4g}", one.before),
                       fmt::format("{:.4g}", one.after), one.unit});
        }
    }
    if (!table.empty()) {
        print_heading(console.out, "Constants that the timings decide", console.color);
        table.print(console.out, console.color, 2);
    }
}

void print_left_out(const Console& console, const std::vector<NotFitted>& left_out) {
    if (left_out.empty()) {
        return;
    }
    Table table({{"rows", Align::right}, {"system", Align::left}, {"why", Align::left}});
    for (const NotFitted& one : left_out) {
        table.add({std::to_string(one.records), one.system, one.why});
    }
    print_heading(console.out, "Left out", console.color);
    table.print(console.out, console.color, 2);
}

std::string report_json(const FabricFits& result, const std::vector<sim::Assumption>& assumptions) {
    sim::JsonWriter json;
    json.begin_object().begin_array("fits");
    for (const FabricFit& fit : result.fits) {
        json.begin_object()
            .member("system", fit.system)
            .member("device", fit.device)
            .member("fabric", fit.fabric)
            .member("rows", fit.after.rows);
        json.begin_array("shapes");
        for (const FitShape& shape : fit.shapes) {
            json.begin_object()
                .member("nodes", shape.nodes)
                .member("ranks", shape.ranks)
                .end_object();
        }
        json.end_array();
        write_errors(json, "before", fit.before);
        write_errors(json, "after", fit.after);
        json.begin_array("constants");
        for (const DecidedConstant& one : fit.decided) {
            json.begin_object()
                .member("path", one.path)
                .member("unit", one.unit)
                .member("before", one.before)
                .member("after", one.after)
                .end_object();
        }
        json.end_array();
        if (!fit.flag.empty()) {
            json.member("flag", fit.flag);
        }
        json.end_object();
    }
    json.end_array().begin_array("left_out");
    for (const NotFitted& one : result.left_out) {
        json.begin_object()
            .member("system", one.system)
            .member("rows", one.records)
            .member("why", one.why)
            .end_object();
    }
    json.end_array().begin_array("assumptions");
    for (const sim::Assumption& one : assumptions) {
        json.value(one);
    }
    return json.end_array().end_object().str();
}

/// What is written: fits of systems that look right, and the others where that is asked for.
sim::Result<sim::Calibration> file_of(const FabricFits& result, const TimedCollectives& timed,
                                      bool match_mistuned) {
    std::vector<FabricFit> fits;
    for (const FabricFit& fit : result.fits) {
        if (fit.flag.empty() || match_mistuned) {
            fits.push_back(fit);
        }
    }
    if (fits.empty()) {
        return sim::Error{sim::ErrorCode::bad_input, "-o",
                          "every system fitted looks mistuned: " + result.fits.front().flag,
                          "mend and measure again, or add --match-mistuned to plan with it as it "
                          "is"};
    }
    auto calibration =
        calibration_of(fits, std::string("shardplan ") + SHARDPLAN_VERSION, timed.input);
    if (calibration && !timed.hosts.empty()) {
        calibration->machine = timed.hosts;
    }
    return calibration;
}

/// Why there is no fit at all.
sim::Error nothing_fitted(const FabricFits& result) {
    sim::Error error{sim::ErrorCode::bad_input, "calibrate", "no network can be fitted",
                     "measure at least four sizes"};
    if (!result.left_out.empty()) {
        error.where = result.left_out.front().system;
        error.what += ": " + result.left_out.front().why;
    }
    return error;
}

} // namespace

int run_calibrate_collectives(const CalibrateVerbOptions& options, const Console& console) {
    const auto timed = collectives_from(options.collectives, options.timing);
    if (!timed) {
        return fail(console, timed.error());
    }
    print_problems(console, timed->problems);
    const auto result = fit_fabrics(timed->records, timed->machine);
    if (!result) {
        return fail(console, result.error());
    }
    if (result->fits.empty()) {
        return fail(console, nothing_fitted(*result));
    }
    if (!options.output.empty()) {
        const auto calibration = file_of(*result, *timed, options.match_mistuned);
        if (!calibration) {
            return fail(console, calibration.error());
        }
        const std::string file = write_described(*calibration) + "\n";
        if (options.output == "-") {
            console.out << file;
            return exit_code::yes;
        }
        if (const auto written = sim::write_file(options.output, file); !written) {
            return fail(console, written.error());
        }
    }
    if (console.json) {
        console.out << report_json(*result, timed->assumptions);
        return exit_code::yes;
    }
    console.out << fmt::format(
        "{} timings, {} fitted\n", timed->records.size(),
        result->fits.size() == 1 ? "one network" : fmt::format("{} networks", result->fits.size()));
    print_fits(console, result->fits);
    print_constants(console, result->fits);
    print_left_out(console, result->left_out);
    print_assumptions(console.out, timed->assumptions, console.color);
    const auto mistuned = std::count_if(result->fits.begin(), result->fits.end(),
                                        [](const FabricFit& fit) { return !fit.flag.empty(); });
    if (mistuned > 0 && !options.match_mistuned && !options.output.empty()) {
        console.out << "\nNot written: constants of systems that look mistuned "
                       "(--match-mistuned)\n";
    }
    if (!options.output.empty()) {
        console.out << "\nWritten to " << options.output << "; use it with --calibration "
                    << options.output << '\n';
    }
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
