#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "executor/run/sweep_cases.hpp"

/// What a sweep keeps of every case while it goes on. Private to executor/run.
namespace shardplan::exec {

/// Times of one case or of the probe, one per round.
struct Samples {
    std::vector<double> seconds;

    void sort() { std::sort(seconds.begin(), seconds.end()); }
    /// Of sorted times.
    [[nodiscard]] double at(double share) const {
        return seconds[static_cast<std::size_t>(
            std::lround(share * static_cast<double>(seconds.size() - 1)))];
    }
    [[nodiscard]] double median() const {
        const std::size_t half = seconds.size() / 2;
        return seconds.size() % 2 == 1 ? seconds[half] : 0.5 * (seconds[half - 1] + seconds[half]);
    }
    /// Between the quartiles, of the median.
    [[nodiscard]] double spread() const { return (at(0.75) - at(0.25)) / median(); }
};

struct Entry {
    explicit Entry(SweepCase one) : what(std::move(one)) {}

    SweepCase what;
    std::int64_t places = 1; ///< in memory that calls use in turn
    double estimate = 0.0;   ///< seconds of a call, of the first look
    double wall = 0.0;       ///< the same by the clock on the wall
    std::int64_t calls = 1;
    Samples samples;

    /// Of one place, whole pages.
    [[nodiscard]] std::int64_t stride() const { return (what.floats + 1023) / 1024 * 1024; }
    /// That a sample of it, and the call ahead, touch.
    [[nodiscard]] std::int64_t touched() const { return std::min(places, calls + 1) * stride(); }
    [[nodiscard]] double round_seconds() const {
        // one call ahead of those that are timed
        return wall * static_cast<double>(calls > 1 ? calls + 1 : 1);
    }
};

} // namespace shardplan::exec
