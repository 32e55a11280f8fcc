#include "planner/analysis/run_ranking.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace shardplan::plan {
namespace {

/// Fewer layouts of one case say little about order.
constexpr std::size_t least_rows = 4;

/// Ranks from 1; equal values share the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
        return values[i] != values[j] ? values[i] < values[j] : i < j;
    });
    std::vector<double> ranks(values.size());
    for (std::size_t first = 0; first < order.size();) {
        std::size_t end = first + 1;
        while (end < order.size() && values[order[end]] == values[order[first]]) {
            ++end;
        }
        const double mean = static_cast<double>(first + 1 + end) / 2.0;
        for (std::size_t i = first; i < end; ++i) {
            ranks[order[i]] = mean;
        }
        first = end;
    }
    return ranks;
}

/// Measured and predicted times of some records.
struct Times {
    std::vector<double> measured, predicted;
    std::vector<std::size_t> record;

    void add(std::size_t i, double seconds, double prediction) {
        record.push_back(i);
        measured.push_back(seconds);
        predicted.push_back(prediction);
    }
};

SweepRanking rank_sweep(const std::vector<sim::RunRecord>& records, const Times& times,
                        const std::vector<std::string>& by) {
    SweepRanking out;
    const sim::RunRecord& first = records[times.record.front()];
    out.sweep = *first.sweep;
    out.group = group_key(first, by);
    out.rows = static_cast<std::int64_t>(times.record.size());
    const auto least = std::min_element(times.predicted.begin(), times.predicted.end());
    const auto chosen = static_cast<std::size_t>(least - times.predicted.begin());
    out.chosen = records[times.record[chosen]].id;
    out.regret =
        times.measured[chosen] / *std::min_element(times.measured.begin(), times.measured.end()) -
        1.0;
    out.tau = kendall_tau(times.measured, times.predicted);
    return out;
}

GroupRanking summary_of(std::string name, const std::vector<SweepRanking>& sweeps,
                        const Times& times) {
    GroupRanking out;
    out.name = std::move(name);
    out.sweeps = static_cast<std::int64_t>(sweeps.size());
    std::vector<double> regrets;
    std::vector<double> taus;
    for (const SweepRanking& sweep : sweeps) {
        regrets.push_back(sweep.regret);
        taus.push_back(sweep.tau);
        out.worst_regret = std::max(out.worst_regret, sweep.regret);
        out.best_chosen += sweep.regret == 0.0 ? 1 : 0;
    }
    out.median_regret = median_of(regrets);
    out.median_tau = median_of(taus);
    out.rows = static_cast<std::int64_t>(times.record.size());
    out.correlation = spearman_correlation(times.measured, times.predicted);
    return out;
}

/// Things by name, in the order in which the names first appear.
template <class T>
class ByName {
public:
    T& operator[](const std::string& name) {
        const auto [entry, is_new] = index_.try_emplace(name, items_.size());
        if (is_new) {
            items_.emplace_back(name, T{});
        }
        return items_[entry->second].second;
    }
    [[nodiscard]] const std::vector<std::pair<std::string, T>>& items() const { return items_; }

private:
    std::map<std::string, std::size_t> index_;
    std::vector<std::pair<std::string, T>> items_;
};

} // namespace

double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
    std::int64_t balance = 0; // concordant less discordant pairs
    std::int64_t differ_in_a = 0;
    std::int64_t differ_in_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = i + 1; j < a.size(); ++j) {
            const int by_a = (a[i] > a[j]) - (a[i] < a[j]);
            const int by_b = (b[i] > b[j]) - (b[i] < b[j]);
            balance += by_a * by_b;
            differ_in_a += std::abs(by_a);
            differ_in_b += std::abs(by_b);
        }
    }
    const double pairs =
        std::sqrt(static_cast<double>(differ_in_a) * static_cast<double>(differ_in_b));
    return pairs > 0.0 ? static_cast<double>(balance) / pairs : 0.0;
}

double spearman_correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const std::vector<double> x = ranks_of(a);
    const std::vector<double> y = ranks_of(b);
    const double mean = (static_cast<double>(x.size()) + 1.0) / 2.0;
    double xy = 0.0;
    double xx = 0.0;
    double yy = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    const double spread = std::sqrt(xx * yy);
    return spread > 0.0 ? xy / spread : 0.0;
}

sim::Result<RunRanking> rank_runs(const std::vector<sim::RunRecord>& records,
                                  const std::vector<RunPrediction>& predictions,
                                  const std::vector<std::string>& by) {
    auto reproducer = Reproducer::make();
    if (!reproducer) {
        return reproducer.error();
    }
    RunRanking out;
    ByName<Times> sweeps;
    ByName<Times> groups;
    Times all;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const sim::RunRecord& record = records[i];
        if (!predictions[i].skipped.empty() || record.measured.step_time_s.value_or(0.0) <= 0.0) {
            continue;
        }
        const double seconds = *record.measured.step_time_s;
        if (is_timed(record)) {
            groups[group_key(record, by)].add(i, seconds, predictions[i].step_time_s);
            all.add(i, seconds, predictions[i].step_time_s);
        }
        if (record.sweep && usable_for(record, "ranking")) {
            sweeps[*record.sweep].add(i, seconds, predictions[i].step_time_s);
        }
        if (has_flag(record, "best-of-search")) {
            out.grids.push_back(rank_in_grid(record, *reproducer));
        }
    }
    ByName<std::vector<SweepRanking>> sweeps_of;
    for (const auto& [name, times] : sweeps.items()) {
        if (times.record.size() >= least_rows) {
            out.sweeps.push_back(rank_sweep(records, times, by));
            sweeps_of[out.sweeps.back().group].push_back(out.sweeps.back());
        }
    }
    for (const auto& [name, times] : groups.items()) {
        if (times.record.size() < 2) {
            continue;
        }
        out.groups.push_back(summary_of(name, sweeps_of[name], times));
    }
    if (out.groups.size() > 1) {
        out.groups.push_back(summary_of("all", out.sweeps, all));
    }
    return out;
}

} // namespace shardplan::plan
