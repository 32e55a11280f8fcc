#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/measured.hpp"
#include "planner/analysis/validate.hpp"

/// Many measured runs beside their predictions: how far off, and whether the best is found.
namespace shardplan::plan {

/// One run, compared.
struct MeasuredRun {
    std::string model;
    std::string layout;
    std::int64_t ranks = 0;
    MeasuredComparison comparison;
};

/// All runs of one model under one layout.
struct MeasuredLayout {
    std::string model;
    std::string layout;
    std::int64_t ranks = 0;
    std::int64_t runs = 0;
    sim::Band<sim::Seconds> predicted;
    sim::Seconds measured; ///< median of the runs' medians
    /// Of the runs' medians: largest less least, over their median. Of a single run that of its
    /// steps.
    double spread = 0.0;
    double peak_error = 0.0; ///< of the class whose peak is off most
    bool held_equal = true;  ///< what is held between steps is predicted to the byte

    [[nodiscard]] double error() const { return predicted.value / measured - 1.0; }
    friend bool operator==(const MeasuredLayout&, const MeasuredLayout&) = default;
};

/// Which layout the predictions put first, among those of one model and number of ranks.
struct MeasuredChoice {
    std::string model;
    std::int64_t ranks = 0;
    std::int64_t layouts = 0; ///< that are steady enough to be ranked
    std::string chosen;
    std::string best;
    double regret = 0.0; ///< measured time of the chosen one over that of the best, less 1

    friend bool operator==(const MeasuredChoice&, const MeasuredChoice&) = default;
};

/// Layouts whose runs differ by more are not ranked.
inline constexpr double steady_spread = 0.05;

struct MeasuredSummary {
    std::vector<MeasuredLayout> layouts; ///< in the order in which they came first
    ErrorFigures time;
    ErrorFigures peak; ///< without coverage
    std::int64_t held_equal = 0;
    std::vector<MeasuredChoice> choices; ///< where two layouts or more are steady

    friend bool operator==(const MeasuredSummary&, const MeasuredSummary&) = default;
};

MeasuredSummary summarize(const std::vector<MeasuredRun>& runs);

} // namespace shardplan::plan
