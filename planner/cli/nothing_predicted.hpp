#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "planner/cli/console.hpp"

namespace shardplan::plan::cli {

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
