#include "planner/cli/record_report.hpp"

#include <algorithm>

namespace shardplan::plan::cli {

void print_problems(const Console& console, const std::vector<sim::Error>& problems) {
    // a file of another kind has as many as lines
    constexpr std::size_t most = 10;
    for (std::size_t i = 0; i < std::min(most, problems.size()); ++i) {
        const sim::Error& problem = problems[i];
        console.err << "warning: " << problem.where << ": " << problem.what << " (" << problem.hint
                    << ")\n";
    }
    if (problems.size() > most) {
        console.err << "warning: and " << problems.size() - most << " more lines like these\n";
    }
}

void write_errors(sim::JsonWriter& json, std::string_view key, const ErrorFigures& figures) {
    json.begin_object(key)
        .member("median", figures.median)
        .member("p90", figures.p90)
        .member("bias", figures.bias)
        .end_object();
}

void write_row_notes(sim::JsonWriter& json, const std::vector<sim::Assumption>& notes) {
    json.begin_array("assumptions");
    for (const sim::Assumption& note : notes) {
        json.value(note);
    }
    json.end_array();
}

} // namespace shardplan::plan::cli
