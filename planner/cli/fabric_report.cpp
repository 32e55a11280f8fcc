#include "planner/cli/fabric_report.hpp"

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"

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

} // namespace

void print_fabrics(const Console& console, const FabricFits& result) {
    print_fits(console, result.fits);
    print_constants(console, result.fits);
    print_left_out(console, result.left_out);
}

void write_fabrics(sim::JsonWriter& json, const FabricFits& result) {
    json.begin_array("fits");
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
    json.end_array();
}

} // namespace shardplan::plan::cli
