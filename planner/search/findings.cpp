#include "planner/search/findings.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shardplan::plan {

using sim::Layout;
using sim::Score;
using sim::Verdict;

namespace {

constexpr std::size_t near_misses = 3;
/// Plans that are the same in the large are one plan if they are this near.
constexpr double near_duplicate = 0.01;

std::size_t kept(const SearchOptions& options) {
    return options.fold ? kept_per_plan * options.top : options.top;
}

/// The layout but for what is varied in the small: schedule, recomputation, offloaded states, group
/// of ranks that share a sharded state, kind of cp, rank order.
Layout in_the_large(Layout layout) {
    layout.chunks = 1;
    layout.schedule = sim::ScheduleKind::one_f_one_b;
    layout.recompute = 0;
    layout.shard_group = 0;
    layout.offload_optimizer = 0;
    layout.offload_tier = sim::OffloadTier::none;
    layout.cp_kind = sim::CpKind::ring;
    layout.order = 0;
    return layout;
}

bool differ_in_order_only(const Layout& a, Layout b) {
    b.order = a.order;
    return a == b;
}

std::vector<RefusedBy> refused_by(const SpaceCounts& space) {
    std::vector<RefusedBy> out;
    const auto rules = sim::legality_rules();
    for (std::size_t i = 0; i < space.refused.size(); ++i) {
        if (space.refused[i] > 0) {
            out.push_back(
                {std::string(rules[i].id), std::string(rules[i].field), space.refused[i]});
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const RefusedBy& a, const RefusedBy& b) { return a.layouts > b.layouts; });
    return out;
}

} // namespace

std::int64_t fold(std::vector<Plan>& plans, sim::Objective objective) {
    const auto is_like = [&](const Plan& plan, const Plan& better) {
        if (plan.score.peak - plan.score.usable < better.score.peak - better.score.usable) {
            return false;
        }
        if (differ_in_order_only(plan.layout, better.layout)) {
            return true; // nobody lays out ranks in a slower way for nothing
        }
        const double value = objective_value(objective, plan.layout, plan.score);
        const double best = objective_value(objective, better.layout, better.score);
        return std::abs(value - best) < near_duplicate * std::abs(best) &&
               in_the_large(plan.layout) == in_the_large(better.layout);
    };
    std::vector<Plan> kept;
    for (Plan& plan : plans) {
        const bool folded = std::any_of(kept.begin(), kept.end(),
                                        [&](const Plan& better) { return is_like(plan, better); });
        if (!folded) {
            kept.push_back(std::move(plan));
        }
    }
    const auto folded = static_cast<std::int64_t>(plans.size() - kept.size());
    plans = std::move(kept);
    return folded;
}

Findings::Findings(const sim::LayoutTables& tables, const SearchOptions& options)
    : objective_(options.objective),
      top_(options.top),
      fold_(options.fold),
      fits_(kept(options), tables),
      borderline_(kept(options), tables),
      closest_(near_misses, tables),
      front_(tables),
      borderline_front_(tables) {}

void Findings::take(const Layout& layout, const Score& score) {
    const double value = objective_value(objective_, layout, score);
    if (score.verdict == Verdict::fits) {
        fits_.offer(value, layout, score);
        front_.offer(layout, score);
    } else {
        borderline_.offer(value, layout, score);
        borderline_front_.offer(layout, score);
    }
}

void Findings::count_verdict(Verdict verdict, std::int64_t layouts) {
    (verdict == Verdict::fits ? counts.fits : counts.borderline) += layouts;
}

void Findings::take_misfit(const Layout& layout, const Score& memory, std::int64_t layouts) {
    counts.does_not_fit += layouts;
    counts.cut_by_memory += layouts;
    reasons_[static_cast<std::size_t>(memory.deciding)] += layouts;
    closest_.offer((memory.peak - memory.usable).value(), layout, memory);
}

bool Findings::matters(const Layout& layout, const Score& least) const {
    const bool fits = least.verdict == Verdict::fits;
    const double value = objective_value(objective_, layout, least);
    return (fits ? fits_ : borderline_).takes(value) ||
           !(fits ? front_ : borderline_front_).beats(layout, least);
}

void Findings::merge(const Findings& other) {
    fits_.merge(other.fits_);
    borderline_.merge(other.borderline_);
    closest_.merge(other.closest_);
    front_.merge(other.front_);
    borderline_front_.merge(other.borderline_front_);
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
        reasons_[i] += other.reasons_[i];
    }
    counts.scored += other.counts.scored;
    counts.cut_by_memory += other.counts.cut_by_memory;
    counts.cut_by_time += other.counts.cut_by_time;
    counts.cut_by_dominance += other.counts.cut_by_dominance;
    counts.fits += other.counts.fits;
    counts.borderline += other.counts.borderline;
    counts.does_not_fit += other.counts.does_not_fit;
}

PlanSet Findings::result(const SpaceCounts& space) const {
    PlanSet out;
    for (const Ranking* ranking : {&fits_, &borderline_}) {
        std::vector<Plan> plans;
        for (const Ranking::Entry& entry : ranking->entries()) {
            plans.push_back(entry.plan);
        }
        const std::int64_t folded = fold_ ? fold(plans, objective_) : 0;
        if (out.plans.size() < top_) {
            out.folded += folded;
        }
        for (Plan& plan : plans) {
            if (out.plans.size() < top_) {
                out.plans.push_back(std::move(plan));
            }
        }
    }
    out.front = counts.fits > 0 ? front_.plans() : borderline_front_.plans();
    out.counts = counts;
    out.counts.candidates = space.candidates;
    out.counts.legal = space.legal;
    out.counts.refused = refused_by(space);
    for (std::size_t kind = 0; kind < reasons_.size(); ++kind) {
        if (reasons_[kind] > 0) {
            out.reasons.push_back({static_cast<sim::TensorKind>(kind), reasons_[kind]});
        }
    }
    std::stable_sort(out.reasons.begin(), out.reasons.end(),
                     [](const Reason& a, const Reason& b) { return a.layouts > b.layouts; });
    if (counts.fits == 0) {
        for (const Ranking::Entry& entry : closest_.entries()) {
            out.closest.push_back({entry.plan, entry.plan.score.peak - entry.plan.score.usable});
        }
    }
    return out;
}

} // namespace shardplan::plan
