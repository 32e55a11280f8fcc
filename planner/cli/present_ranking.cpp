#include "planner/cli/present_ranking.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "planner/cli/table.hpp"

namespace shardplan::plan::cli {
namespace {

/// A search that shows this many plans would have shown the published one.
constexpr std::int64_t first_few = 5;
/// Predicted times this close cannot be told apart.
constexpr double close_gap = 0.05;

std::string of(std::int64_t part, std::int64_t whole) {
    return fmt::format("{} of {}", part, whole);
}

void print_groups(const Console& console, const RunRanking& ranking) {
    Table table({{"group", Align::left},
                 {"sweeps", Align::right},
                 {"median regret", Align::right},
                 {"worst", Align::right},
                 {"best chosen", Align::right},
                 {"median tau", Align::right},
                 {"rows", Align::right},
                 {"rank correlation", Align::right}});
    for (const GroupRanking& group : ranking.groups) {
        const bool any = group.sweeps > 0;
        table.add({group.name, any ? std::to_string(group.sweeps) : "",
                   any ? percent(group.median_regret) : "", any ? percent(group.worst_regret) : "",
                   any ? of(group.best_chosen, group.sweeps) : "",
                   any ? fmt::format("{:.2f}", group.median_tau) : "", std::to_string(group.rows),
                   fmt::format("{:.3f}", group.correlation)});
    }
    if (!table.empty()) {
        print_heading(console.out, "Order of step times", console.color);
        table.print(console.out, console.color, 2);
    }
}

void print_sweeps(const Console& console, const RunRanking& ranking) {
    Table table({{"sweep", Align::left},
                 {"rows", Align::right},
                 {"regret", Align::right},
                 {"tau", Align::right},
                 {"predicted fastest", Align::left}});
    for (const SweepRanking& sweep : ranking.sweeps) {
        table.add({sweep.sweep, std::to_string(sweep.rows), percent(sweep.regret),
                   fmt::format("{:.2f}", sweep.tau), sweep.chosen});
    }
    if (!table.empty()) {
        print_heading(console.out, "Sweeps", console.color);
        table.print(console.out, console.color, 2);
    }
}

void print_grids(const Console& console, const RunRanking& ranking) {
    Table table({{"published as best", Align::left},
                 {"layouts", Align::right},
                 {"our rank", Align::right},
                 {"behind our best", Align::right},
                 {"our best", Align::left}});
    std::int64_t among_first = 0;
    std::int64_t close = 0;
    for (const GridRanking& grid : ranking.grids) {
        if (!grid.skipped.empty()) {
            table.add({grid.id, "", "", "", grid.skipped});
            continue;
        }
        among_first += grid.rank <= first_few ? 1 : 0;
        close += grid.gap <= close_gap ? 1 : 0;
        table.add({grid.id, std::to_string(grid.layouts), std::to_string(grid.rank),
                   percent(grid.gap), grid.best});
    }
    if (table.empty()) {
        return;
    }
    print_heading(console.out, "Best of a search", console.color);
    table.print(console.out, console.color, 2);
    const auto all = static_cast<std::int64_t>(ranking.grids.size());
    console.out << fmt::format("  among our first {}: {}; within {:.0f} % of our best: {}\n",
                               first_few, of(among_first, all), 100.0 * close_gap, of(close, all));
}

} // namespace

void print_ranking(const Console& console, const RunRanking& ranking, bool every_sweep) {
    print_groups(console, ranking);
    if (every_sweep) {
        print_sweeps(console, ranking);
    }
    print_grids(console, ranking);
}

void write_ranking(sim::JsonWriter& json, const RunRanking& ranking) {
    json.begin_object("ranking").begin_array("groups");
    for (const GroupRanking& group : ranking.groups) {
        json.begin_object()
            .member("name", group.name)
            .member("rows", group.rows)
            .member("spearman", group.correlation)
            .member("sweeps", group.sweeps);
        if (group.sweeps > 0) {
            json.member("median_regret", group.median_regret)
                .member("worst_regret", group.worst_regret)
                .member("best_chosen", group.best_chosen)
                .member("median_tau", group.median_tau);
        }
        json.end_object();
    }
    json.end_array().begin_array("sweeps");
    for (const SweepRanking& sweep : ranking.sweeps) {
        json.begin_object()
            .member("sweep", sweep.sweep)
            .member("group", sweep.group)
            .member("rows", sweep.rows)
            .member("chosen", sweep.chosen)
            .member("regret", sweep.regret)
            .member("tau", sweep.tau)
            .end_object();
    }
    json.end_array().begin_array("grids");
    for (const GridRanking& grid : ranking.grids) {
        json.begin_object().member("id", grid.id).member("group", grid.group);
        if (grid.skipped.empty()) {
            json.member("layouts", grid.layouts)
                .member("rank", grid.rank)
                .member("gap", grid.gap)
                .member("best", grid.best);
        } else {
            json.member("skipped", grid.skipped);
        }
        json.end_object();
    }
    json.end_array().end_object();
}

} // namespace shardplan::plan::cli
