#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "planner/analysis/collectives.hpp"

namespace shardplan::plan {
namespace {

constexpr std::int64_t kib = 1024;
constexpr std::int64_t mib = 1024 * kib;

/// Error of a row; nothing where there is no prediction or no measurement.
std::optional<double> error_of(const sim::CollectiveRecord& record,
                               const CollectivePrediction& row) {
    if (!row.skipped.empty() || record.time_us.value_or(0.0) <= 0.0) {
        return std::nullopt;
    }
    return row.time_us / *record.time_us - 1.0;
}

/// A bar over systems: figures of each system's median error.
class SystemBar {
public:
    explicit SystemBar(std::string what) { bar_.what = std::move(what); }
    void add(const std::string& system, double error) {
        auto it = std::find_if(systems_.begin(), systems_.end(),
                               [&](const auto& known) { return known.first == system; });
        if (it == systems_.end()) {
            systems_.emplace_back(system, std::vector<double>{});
            it = systems_.end() - 1;
        }
        it->second.push_back(std::abs(error));
        ++bar_.rows;
    }
    CollectiveBar finish() {
        constexpr double near = 0.15;
        std::vector<double> medians;
        for (const auto& [system, errors] : systems_) {
            const double median = median_of(errors);
            medians.push_back(median);
            bar_.within_15 += median <= near ? 1.0 : 0.0;
            if (median > bar_.worst || bar_.worst_system.empty()) {
                bar_.worst = median;
                bar_.worst_system = system;
            }
        }
        bar_.systems = static_cast<std::int64_t>(systems_.size());
        bar_.median = median_of(medians);
        bar_.within_15 /= std::max(1.0, static_cast<double>(systems_.size()));
        return bar_;
    }

private:
    CollectiveBar bar_;
    std::vector<std::pair<std::string, std::vector<double>>> systems_;
};

} // namespace

SizeBand band_of(std::int64_t bytes) {
    constexpr std::int64_t calls = 64 * kib;
    constexpr std::int64_t protocols = 16 * mib;
    return bytes < calls       ? SizeBand::below_64_kib
           : bytes < protocols ? SizeBand::to_16_mib
                               : SizeBand::from_16_mib;
}

std::string_view name_of(SizeBand band) {
    switch (band) {
        case SizeBand::below_64_kib:
            return "< 64 KiB";
        case SizeBand::to_16_mib:
            return "64 KiB to 16 MiB";
        case SizeBand::from_16_mib:
            break;
    }
    return ">= 16 MiB";
}

std::string remark_on(double median) {
    constexpr double suspicious = -0.35;
    if (median > suspicious) {
        return "";
    }
    const auto percent = static_cast<int>(std::lround(100.0 * (1.0 + median)));
    return "large messages run at " + std::to_string(percent) +
           " % of what these links should give; look for a card or a setting that is wrong before "
           "planning with this";
}

std::vector<CollectiveGroup> score_collectives(
    const std::vector<sim::CollectiveRecord>& records,
    const std::vector<CollectivePrediction>& predictions) {
    std::vector<CollectiveGroup> groups;
    std::vector<std::vector<double>> errors;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const sim::CollectiveRecord& record = records[i];
        const SizeBand band = band_of(record.size_bytes.value_or(0));
        std::size_t g = 0;
        while (g < groups.size() &&
               (groups[g].system != record.system || groups[g].collective != record.collective ||
                groups[g].band != band)) {
            ++g;
        }
        if (g == groups.size()) {
            groups.push_back({record.system, record.collective, band, 0, 0, 0, {}, {}});
            errors.emplace_back();
        }
        ++groups[g].records;
        const auto error = error_of(record, predictions[i]);
        if (!predictions[i].skipped.empty()) {
            ++groups[g].skipped;
        } else if (!predictions[i].flag.empty()) {
            ++groups[g].flagged;
        } else if (error) {
            errors[g].push_back(*error);
        }
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
        groups[g].time = error_figures(errors[g]);
        if (groups[g].band == SizeBand::from_16_mib) {
            groups[g].remark = remark_on(groups[g].time.bias);
        }
    }
    return groups;
}

std::vector<CollectiveBar> collective_bars(const std::vector<sim::CollectiveRecord>& records,
                                           const std::vector<CollectivePrediction>& predictions) {
    SystemBar large("all_reduce, >= 16 MiB, scorable");
    SystemBar middle("64 KiB to 16 MiB");
    SystemBar small("< 64 KiB");
    std::vector<std::pair<std::string, std::vector<double>>> others;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const sim::CollectiveRecord& record = records[i];
        const auto error = error_of(record, predictions[i]);
        if (!error) {
            continue;
        }
        const SizeBand band = band_of(record.size_bytes.value_or(0));
        const bool is_clean =
            (record.quality == "measured" || record.quality == "chart") && !record.fault_noted;
        if (record.scorable && record.collective == "all_reduce") {
            large.add(record.system, *error);
        } else if (record.scorable) {
            auto it = std::find_if(others.begin(), others.end(),
                                   [&](const auto& o) { return o.first == record.collective; });
            if (it == others.end()) {
                others.emplace_back(record.collective, std::vector<double>{});
                it = others.end() - 1;
            }
            it->second.push_back(*error);
        }
        if (is_clean && band == SizeBand::to_16_mib) {
            middle.add(record.system, *error);
        } else if (is_clean && band == SizeBand::below_64_kib) {
            small.add(record.system, *error);
        }
    }
    std::vector<CollectiveBar> bars = {large.finish()};
    for (const auto& [collective, errors] : others) {
        CollectiveBar bar;
        bar.what = collective + ", >= 16 MiB, scorable, over rows";
        bar.rows = static_cast<std::int64_t>(errors.size());
        bar.median = error_figures(errors).median;
        bars.push_back(std::move(bar));
    }
    bars.push_back(middle.finish());
    bars.push_back(small.finish());
    return bars;
}

} // namespace shardplan::plan
