#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "planner/search/pricer.hpp"
#include "planner/search/progress.hpp"
#include "planner/search/ranking.hpp"
#include "planner/space/space.hpp"
#include "simulator/estimate/estimate.hpp"

namespace shardplan::plan {

/// How many layouts a legality rule refused first.
struct RefusedBy {
    std::string rule; ///< id of the rule
    std::string field;
    std::int64_t layouts = 0;

    friend bool operator==(const RefusedBy&, const RefusedBy&) = default;
};

/// Every candidate is in exactly one of refused, fits, borderline, does_not_fit, and every legal
/// layout in one of scored, cut_by_memory, cut_by_time, cut_by_dominance (unless the search was
/// stopped). Candidates, refused and legal ones are counted in closed form, the others as they
/// come.
struct SearchCounts {
    std::int64_t candidates = 0;
    std::int64_t legal = 0;
    std::int64_t scored = 0; ///< step time worked out
    /// Does not fit, so that its step time does not matter.
    std::int64_t cut_by_memory = 0;
    /// Cannot be among the best, nor on the front, even with the lower bound of its step time.
    std::int64_t cut_by_time = 0;
    /// The same layout with less recomputation or offloading needs no more memory, or fits as well.
    std::int64_t cut_by_dominance = 0;
    std::int64_t fits = 0;
    std::int64_t borderline = 0;
    std::int64_t does_not_fit = 0;
    std::vector<RefusedBy> refused; ///< most first, ties in the order of the rules

    friend bool operator==(const SearchCounts&, const SearchCounts&) = default;
};

/// What keeps layouts from fitting: the largest kind of tensor at the peak. Layouts with more than
/// the smallest micro-batch that cannot fit are counted with that one.
struct Reason {
    sim::TensorKind deciding = sim::TensorKind::weights;
    std::int64_t layouts = 0;

    friend bool operator==(const Reason&, const Reason&) = default;
};

/// A layout that does not fit, with what it lacks.
struct NearMiss {
    Plan plan;            ///< its score has no step time
    sim::Bytes shortfall; ///< peak less usable memory of the class that decides

    friend bool operator==(const NearMiss&, const NearMiss&) = default;
};

/// The answer of a search.
struct PlanSet {
    std::vector<Plan> plans; ///< best first; those that fit stand before borderline ones
    /// Plans left out of `plans`, with no more memory to spare than one above them: the same in
    /// another rank order, or less than 1 % apart and the same but for schedule, recomputation,
    /// offloaded states, kind of cp and rank order.
    std::int64_t folded = 0;
    /// Not beaten in step time, memory to spare and cost at once, fastest first; of those that fit,
    /// else of borderline ones.
    std::vector<Plan> front;
    SearchCounts counts;
    std::vector<Reason> reasons;   ///< of everything that does not fit, most first
    std::vector<NearMiss> closest; ///< smallest shortfall first; empty if anything fits
    bool stopped = false;          ///< the answer covers a part of the space

    friend bool operator==(const PlanSet&, const PlanSet&) = default;
};

struct SearchOptions {
    std::size_t top = 10; ///< plans to keep
    sim::Objective objective = sim::Objective::time;
    bool fold = true;        ///< leave near-duplicates out
    std::size_t threads = 1; ///< 0: as many as the machine runs at once
    std::stop_token stop;
    ProgressSink* progress = nullptr; ///< may be null; called by one thread at a time
};

/// Prices the legal layouts of a space and ranks them. The answer depends on nothing but the input:
/// not on the number of threads, nor on which of them is faster. First a fixed sample of the space
/// is scored; then every layout is priced as far as needed to tell that it cannot matter. What is
/// cut never belongs to the ranking or the front.
PlanSet search(const Space& space, const PricerFactory& pricers, const SearchOptions& options);

} // namespace shardplan::plan
