#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/collectives_fit.hpp"
#include "planner/cli/calibration_file.hpp"
#include "planner/cli/collective_input.hpp"
#include "planner/cli/fabric_report.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {
namespace {

std::string report_json(const FabricFits& result, const std::vector<sim::Assumption>& assumptions) {
    sim::JsonWriter json;
    json.begin_object();
    write_fabrics(json, result);
    json.begin_array("assumptions");
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
    if (is_kept(options)) {
        const auto calibration = file_of(*result, *timed, options.match_mistuned);
        if (!calibration) {
            return fail(console, calibration.error());
        }
        const auto printed = keep_calibration(options, *calibration, console);
        if (!printed) {
            return fail(console, printed.error());
        }
        if (*printed) {
            return exit_code::yes;
        }
    }
    if (console.json) {
        console.out << report_json(*result, timed->assumptions);
        return exit_code::yes;
    }
    console.out << fmt::format(
        "{} timings, {} fitted\n", timed->records.size(),
        result->fits.size() == 1 ? "one network" : fmt::format("{} networks", result->fits.size()));
    print_fabrics(console, *result);
    print_assumptions(console.out, timed->assumptions, console.color);
    const auto mistuned = std::count_if(result->fits.begin(), result->fits.end(),
                                        [](const FabricFit& fit) { return !fit.flag.empty(); });
    if (mistuned > 0 && !options.match_mistuned && is_kept(options)) {
        console.out << "\nNot written: constants of systems that look mistuned "
                       "(--match-mistuned)\n";
    }
    print_kept(options, console);
    return exit_code::yes;
}

} // namespace shardplan::plan::cli
