#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/reproduce.hpp"
#include "planner/analysis/run_ranking.hpp"
#include "planner/analysis/validate.hpp"
#include "planner/cli/present_ranking.hpp"
#include "planner/cli/record_report.hpp"
#include "planner/cli/table.hpp"
#include "planner/cli/verbs.hpp"
#include "simulator/io/json.hpp"
#include "simulator/io/run_record.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan::cli {
namespace {

/// `bands`: whether the figures have a band to be inside of.
void write_errors(sim::JsonWriter& json, std::string_view key, const ErrorFigures& figures,
                  bool bands = true) {
    json.begin_object(key).member("rows", figures.rows);
    if (figures.rows > 0) {
        json.member("median", figures.median)
            .member("p90", figures.p90)
            .member("bias", figures.bias);
        if (bands) {
            json.member("within_one_sigma", figures.within_one)
                .member("within_two_sigmas", figures.within_two);
        }
    }
    json.end_object();
}

void write_group(sim::JsonWriter& json, const GroupFigures& group) {
    json.begin_object()
        .member("name", group.name)
        .member("records", group.records)
        .member("skipped", group.skipped);
    write_errors(json, "time", group.time);
    write_errors(json, "allocated", group.allocated);
    write_errors(json, "reserved", group.reserved);
    write_errors(json, "process", group.process);
    write_errors(json, "not_scored", group.shown, false);
    json.begin_object("fit")
        .member("rows", group.fit.rows())
        .member("right", group.fit.right)
        .member("wrong", group.fit.wrong)
        .member("borderline", group.fit.borderline)
        .end_object()
        .end_object();
}

void write_picks(sim::JsonWriter& json, std::string_view key, const MemoryPicks& picks) {
    json.begin_object(key)
        .member("first", picks.first)
        .member("last", picks.last)
        .member("max", picks.max)
        .end_object();
}

void write_row(sim::JsonWriter& json, const RunPrediction& row, bool notes) {
    json.begin_object().member("id", row.id);
    if (!row.skipped.empty()) {
        json.member("skipped", row.skipped).end_object();
        return;
    }
    json.member("step_time_s", row.step_time_s)
        .member("step_time_low_s", row.step_time_low_s)
        .member("step_time_high_s", row.step_time_high_s)
        .begin_object("memory");
    write_picks(json, "allocated_gib", row.allocated);
    write_picks(json, "reserved_gib", row.reserved);
    write_picks(json, "process_gib", row.process);
    json.end_object().member("verdict", name_of(row.verdict));
    if (notes) write_row_notes(json, row.notes);
    json.end_object();
}

void add_error_row(Table& table, const std::string& group, const char* kind,
                   const ErrorFigures& figures, bool bands = true) {
    if (figures.rows > 0) {
        const auto share = [&](double part) {
            return bands ? fmt::format("{:.0f} %", 100.0 * part) : "";
        };
        table.add({group, kind, std::to_string(figures.rows), percent(figures.median),
                   percent(figures.p90), fmt::format("{:+.1f} %", 100.0 * figures.bias),
                   share(figures.within_one), share(figures.within_two)});
    }
}

void print_groups(const Console& console, const std::vector<GroupFigures>& groups) {
    Table errors({{"group", Align::left},
                  {"figure", Align::left},
                  {"rows", Align::right},
                  {"median", Align::right},
                  {"p90", Align::right},
                  {"bias", Align::right},
                  {"in 1 sigma", Align::right},
                  {"in 2 sigma", Align::right}});
    Table fits({{"group", Align::left},
                {"rows", Align::right},
                {"right", Align::right},
                {"wrong", Align::right},
                {"borderline", Align::right},
                {"right of committed", Align::right}});
    for (const GroupFigures& group : groups) {
        add_error_row(errors, group.name, "step time", group.time);
        add_error_row(errors, group.name, "memory allocated", group.allocated);
        add_error_row(errors, group.name, "memory reserved", group.reserved);
        add_error_row(errors, group.name, "memory process", group.process);
        add_error_row(errors, group.name, "memory, not scored", group.shown, false);
        const FitFigures& fit = group.fit;
        if (fit.rows() > 0) {
            const std::int64_t committed = fit.right + fit.wrong;
            fits.add({group.name, std::to_string(fit.rows()), std::to_string(fit.right),
                      std::to_string(fit.wrong), std::to_string(fit.borderline),
                      committed > 0
                          ? percent(static_cast<double>(fit.right) / static_cast<double>(committed))
                          : ""});
        }
    }
    if (!errors.empty()) {
        print_heading(console.out, "Error = prediction / measurement - 1", console.color);
        errors.print(console.out, console.color, 2);
    }
    if (!fits.empty()) {
        print_heading(console.out, "Verdict", console.color);
        fits.print(console.out, console.color, 2);
    }
}

/// Few records: each with what was measured and what is predicted.
void print_rows(const Console& console, const std::vector<sim::RunRecord>& records,
                const std::vector<RunPrediction>& rows) {
    Table table({{"record", Align::left},
                 {"figure", Align::left},
                 {"measured", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right}});
    const auto error = [](double predicted, double measured) {
        return measured > 0.0 ? fmt::format("{:+.1f} %", 100.0 * (predicted / measured - 1.0)) : "";
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const RunPrediction& row = rows[i];
        const sim::RunMeasured& measured = records[i].measured;
        if (!row.skipped.empty()) {
            table.add({row.id, "skipped", "", "", row.skipped});
            continue;
        }
        const double seconds = measured.step_time_s.value_or(0.0);
        table.add({row.id, "step time", seconds > 0.0 ? sim::to_text(sim::Seconds(seconds)) : "",
                   sim::to_text(sim::Seconds(row.step_time_s)), error(row.step_time_s, seconds)});
        for (const sim::RunMemory& m : measured.memory) {
            const MemoryPicks* picks = m.kind == "allocated"  ? &row.allocated
                                       : m.kind == "reserved" ? &row.reserved
                                       : m.kind == "process"  ? &row.process
                                                              : nullptr;
            if (picks == nullptr) {
                continue;
            }
            const double predicted = m.rank == "first"  ? picks->first
                                     : m.rank == "last" ? picks->last
                                                        : picks->max;
            table.add({"", m.kind + " memory, " + m.rank + " rank",
                       fmt::format("{:.2f} GiB", m.gib), fmt::format("{:.2f} GiB", predicted),
                       error(predicted, m.gib)});
        }
        const bool ran_out = measured.oom;
        table.add({"", "verdict", ran_out ? "ran out of memory" : "ran",
                   std::string(name_of(row.verdict)), ""});
    }
    print_heading(console.out, "Records", console.color);
    table.print(console.out, console.color, 2);
}

void print_skipped(const Console& console, const std::vector<RunPrediction>& rows) {
    constexpr std::size_t shown = 10;
    std::vector<std::pair<std::string, std::int64_t>> reasons;
    for (const RunPrediction& row : rows) {
        if (row.skipped.empty()) {
            continue;
        }
        auto known = reasons.begin();
        while (known != reasons.end() && known->first != row.skipped) {
            ++known;
        }
        if (known == reasons.end()) {
            reasons.emplace_back(row.skipped, 1);
        } else {
            ++known->second;
        }
    }
    if (reasons.empty()) {
        return;
    }
    print_heading(console.out, "Skipped", console.color);
    Table table({{"rows", Align::right}, {"reason", Align::left}});
    for (std::size_t i = 0; i < std::min(shown, reasons.size()); ++i) {
        table.add({std::to_string(reasons[i].second), reasons[i].first});
    }
    if (reasons.size() > shown) {
        table.add({"", fmt::format("and {} more reasons", reasons.size() - shown)});
    }
    table.print(console.out, console.color, 2);
}

} // namespace

void print_problems(const Console& console, const sim::RunRecords& runs) {
    print_problems(console, runs.problems);
    for (const sim::RunRecord& record : runs.records) {
        if (const std::string text = rank_contradiction(record); !text.empty()) {
            console.err << "warning: " << record.id << ": " << text << '\n';
        }
    }
}

int run_validate(const ValidateOptions& options, const Console& console) {
    if (!options.kernels.empty()) {
        return run_validate_kernels(options, console);
    }
    if (!options.collectives.empty()) {
        return run_validate_collectives(options, console);
    }
    if (!options.measurements.empty()) {
        return run_validate_measurements(options, console);
    }
    const std::vector<std::string> by =
        options.by.empty() ? std::vector<std::string>{"group"} : options.by;
    if (const auto status = check_grouping(by); !status) {
        return fail(console, status.error());
    }
    const auto runs = sim::read_run_records(options.runs);
    if (!runs) {
        return fail(console, runs.error());
    }
    print_problems(console, *runs);
    const auto rows = predict_runs(runs->records);
    if (!rows) {
        return fail(console, rows.error());
    }
    const auto ranking = rank_runs(runs->records, *rows, by);
    if (!ranking) {
        return fail(console, ranking.error());
    }
    auto groups = score_predictions(runs->records, *rows, by);
    if (console.json) {
        sim::JsonWriter json;
        json.begin_object().begin_array("groups");
        for (const GroupFigures& group : groups) {
            write_group(json, group);
        }
        json.end_array().begin_array("rows");
        for (const RunPrediction& row : *rows) {
            write_row(json, row, options.notes);
        }
        json.end_array();
        write_ranking(json, *ranking);
        json.end_object();
        console.out << json.str();
        return code_of_report(console, *rows, options.runs);
    }
    const GroupFigures all = score_all(runs->records, *rows);
    console.out << fmt::format("{} records, {} predicted, {} skipped\n", all.records,
                               all.records - all.skipped, all.skipped);
    const auto rounded = std::count_if(rows->begin(), rows->end(), [](const RunPrediction& row) {
        return std::any_of(row.notes.begin(), row.notes.end(), [](const sim::Assumption& note) {
            return note.path == "layout.global_batch" && note.origin.starts_with("rounded");
        });
    });
    if (rounded > 0) {
        console.out << fmt::format(
            "{} with the global batch rounded up to whole micro-batches (--json --notes)\n",
            rounded);
    }
    if (groups.size() > 1) {
        groups.push_back(all);
    }
    constexpr std::size_t few = 20;
    if (rows->size() <= few) {
        print_rows(console, runs->records, *rows);
    }
    print_groups(console, groups);
    print_ranking(console, *ranking, options.sweeps);
    if (rows->size() > few) {
        print_skipped(console, *rows);
    }
    return code_of_report(console, *rows, options.runs);
}

} // namespace shardplan::plan::cli
