#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/kernels.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/kernel_record.hpp"

namespace shardplan::plan::cli {
namespace {

void write_group(sim::JsonWriter& json, const KernelFigures& group) {
    json.begin_object()
        .member("name", group.name)
        .member("records", group.records)
        .member("skipped", group.skipped);
    json.begin_object("time").member("rows", group.time.rows);
    if (group.time.rows > 0) {
        json.member("median", group.time.median)
            .member("p90", group.time.p90)
            .member("max", group.max)
            .member("bias", group.time.bias);
    }
    json.end_object().end_object();
}

void write_row(sim::JsonWriter& json, const KernelPrediction& row, bool notes) {
    json.begin_object().member("id", row.id);
    if (!row.skipped.empty()) {
        json.member("skipped", row.skipped).end_object();
        return;
    }
    json.member("time_us", 1e6 * row.seconds).member("measured_us", 1e6 * row.measured_s);
    if (notes) write_row_notes(json, row.notes);
    json.end_object();
}

std::string micros(double seconds) { return fmt::format("{:.1f} us", 1e6 * seconds); }

std::string with_sign(double error) { return fmt::format("{:+.1f} %", 100.0 * error); }

/// Few records: each with what was measured and what is predicted.
void print_rows(const Console& console, const std::vector<KernelPrediction>& rows) {
    Table table({{"record", Align::left},
                 {"measured", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right}});
    for (const KernelPrediction& row : rows) {
        if (!row.skipped.empty()) {
            table.add({row.id, "", "skipped", row.skipped});
            continue;
        }
        table.add({row.id, micros(row.measured_s), micros(row.seconds),
                   with_sign(row.seconds / row.measured_s - 1.0)});
    }
    print_heading(console.out, "Records", console.color);
    table.print(console.out, console.color, 2);
}

void print_groups(const Console& console, const std::vector<KernelFigures>& groups) {
    Table table({{"kernels", Align::left},
                 {"rows", Align::right},
                 {"median", Align::right},
                 {"p90", Align::right},
                 {"max", Align::right},
                 {"bias", Align::right}});
    for (const KernelFigures& group : groups) {
        if (group.time.rows > 0) {
            table.add({group.name, std::to_string(group.time.rows), percent(group.time.median),
                       percent(group.time.p90), percent(group.max), with_sign(group.time.bias)});
        }
    }
    if (!table.empty()) {
        print_heading(console.out, "Error = prediction / measurement - 1", console.color);
        table.print(console.out, console.color, 2);
    }
}

void print_skipped(const Console& console, const std::vector<KernelPrediction>& rows) {
    std::map<std::string, std::int64_t> reasons;
    for (const KernelPrediction& row : rows) {
        if (!row.skipped.empty()) {
            ++reasons[row.skipped];
        }
    }
    if (reasons.empty()) {
        return;
    }
    Table table({{"rows", Align::right}, {"reason", Align::left}});
    for (const auto& [reason, count] : reasons) {
        table.add({std::to_string(count), reason});
    }
    print_heading(console.out, "Skipped", console.color);
    table.print(console.out, console.color, 2);
}

} // namespace

int run_validate_kernels(const ValidateOptions& options, const Console& console) {
    const std::vector<std::string> by =
        options.by.empty() ? std::vector<std::string>{"device", "operator", "kernel", "dtype"}
                           : options.by;
    if (const auto status = check_grouping(by, kernel_grouping_names()); !status) {
        return fail(console, status.error());
    }
    const auto kernels = sim::read_kernel_records(options.kernels);
    if (!kernels) {
        return fail(console, kernels.error());
    }
    print_problems(console, kernels->problems);
    const auto rows = predict_kernels(kernels->records);
    if (!rows) {
        return fail(console, rows.error());
    }
    const auto groups = score_kernels(kernels->records, *rows, by);
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().begin_array("groups");
        for (const KernelFigures& group : groups) {
            write_group(json, group);
        }
        json.end_array().begin_array("rows");
        for (const KernelPrediction& row : *rows) {
            write_row(json, row, options.notes);
        }
        json.end_array().end_object();
        console.out << json.str();
        return code_of_report(console, *rows, options.kernels);
    }
    const KernelFigures& all = groups.back();
    console.out << fmt::format("{} kernel records, {} predicted, {} skipped\n", all.records,
                               all.records - all.skipped, all.skipped);
    constexpr std::size_t few = 20;
    if (rows->size() <= few) {
        print_rows(console, *rows);
    }
    print_groups(console, groups);
    if (rows->size() > few) {
        print_skipped(console, *rows);
    }
    return code_of_report(console, *rows, options.kernels);
}

} // namespace shardplan::plan::cli
