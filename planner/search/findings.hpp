#pragma once

#include <array>

#include "planner/search/search.hpp"

/// Private to planner/search: what a part of a search has found.
namespace shardplan::plan {

/// Plans kept for folding, for each that is shown.
inline constexpr std::size_t kept_per_plan = 16;

/// What was found in some cells. Parts of different cells merge into the same answer in any order.
class Findings {
public:
    Findings(const sim::LayoutTables& tables, const SearchOptions& options);

    /// Takes a layout that was scored.
    void take(const sim::Layout& layout, const sim::Score& score);
    /// Counts the verdict of layouts that memory does not rule out.
    void count_verdict(sim::Verdict verdict, std::int64_t layouts);
    /// Takes a layout that does not fit, and counts `layouts` with it.
    void take_misfit(const sim::Layout& layout, const sim::Score& memory, std::int64_t layouts);

    /// Could a layout with this score, or a slower and dearer one, change the answer?
    [[nodiscard]] bool matters(const sim::Layout& layout, const sim::Score& least) const;

    void merge(const Findings& other);
    [[nodiscard]] PlanSet result(const SpaceCounts& space) const;

    SearchCounts counts;

private:
    sim::Objective objective_;
    std::size_t top_;
    bool fold_;
    Ranking fits_;
    Ranking borderline_;
    Ranking closest_;
    Front front_;
    Front borderline_front_;
    std::array<std::int64_t, sim::tensor_kind_count> reasons_{};
};

/// Leaves out near-duplicates of plans above them; returns how many.
std::int64_t fold(std::vector<Plan>& plans, sim::Objective objective);

} // namespace shardplan::plan
