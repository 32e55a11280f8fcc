#include "planner/analysis/measured_set.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shardplan::plan {
namespace {

bool is_equal(const MeasuredTerm& term) {
    return !term.known() || term.predicted == *term.measured;
}

bool holds_as_predicted(const MeasuredComparison& c) {
    return std::all_of(c.memory.begin(), c.memory.end(), [](const MeasuredMemory& m) {
        return std::all_of(m.held.begin(), m.held.end(), is_equal);
    });
}

/// Error of the peak of the class that is off most.
double peak_error(const MeasuredComparison& c) {
    double out = 0.0;
    for (const MeasuredMemory& m : c.memory) {
        const double measured = m.allocated.measured.value_or(0.0);
        if (measured <= 0.0) continue;
        const double error = m.allocated.predicted / measured - 1.0;
        if (std::abs(error) > std::abs(out)) out = error;
    }
    return out;
}

/// The runs of one layout as one row.
MeasuredLayout row_of(const std::vector<const MeasuredRun*>& runs) {
    const MeasuredRun& first = *runs.front();
    MeasuredLayout out;
    out.model = first.model;
    out.layout = first.layout;
    out.ranks = first.ranks;
    out.runs = static_cast<std::int64_t>(runs.size());
    out.predicted = first.comparison.predicted;
    std::vector<double> medians;
    for (const MeasuredRun* run : runs) {
        medians.push_back(run->comparison.measured.value());
        out.held_equal = out.held_equal && holds_as_predicted(run->comparison);
        const double error = peak_error(run->comparison);
        if (std::abs(error) > std::abs(out.peak_error)) out.peak_error = error;
    }
    out.measured = sim::Seconds(median_of(medians));
    const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
    out.spread =
        runs.size() > 1 ? (*most - *least) / out.measured.value() : first.comparison.spread;
    return out;
}

bool same_set(const MeasuredLayout& a, const MeasuredLayout& b) {
    return a.model == b.model && a.ranks == b.ranks;
}

/// The choice among the steady layouts of one set; nothing where there is none.
std::optional<MeasuredChoice> choice_of(const std::vector<const MeasuredLayout*>& steady) {
    if (steady.size() < 2) return std::nullopt;
    const auto least = [&](auto time) {
        return *std::min_element(
            steady.begin(), steady.end(),
            [&](const MeasuredLayout* a, const MeasuredLayout* b) { return time(*a) < time(*b); });
    };
    const auto* chosen = least([](const MeasuredLayout& l) { return l.predicted.value.value(); });
    const auto* best = least([](const MeasuredLayout& l) { return l.measured.value(); });
    return MeasuredChoice{chosen->model,  chosen->ranks, static_cast<std::int64_t>(steady.size()),
                          chosen->layout, best->layout,  chosen->measured / best->measured - 1.0};
}

std::vector<MeasuredLayout> layouts_of(const std::vector<MeasuredRun>& runs) {
    std::vector<std::vector<const MeasuredRun*>> groups;
    for (const MeasuredRun& run : runs) {
        const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
            return group.front()->model == run.model && group.front()->layout == run.layout;
        });
        if (known == groups.end()) {
            groups.push_back({&run});
        } else {
            known->push_back(&run);
        }
    }
    std::vector<MeasuredLayout> out;
    for (const auto& group : groups) {
        out.push_back(row_of(group));
    }
    return out;
}

} // namespace

MeasuredSummary summarize(const std::vector<MeasuredRun>& runs) {
    MeasuredSummary out;
    out.layouts = layouts_of(runs);
    std::vector<double> times;
    std::vector<double> distances;
    std::vector<double> peaks;
    for (const MeasuredLayout& l : out.layouts) {
        times.push_back(l.error());
        distances.push_back(distance_in_band(
            {l.predicted.low.value(), l.predicted.value.value(), l.predicted.high.value()},
            l.measured.value()));
        peaks.push_back(l.peak_error);
        out.held_equal += l.held_equal ? 1 : 0;
    }
    out.time = error_figures(times, distances);
    out.peak = error_figures(peaks);
    for (std::size_t i = 0; i < out.layouts.size(); ++i) {
        const MeasuredLayout& first = out.layouts[i];
        const auto begins_here = [&](const MeasuredLayout& l) { return same_set(l, first); };
        const auto begin = std::find_if(out.layouts.begin(), out.layouts.end(), begins_here);
        if (begin != out.layouts.begin() + static_cast<std::ptrdiff_t>(i)) continue;
        std::vector<const MeasuredLayout*> steady;
        for (const MeasuredLayout& l : out.layouts) {
            if (same_set(l, first) && l.spread < steady_spread) steady.push_back(&l);
        }
        if (auto choice = choice_of(steady)) out.choices.push_back(std::move(*choice));
    }
    return out;
}

} // namespace shardplan::plan
