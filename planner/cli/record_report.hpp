#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/validate.hpp"
#include "planner/cli/console.hpp"
#include "simulator/io/json.hpp"

/// What verbs that read measured records share.

namespace shardplan::plan::cli {

/// Lines of a file of records that were lost, as warnings: the first ten and how many more.
void print_problems(const Console& console, const std::vector<sim::Error>& problems);
/// Median, p90 and bias as an object under `key`.
void write_errors(sim::JsonWriter& json, std::string_view key, const ErrorFigures& figures);
/// What was taken where a record is silent, as the member "assumptions".
void write_row_notes(sim::JsonWriter& json, const std::vector<sim::Assumption>& notes);

/// The exit code of a report over records. "No" where none of them could be predicted, as in a file
/// of another kind: its figures say nothing. `Row` has `skipped`, empty where there is a
/// prediction.
template <class Row>
int code_of_report(const Console& console, const std::vector<Row>& rows, const std::string& file) {
    const bool any =
        std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.skipped.empty(); });
    if (any) return exit_code::yes;
    console.err << "warning: " << file << ": none of its records could be predicted; is this a "
                << "file of another kind (--runs, --kernels, --collectives)?\n";
    return console.no();
}

} // namespace shardplan::plan::cli
