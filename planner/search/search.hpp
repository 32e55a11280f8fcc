#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "planner/search/progress.hpp"
#include "planner/space/space.hpp"
#include "simulator/estimate/estimate.hpp"

namespace shardplan::plan {

/// One layout of a ranking.
struct Plan {
    sim::Layout layout;
    sim::Score score;
    std::string text; ///< canonical text form

    friend bool operator==(const Plan&, const Plan&) = default;
};

/// How many layouts a legality rule refused first.
struct RefusedBy {
    std::string rule; ///< id of the rule
    std::string field;
    std::int64_t layouts = 0;

    friend bool operator==(const RefusedBy&, const RefusedBy&) = default;
};

/// Every layout of the space is in exactly one of refused, fits, borderline, does_not_fit (unless
/// the search was stopped).
struct SearchCounts {
    std::int64_t candidates = 0;
    std::int64_t legal = 0;
    std::int64_t scored = 0;
    std::int64_t fits = 0;
    std::int64_t borderline = 0;
    /// With those that were not scored, because the same layout with a smaller micro-batch does not
    /// fit: memory grows with the micro-batch.
    std::int64_t does_not_fit = 0;
    std::vector<RefusedBy> refused; ///< most first, ties in the order of the rules

    friend bool operator==(const SearchCounts&, const SearchCounts&) = default;
};

/// What keeps layouts from fitting: the largest kind of tensor at the peak.
struct Reason {
    sim::TensorKind deciding = sim::TensorKind::weights;
    std::int64_t layouts = 0;

    friend bool operator==(const Reason&, const Reason&) = default;
};

/// A layout that does not fit, with what it lacks.
struct NearMiss {
    Plan plan;
    sim::Bytes shortfall; ///< peak less usable memory of the class that decides

    friend bool operator==(const NearMiss&, const NearMiss&) = default;
};

/// The answer of a search.
struct PlanSet {
    std::vector<Plan> plans; ///< best first; those that fit stand before borderline ones
    SearchCounts counts;
    std::vector<Reason> reasons;   ///< of everything that does not fit, most first
    std::vector<NearMiss> closest; ///< smallest shortfall first; empty if anything fits
    bool stopped = false;          ///< the answer covers a part of the space

    friend bool operator==(const PlanSet&, const PlanSet&) = default;
};

struct SearchOptions {
    std::size_t top = 10; ///< plans to keep
    sim::Objective objective = sim::Objective::time;
    std::stop_token stop;
    ProgressSink* progress = nullptr; ///< may be null
};

using ScoreFunction = std::function<sim::Score(const sim::Layout&)>;

/// What the ranking compares, smaller is better: seconds of a step, money (device seconds where no
/// price is known), or peak less usable bytes.
double objective_value(sim::Objective objective, const sim::Layout& layout,
                       const sim::Score& score);

/// Scores the legal layouts of a space and ranks them. The order of equals is that of their
/// canonical texts, so the answer depends on nothing but the input.
PlanSet search(const Space& space, const ScoreFunction& score, const SearchOptions& options);

} // namespace shardplan::plan
