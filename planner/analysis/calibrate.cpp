#include "planner/analysis/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/run_groups.hpp"
#include "planner/analysis/timed_rows.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::plan {
namespace {

/// Errors of this size and less count by their square: what repeats of one run differ by.
constexpr double huber_width = 0.03;
/// What the end of a plausible range costs against its middle, as mean loss of one group.
constexpr double pull_to_middle = 0.002;
/// A fit settles after ten to thirty moves.
constexpr int most_moves = 300;
/// A row informs a Constant that moves it by this much across its plausible range.
constexpr double least_move = 0.02;
/// Fewer of them may be an accident: a Constant is not fitted to one or two rows.
constexpr std::int64_t witness_rows = 3;

double huber(double error) {
    const double size = std::abs(error);
    return size <= huber_width ? size * size / (2.0 * huber_width) : size - huber_width / 2.0;
}

double pull(std::int16_t step) {
    const double off = static_cast<double>(step - grid_middle) / grid_middle;
    return pull_to_middle * off * off;
}

/// Groups of rows, and which of them a fit looks at.
class Fit {
public:
    Fit(TimedRows& rows, std::vector<std::vector<std::size_t>> groups,
        const std::vector<FittedConstant>& constants)
        : rows_(rows), groups_(std::move(groups)), constants_(constants) {
        const GridPoint middle(constants_.size(), grid_middle);
        for (std::size_t i = 0; i < constants_.size(); ++i) {
            std::int64_t count = 0;
            for (std::size_t group = 0; group < groups_.size(); ++group) {
                count += informed(i, group, middle);
            }
            informed_.push_back(count >= witness_rows);
        }
    }

    /// The point that is least over all groups but `held_out`.
    GridPoint without(std::size_t held_out) {
        GridPoint point(constants_.size(), as_is);
        std::vector<std::optional<Move>> moves(point.size());
        for (std::size_t i = 0; i < point.size(); ++i) {
            point[i] = informed_[i] ? grid_middle : as_is;
        }
        for (int taken = 0; taken < most_moves; ++taken) {
            std::size_t most = 0;
            for (std::size_t i = 0; i < point.size(); ++i) {
                if (!moves[i]) {
                    moves[i] = informed_[i] ? best_move(i, point, held_out) : Move{};
                }
                most = moves[i]->gain > moves[most]->gain ? i : most;
            }
            if (moves[most]->gain <= 0.0) {
                break;
            }
            point[most] = moves[most]->step;
            for (std::size_t i = 0; i < point.size(); ++i) {
                if (share_rows(i, most)) {
                    moves[i].reset();
                }
            }
        }
        return point;
    }

    ErrorFigures errors(std::size_t group, const GridPoint& point) {
        rows_.price(groups_[group], {point});
        std::vector<double> out;
        for (const std::size_t row : groups_[group]) {
            out.push_back(std::exp(rows_.error(row, point)) - 1.0);
        }
        return error_figures(out);
    }

    /// Rows of a group that move by `least_move` or more across the range of a Constant.
    std::int64_t informed(std::size_t constant, std::size_t group, GridPoint point) {
        const std::vector<std::size_t> moved = movers(constant, group);
        GridPoint low = point;
        low[constant] = 0;
        point[constant] = grid_steps;
        rows_.price(moved, {low, point});
        return std::count_if(moved.begin(), moved.end(), [&](std::size_t row) {
            return std::abs(rows_.error(row, point) - rows_.error(row, low)) >= least_move;
        });
    }

    [[nodiscard]] const std::vector<std::vector<std::size_t>>& groups() const { return groups_; }

private:
    /// The best step of one Constant with the others as they are.
    struct Move {
        std::int16_t step = as_is;
        double gain = 0.0; ///< loss it saves
    };

    [[nodiscard]] bool share_rows(std::size_t a, std::size_t b) const {
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            if (rows_.moves(a, row) && rows_.moves(b, row)) {
                return true;
            }
        }
        return a == b;
    }

    [[nodiscard]] std::vector<std::size_t> movers(std::size_t constant, std::size_t group) const {
        std::vector<std::size_t> out;
        for (const std::size_t row : groups_[group]) {
            if (rows_.moves(constant, row)) {
                out.push_back(row);
            }
        }
        return out;
    }

    /// Of several steps that are least the nearest to the middle.
    Move best_move(std::size_t constant, const GridPoint& now, std::size_t held_out) {
        std::vector<GridPoint> points;
        for (std::int16_t step = 0; step <= grid_steps; ++step) {
            points.push_back(now);
            points.back()[constant] = step;
        }
        std::vector<double> losses;
        for (std::int16_t step = 0; step <= grid_steps; ++step) {
            losses.push_back(pull(step));
        }
        for (std::size_t group = 0; group < groups_.size(); ++group) {
            if (group == held_out) {
                continue;
            }
            const std::vector<std::size_t> moved = movers(constant, group);
            rows_.price(moved, points);
            const auto weight = 1.0 / static_cast<double>(groups_[group].size());
            for (std::size_t i = 0; i < points.size(); ++i) {
                for (const std::size_t row : moved) {
                    losses[i] += weight * huber(rows_.error(row, points[i]));
                }
            }
        }
        const auto loss = [&](int step) { return losses[static_cast<std::size_t>(step)]; };
        int best = grid_middle;
        for (int off = 1; off <= grid_middle; ++off) {
            for (const int step : {grid_middle - off, grid_middle + off}) {
                best = loss(step) < loss(best) ? step : best;
            }
        }
        return {static_cast<std::int16_t>(best), loss(now[constant]) - loss(best)};
    }

    TimedRows& rows_;
    std::vector<std::vector<std::size_t>> groups_;
    const std::vector<FittedConstant>& constants_;
    std::vector<bool> informed_; ///< by Constant: enough rows tell its value
};

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

/// The records whose group is not excluded. Errors: no record is of a group.
sim::Result<std::vector<sim::RunRecord>> left_after(const std::vector<sim::RunRecord>& records,
                                                    const std::vector<std::string>& exclude) {
    std::vector<std::string> names;
    for (const sim::RunRecord& record : records) {
        if (std::find(names.begin(), names.end(), record.group) == names.end()) {
            names.push_back(record.group);
        }
    }
    for (const std::string& name : exclude) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            return sim::Error{sim::ErrorCode::not_found, "--exclude",
                              "no record is of the group " + sim::in_quotes(name),
                              sim::nearest_hint(name, names)};
        }
    }
    std::vector<sim::RunRecord> out;
    for (const sim::RunRecord& record : records) {
        if (std::find(exclude.begin(), exclude.end(), record.group) == exclude.end()) {
            out.push_back(record);
        }
    }
    return out;
}

/// Names and rows of the independent groups that have any row.
struct Grouped {
    std::vector<std::string> names;
    std::vector<std::vector<std::size_t>> rows;
};

Grouped grouped(const std::vector<sim::RunRecord>& records, const TimedRows& rows) {
    Grouped out;
    for (const std::vector<std::string>& names : independent_groups(records)) {
        std::vector<std::size_t> members;
        std::set<std::string> used;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            const std::string& group = records[rows.record(row)].group;
            if (std::find(names.begin(), names.end(), group) != names.end()) {
                members.push_back(row);
                used.insert(group);
            }
        }
        if (!members.empty()) {
            out.names.push_back(joined({used.begin(), used.end()}));
            out.rows.push_back(std::move(members));
        }
    }
    return out;
}

/// Whether every stack of a group also occurs in another one.
bool has_family(const std::vector<sim::RunRecord>& records, const TimedRows& rows,
                const Grouped& groups, std::size_t group) {
    std::set<std::string> elsewhere;
    for (std::size_t i = 0; i < groups.rows.size(); ++i) {
        for (const std::size_t row : groups.rows[i]) {
            if (i != group) {
                elsewhere.insert(records[rows.record(row)].stack.name);
            }
        }
    }
    return std::all_of(groups.rows[group].begin(), groups.rows[group].end(), [&](std::size_t row) {
        return elsewhere.count(records[rows.record(row)].stack.name) > 0;
    });
}

/// What the runs say about one Constant; `points[g]` was fitted without group g.
ConstantFit fit_of(const FittedConstant& constant, std::size_t index, Fit& fit,
                   const std::vector<std::string>& names, const GridPoint& all,
                   const std::vector<GridPoint>& points) {
    ConstantFit out;
    out.constant = constant;
    out.fitted = all[index] != as_is;
    const auto value_of = [&](const GridPoint& point) {
        return point[index] == as_is ? constant.constant.value
                                     : grid_value(constant.constant, point[index]);
    };
    const double value = value_of(all);
    double lowest = value;
    double highest = value;
    for (std::size_t group = 0; group < names.size(); ++group) {
        const std::int64_t rows = fit.informed(index, group, all);
        if (rows == 0) {
            continue;
        }
        const auto size = static_cast<std::int64_t>(fit.groups()[group].size());
        out.witnesses += rows >= std::min(witness_rows, (size + 1) / 2) ? 1 : 0;
        out.groups.push_back(names[group]);
        out.rows += rows;
        if (!points.empty()) {
            const double other = value_of(points[group]);
            lowest = std::min(lowest, other);
            highest = std::max(highest, other);
        }
    }
    out.value = value;
    out.lowest = lowest;
    out.highest = highest;
    return out;
}

void report(ProgressSink* sink, std::size_t done, std::size_t all, const std::string& message) {
    if (sink != nullptr) {
        sink->report({static_cast<double>(done) / static_cast<double>(all), "fit", message});
    }
}

} // namespace

sim::Result<RunCalibration> calibrate_runs(const std::vector<sim::RunRecord>& all_records,
                                           const CalibrateOptions& options) {
    const auto records = left_after(all_records, options.exclude);
    if (!records) {
        return records.error();
    }
    const auto constants = fitted_constants(options.limits);
    if (!constants) {
        return constants.error();
    }
    report(options.progress, 0, 1, "reading runs");
    auto rows = TimedRows::make(*records, *constants, options.threads);
    if (!rows) {
        return rows.error();
    }
    if (rows->size() == 0) {
        return sim::Error{sim::ErrorCode::bad_input, "--runs", "no step time is left to fit to",
                          "records count that are usable for time, have a step time and can be "
                          "predicted; `shardplan validate` says why others are skipped"};
    }
    const Grouped groups = grouped(*records, *rows);
    Fit fit(*rows, groups.rows, *constants);
    const std::size_t folds = groups.rows.size();
    report(options.progress, 1, folds + 2, "all groups");
    const GridPoint all = fit.without(folds);
    if (std::all_of(all.begin(), all.end(), [](std::int16_t step) { return step == as_is; })) {
        return sim::Error{sim::ErrorCode::bad_input, "--runs",
                          "these step times tell no constant that is fitted to runs",
                          "give three records or more whose step time a constant moves by 2 %; "
                          "`shardplan validate` shows how far off predictions are"};
    }
    const GridPoint today(constants->size(), as_is);
    RunCalibration out;
    out.excluded = options.exclude;
    out.rows = static_cast<std::int64_t>(rows->size());
    std::vector<GridPoint> points;
    for (std::size_t group = 0; group < folds; ++group) {
        report(options.progress, group + 2, folds + 2, "without " + groups.names[group]);
        HeldOut& held = out.groups.emplace_back();
        held.group = groups.names[group];
        held.family_elsewhere = has_family(*records, *rows, groups, group);
        held.today = fit.errors(group, today);
        held.fitted = fit.errors(group, all);
        if (folds > 1) {
            points.push_back(fit.without(group));
            held.held_out = fit.errors(group, points.back());
        }
    }
    for (std::size_t i = 0; i < constants->size(); ++i) {
        out.constants.push_back(fit_of((*constants)[i], i, fit, groups.names, all, points));
    }
    return out;
}

double unconfirmed_sigma(const sim::Constant& constant, double value) {
    return value > 0.0 ? (constant.hi - constant.lo) / std::sqrt(12.0) / value : constant.sigma;
}

sim::Calibration calibration_of(const RunCalibration& fit, std::string tool, std::string input) {
    sim::Calibration out;
    out.id = "constants fitted to runs";
    out.tool = std::move(tool);
    out.input = std::move(input);
    out.excluded = fit.excluded;
    for (const HeldOut& group : fit.groups) {
        out.groups.push_back(group.group);
    }
    for (const ConstantFit& one : fit.constants) {
        if (!one.fitted) {
            continue;
        }
        const double spread =
            std::max(one.highest - one.value, one.value - one.lowest) / std::max(one.value, 1e-300);
        sim::CalibrationEntry entry;
        entry.path = one.constant.path;
        entry.value = one.value;
        entry.origin = sim::Origin::fitted_to_runs;
        entry.unconfirmed = one.unconfirmed();
        entry.residual = entry.unconfirmed ? unconfirmed_sigma(one.constant.constant, one.value)
                                           : std::max(spread, one.constant.constant.sigma);
        entry.samples = one.rows;
        entry.source = "step times of " + joined(one.groups);
        for (const std::string& subject : one.constant.subjects) {
            entry.subject = subject;
            out.entries.push_back(entry);
        }
    }
    return out;
}

} // namespace shardplan::plan
