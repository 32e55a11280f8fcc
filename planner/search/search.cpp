#include "planner/search/search.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace shardplan::plan {

namespace {

using sim::Verdict;

constexpr std::size_t near_misses = 3;

/// The best `limit` entries of a stream, best first. The text of an entry is written only if it
/// stays, or to settle a tie.
class Ranking {
public:
    Ranking(std::size_t limit, const sim::LayoutTables& tables) : limit_(limit), tables_(&tables) {}

    void offer(double value, const sim::Layout& layout, const sim::Score& score) {
        if (limit_ == 0 || (entries_.size() == limit_ && value > entries_.back().value)) {
            return;
        }
        Entry entry{value, {layout, score, sim::to_text(layout, *tables_)}};
        insert(std::move(entry));
    }

    void merge(const Ranking& other) {
        for (const Entry& entry : other.entries_) {
            insert(entry);
        }
    }

    struct Entry {
        double value = 0.0;
        Plan plan;
    };
    [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

private:
    static bool before(const Entry& a, const Entry& b) {
        return a.value != b.value ? a.value < b.value : a.plan.text < b.plan.text;
    }

    void insert(Entry entry) {
        const auto at = std::upper_bound(entries_.begin(), entries_.end(), entry, before);
        entries_.insert(at, std::move(entry));
        if (entries_.size() > limit_) {
            entries_.pop_back();
        }
    }

    std::size_t limit_;
    const sim::LayoutTables* tables_;
    std::vector<Entry> entries_;
};

/// What was found in some cells. Parts of different cells merge into the same answer in any order.
class Findings {
public:
    Findings(const Space& space, const SearchOptions& options)
        : objective_(options.objective),
          fits_(options.top, space.tables()),
          borderline_(options.top, space.tables()),
          closest_(near_misses, space.tables()) {}

    Visit take(const sim::Layout& layout, const sim::Score& score) {
        ++scored_count_;
        const double value = objective_value(objective_, layout, score);
        switch (score.verdict) {
            case Verdict::fits:
                ++fits_count_;
                fits_.offer(value, layout, score);
                return Visit::next;
            case Verdict::borderline:
                ++borderline_count_;
                borderline_.offer(value, layout, score);
                return Visit::next;
            case Verdict::does_not_fit:
                break;
        }
        ++reasons_[static_cast<std::size_t>(score.deciding)];
        closest_.offer((score.peak - score.usable).value(), layout, score);
        last_reason_ = score.deciding;
        return Visit::skip_larger_micro_batches;
    }

    /// Layouts left out since the last call, all for the reason of the layout before them.
    void take_skipped(std::int64_t layouts) {
        reasons_[static_cast<std::size_t>(last_reason_)] += layouts;
    }

    void merge(const Findings& other) {
        fits_.merge(other.fits_);
        borderline_.merge(other.borderline_);
        closest_.merge(other.closest_);
        scored_count_ += other.scored_count_;
        fits_count_ += other.fits_count_;
        borderline_count_ += other.borderline_count_;
        for (std::size_t i = 0; i < reasons_.size(); ++i) {
            reasons_[i] += other.reasons_[i];
        }
        space_ += other.space_;
    }

    [[nodiscard]] SpaceCounts& space() { return space_; }
    [[nodiscard]] std::int64_t scored() const { return scored_count_; }
    [[nodiscard]] std::int64_t fitting() const { return fits_count_; }
    [[nodiscard]] PlanSet result(std::size_t top) const;

private:
    sim::Objective objective_;
    Ranking fits_;
    Ranking borderline_;
    Ranking closest_;
    std::int64_t scored_count_ = 0;
    std::int64_t fits_count_ = 0;
    std::int64_t borderline_count_ = 0;
    std::array<std::int64_t, sim::tensor_kind_count> reasons_{};
    sim::TensorKind last_reason_ = sim::TensorKind::weights;
    SpaceCounts space_;
};

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

PlanSet Findings::result(std::size_t top) const {
    PlanSet out;
    for (const Ranking* ranking : {&fits_, &borderline_}) {
        for (const Ranking::Entry& entry : ranking->entries()) {
            if (out.plans.size() < top) {
                out.plans.push_back(entry.plan);
            }
        }
    }
    out.counts.candidates = space_.candidates;
    out.counts.legal = space_.legal;
    out.counts.scored = scored_count_;
    out.counts.fits = fits_count_;
    out.counts.borderline = borderline_count_;
    out.counts.refused = refused_by(space_);
    for (std::size_t kind = 0; kind < reasons_.size(); ++kind) {
        out.counts.does_not_fit += reasons_[kind];
        if (reasons_[kind] > 0) {
            out.reasons.push_back({static_cast<sim::TensorKind>(kind), reasons_[kind]});
        }
    }
    std::stable_sort(out.reasons.begin(), out.reasons.end(),
                     [](const Reason& a, const Reason& b) { return a.layouts > b.layouts; });
    if (fits_count_ == 0) {
        for (const Ranking::Entry& entry : closest_.entries()) {
            out.closest.push_back({entry.plan, entry.plan.score.peak - entry.plan.score.usable});
        }
    }
    return out;
}

/// Scores the layouts of one cell. False if the search is to stop.
bool search_cell(const Space& space, const Cell& cell, const ScoreFunction& score,
                 const std::stop_token& stop, Findings& findings) {
    std::int64_t skipped_before = findings.space().skipped;
    const auto settle_skipped = [&] {
        findings.take_skipped(findings.space().skipped - skipped_before);
        skipped_before = findings.space().skipped;
    };
    const bool whole = space.visit(
        cell,
        [&](const sim::Layout& layout) {
            settle_skipped();
            if (stop.stop_requested()) {
                return Visit::stop;
            }
            return findings.take(layout, score(layout));
        },
        findings.space());
    settle_skipped();
    return whole;
}

} // namespace

double objective_value(sim::Objective objective, const sim::Layout& layout,
                       const sim::Score& score) {
    switch (objective) {
        case sim::Objective::time:
            return score.step_time.value();
        case sim::Objective::cost:
            return score.money_per_million_tokens > 0.0
                       ? score.money_per_million_tokens
                       : score.step_time.value() * static_cast<double>(sim::rank_count(layout));
        case sim::Objective::headroom:
            return (score.peak - score.usable).value();
    }
    return score.step_time.value();
}

PlanSet search(const Space& space, const ScoreFunction& score, const SearchOptions& options) {
    Findings all(space, options);
    bool stopped = false;
    const std::size_t cells = space.cells().size();
    for (std::size_t i = 0; i < cells && !stopped; ++i) {
        Findings part(space, options);
        stopped = options.stop.stop_requested() ||
                  !search_cell(space, space.cells()[i], score, options.stop, part);
        all.merge(part);
        if (options.progress != nullptr) {
            const std::string message =
                fmt::format("{} layouts scored, {} fit", all.scored(), all.fitting());
            options.progress->report(
                {static_cast<double>(i + 1) / static_cast<double>(cells), "search", message});
        }
    }
    PlanSet out = all.result(options.top);
    out.stopped = stopped;
    return out;
}

} // namespace shardplan::plan
