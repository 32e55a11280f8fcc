#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/collectives.hpp"
#include "planner/analysis/collectives_fit.hpp"
#include "planner/cli/collective_input.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/document.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::plan::cli {
namespace {

/// All curves as one line of the table of errors.
CollectiveBar bar_of(const std::vector<CurveTest>& curves) {
    CollectiveBar bar;
    bar.what = "curves fitted on every second size, on the others";
    std::vector<double> medians;
    for (const CurveTest& curve : curves) {
        medians.push_back(curve.tested.median);
        bar.rows += curve.tested.rows;
    }
    bar.median = median_of(medians);
    return bar;
}

void write_json(const Console& console, const std::vector<CollectiveBar>& bars,
                const std::vector<CollectiveGroup>& groups,
                const std::vector<CollectivePrediction>& rows,
                const std::vector<sim::Assumption>& assumptions, bool notes) {
    sim::JsonWriter json;
    json.begin_object().begin_array("bars");
    for (const CollectiveBar& bar : bars) {
        json.begin_object()
            .member("name", bar.what)
            .member("systems", bar.systems)
            .member("rows", bar.rows);
        if (bar.rows > 0) {
            json.member("median", bar.median);
        }
        if (bar.systems > 0) {
            json.member("within_15_percent", bar.within_15)
                .member("worst", bar.worst)
                .member("worst_system", bar.worst_system);
        }
        json.end_object();
    }
    json.end_array().begin_array("groups");
    for (const CollectiveGroup& group : groups) {
        json.begin_object()
            .member("system", group.system)
            .member("collective", group.collective)
            .member("size", name_of(group.band))
            .member("records", group.records)
            .member("skipped", group.skipped)
            .member("flagged", group.flagged);
        if (group.time.rows > 0) {
            json.member("median", group.time.median)
                .member("p90", group.time.p90)
                .member("bias", group.time.bias);
        }
        if (!group.remark.empty()) {
            json.member("remark", group.remark);
        }
        json.end_object();
    }
    json.end_array().begin_array("rows");
    for (const CollectivePrediction& row : rows) {
        json.begin_object().member("id", row.id);
        if (!row.skipped.empty()) {
            json.member("skipped", row.skipped).end_object();
            continue;
        }
        json.member("time_us", row.time_us)
            .member("algorithm", row.algorithm)
            .member("protocol", row.protocol);
        if (!row.flag.empty()) {
            json.member("flag", row.flag);
        }
        if (notes) write_row_notes(json, row.notes);
        json.end_object();
    }
    json.end_array().begin_array("assumptions");
    for (const sim::Assumption& one : assumptions) {
        json.value(one);
    }
    json.end_array().end_object();
    console.out << json.str();
}

void print_bars(const Console& console, const std::vector<CollectiveBar>& bars) {
    Table table({{"collectives", Align::left},
                 {"systems", Align::right},
                 {"rows", Align::right},
                 {"median", Align::right},
                 {"within 15 %", Align::right},
                 {"worst", Align::right},
                 {"worst system", Align::left}});
    for (const CollectiveBar& bar : bars) {
        const bool by_system = bar.systems > 0;
        if (bar.rows == 0) {
            continue;
        }
        table.add({bar.what, by_system ? std::to_string(bar.systems) : "", std::to_string(bar.rows),
                   percent(bar.median), by_system ? percent(bar.within_15) : "",
                   by_system ? percent(bar.worst) : "", bar.worst_system});
    }
    if (!table.empty()) {
        print_heading(console.out, "Errors of the time", console.color);
        table.print(console.out, console.color, 2);
    }
}

void print_groups(const Console& console, const std::vector<CollectiveGroup>& groups) {
    Table table({{"system", Align::left},
                 {"collective", Align::left},
                 {"size", Align::left},
                 {"rows", Align::right},
                 {"median", Align::right},
                 {"p90", Align::right},
                 {"bias", Align::right},
                 {"", Align::left}});
    for (const CollectiveGroup& group : groups) {
        const bool counted = group.time.rows > 0;
        std::string remark;
        if (group.skipped > 0) {
            remark = fmt::format("{} skipped", group.skipped);
        }
        if (group.flagged > 0) {
            remark += fmt::format("{}{} flagged", remark.empty() ? "" : ", ", group.flagged);
        }
        table.add({group.system, group.collective, std::string(name_of(group.band)),
                   std::to_string(group.records), counted ? percent(group.time.median) : "",
                   counted ? percent(group.time.p90) : "",
                   counted ? fmt::format("{:+.1f} %", 100.0 * group.time.bias) : "", remark});
    }
    print_heading(console.out, "By system, collective and size", console.color);
    table.print(console.out, console.color, 2);
    for (const CollectiveGroup& group : groups) {
        if (!group.remark.empty()) {
            console.out << fmt::format("{}, {}: {}\n", group.system, group.collective,
                                       group.remark);
        }
    }
}

} // namespace

int run_validate_collectives(const ValidateOptions& options, const Console& console) {
    const auto file = collectives_from({options.collectives}, options.timing);
    if (!file) {
        return fail(console, file.error());
    }
    print_problems(console, file->problems);
    sim::Calibration calibration;
    if (!options.calibration.empty()) {
        auto loaded = sim::read_calibration_file(options.calibration);
        if (!loaded) {
            return fail(console, loaded.error());
        }
        calibration = std::move(*loaded);
    }
    const auto rows = predict_collectives(file->records, calibration, file->machine);
    if (!rows) {
        return fail(console, rows.error());
    }
    const auto curves = test_curves(file->records, file->machine);
    if (!curves) {
        return fail(console, curves.error());
    }
    auto bars = collective_bars(file->records, *rows);
    if (!curves->empty()) {
        bars.push_back(bar_of(*curves));
    }
    const auto groups = score_collectives(file->records, *rows);
    if (console.json) {
        write_json(console, bars, groups, *rows, file->assumptions, options.notes);
        return code_of_report(console, *rows, options.collectives);
    }
    std::int64_t skipped = 0;
    for (const CollectivePrediction& row : *rows) {
        skipped += row.skipped.empty() ? 0 : 1;
    }
    console.out << fmt::format("{} records, {} predicted, {} skipped\n", rows->size(),
                               static_cast<std::int64_t>(rows->size()) - skipped, skipped);
    print_bars(console, bars);
    print_groups(console, groups);
    print_assumptions(console.out, file->assumptions, console.color);
    return code_of_report(console, *rows, options.collectives);
}

} // namespace shardplan::plan::cli
