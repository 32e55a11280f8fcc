#include "planner/analysis/timed_rows.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "planner/analysis/validate.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan {

struct TimedRows::Row {
    /// A Constant where it stands in the scenario of the row.
    struct Place {
        std::size_t constant = 0;
        sim::Constant* target = nullptr;
        double stated = 0.0;
    };
    using Key = std::vector<std::int16_t>;

    std::size_t record = 0;
    double measured = 0.0; ///< seconds
    Reproduction run;
    std::vector<Place> places;
    std::vector<std::size_t> movers; ///< Constants that change its step time, ascending
    std::map<Key, double> known;

    [[nodiscard]] Key key_of(const GridPoint& point) const {
        Key key;
        for (const std::size_t constant : movers) {
            key.push_back(point[constant]);
        }
        return key;
    }

    /// ln(predicted / measured). A value the row's parts refuse leaves the row as far off as can
    /// be.
    double error_at(const GridPoint& point, const std::vector<FittedConstant>& constants) {
        for (const Place& place : places) {
            const std::int16_t step = point[place.constant];
            place.target->value =
                step == as_is ? place.stated : grid_value(constants[place.constant].constant, step);
        }
        const auto evaluator = sim::Evaluator::make(run.scenario, run.tables);
        if (!evaluator) {
            constexpr double far_off = 10.0;
            return far_off;
        }
        sim::Workspace workspace;
        return std::log(evaluator->score(run.layout, workspace).step_time.value() / measured);
    }

    void price(const GridPoint& point, const std::vector<FittedConstant>& constants) {
        const auto [entry, is_new] = known.try_emplace(key_of(point), 0.0);
        if (is_new) {
            entry->second = error_at(point, constants);
        }
    }
};

TimedRows::TimedRows() = default;
TimedRows::~TimedRows() = default;
TimedRows::TimedRows(TimedRows&&) noexcept = default;
TimedRows& TimedRows::operator=(TimedRows&&) noexcept = default;

double grid_value(const sim::Constant& constant, std::int16_t step) {
    const double share = static_cast<double>(step) / static_cast<double>(grid_steps);
    const std::string text =
        fmt::format("{:.4g}", constant.lo + (constant.hi - constant.lo) * share);
    double value = 0.0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return std::clamp(value, constant.lo, constant.hi);
}

sim::Result<TimedRows> TimedRows::make(const std::vector<sim::RunRecord>& records,
                                       const std::vector<FittedConstant>& constants,
                                       std::size_t threads) {
    auto reproducer = Reproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    TimedRows out;
    out.constants_ = &constants;
    out.threads_ = threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (!is_timed(records[i])) {
            continue;
        }
        auto run = reproducer->reproduce_as_run(records[i]);
        if (!run || !sim::Evaluator::make(run->scenario, run->tables)) {
            continue;
        }
        auto row = std::make_unique<Row>();
        row->record = i;
        row->measured = *records[i].measured.step_time_s;
        row->run = std::move(*run);
        for_each_fitted(row->run.scenario, [&](const std::string& path, const sim::FieldMeta&,
                                               sim::Constant& constant) {
            const std::size_t index = index_of(constants, path, constant);
            if (index < constants.size()) {
                row->places.push_back({index, &constant, constant.value});
                row->movers.push_back(index);
            }
        });
        std::sort(row->movers.begin(), row->movers.end());
        row->movers.erase(std::unique(row->movers.begin(), row->movers.end()), row->movers.end());
        out.rows_.push_back(std::move(row));
    }
    out.find_what_moves();
    return out;
}

/// Most rows carry Constants that play no part in them: a rate of formats they do not use.
void TimedRows::find_what_moves() {
    std::vector<std::size_t> all(rows_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const GridPoint middle(constants_->size(), grid_middle);
    const auto with = [&](std::size_t constant, std::int16_t step) {
        GridPoint point = middle;
        point[constant] = step;
        return point;
    };
    std::vector<GridPoint> points = {middle};
    for (std::size_t i = 0; i < constants_->size(); ++i) {
        points.push_back(with(i, 0));
        points.push_back(with(i, grid_steps));
    }
    price(all, points);
    for (const auto& row : rows_) {
        const auto at = [&](const GridPoint& point) { return row->known.at(row->key_of(point)); };
        std::vector<std::size_t> movers;
        for (const std::size_t i : row->movers) {
            if (at(with(i, 0)) != at(middle) || at(with(i, grid_steps)) != at(middle)) {
                movers.push_back(i);
            }
        }
        row->movers = std::move(movers);
        row->known.clear();
    }
}

std::size_t TimedRows::size() const { return rows_.size(); }

std::size_t TimedRows::record(std::size_t row) const { return rows_[row]->record; }

bool TimedRows::moves(std::size_t constant, std::size_t row) const {
    const std::vector<std::size_t>& movers = rows_[row]->movers;
    return std::binary_search(movers.begin(), movers.end(), constant);
}

void TimedRows::price(const std::vector<std::size_t>& rows, const std::vector<GridPoint>& points) {
    // A row belongs to one thread at a time, and sees the points in their order: the same figures
    // on any number of threads.
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < rows.size(); i = next++) {
            for (const GridPoint& point : points) {
                rows_[rows[i]]->price(point, *constants_);
            }
        }
    };
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min(threads_, rows.size()); ++i) {
        helpers.emplace_back(work);
    }
    work();
}

double TimedRows::error(std::size_t row, const GridPoint& point) const {
    return rows_[row]->known.at(rows_[row]->key_of(point));
}

} // namespace shardplan::plan
