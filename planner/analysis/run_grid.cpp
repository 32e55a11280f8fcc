#include <algorithm>
#include <utility>

#include "planner/analysis/run_ranking.hpp"
#include "planner/space/space.hpp"
#include "simulator/estimate/evaluator.hpp"

namespace shardplan::plan {
namespace {

/// What a search over a grid varies; the stages may be cut in ways that the grid does not name.
bool same_point(const sim::Layout& a, const sim::Layout& b) {
    return a.dp == b.dp && a.tp == b.tp && a.pp == b.pp && a.micro_batch == b.micro_batch &&
           a.shard == b.shard;
}

/// True if the layout differs from the published one in what a grid varies only.
bool in_grid(const sim::Layout& layout, const sim::Layout& published) {
    const bool whole_or_split = layout.shard == sim::Shard::none ||
                                layout.shard == sim::Shard::optimizer ||
                                layout.shard == published.shard;
    // a pipeline of one stage has no schedule to hold the others to
    const sim::ScheduleKind schedule =
        published.pp > 1 ? published.schedule : sim::default_schedule(layout.chunks);
    const bool same_schedule = layout.pp == 1 || layout.schedule == schedule;
    return whole_or_split && same_schedule && layout.cp == published.cp &&
           layout.ep == published.ep && layout.chunks == published.chunks &&
           layout.recompute == published.recompute && layout.order == published.order &&
           layout.shard_group == published.shard_group && layout.reshard == published.reshard &&
           layout.offload_tier == published.offload_tier;
}

/// The cheapest layouts of the grid so far, and where the published one stands.
struct Standing {
    double published = 0.0; ///< predicted seconds; 0: not in the grid
    std::vector<double> times;
    sim::Layout best;
    double best_time = 0.0;

    void add(const sim::Layout& layout, double seconds, bool is_published) {
        if (times.empty() || seconds < best_time) {
            best = layout;
            best_time = seconds;
        }
        times.push_back(seconds);
        if (is_published) {
            published = seconds;
        }
    }
};

} // namespace

GridRanking rank_in_grid(const sim::RunRecord& record, Reproducer& reproducer) {
    GridRanking out;
    out.id = record.id;
    out.group = record.group;
    auto run = reproducer.reproduce_as_run(record);
    if (!run) {
        out.skipped = run.error().what;
        return out;
    }
    const auto evaluator = sim::Evaluator::make(std::move(run->scenario), run->tables);
    if (!evaluator) {
        out.skipped = evaluator.error().what;
        return out;
    }
    const Space space(evaluator->scenario(), evaluator->resolved(), evaluator->tables());
    sim::Workspace workspace;
    Standing standing;
    const auto look = [&](const sim::Layout& layout) {
        if (in_grid(layout, run->layout)) {
            const sim::Score score = evaluator->score(layout, workspace);
            if (score.verdict != sim::Verdict::does_not_fit) {
                standing.add(layout, score.step_time.value(), same_point(layout, run->layout));
            }
        }
        return Visit::next;
    };
    SpaceCounts counts;
    for (const Cell& cell : space.cells()) {
        if (cell.cp == run->layout.cp) {
            space.visit(cell, look, counts);
        }
    }
    if (standing.published <= 0.0) {
        out.skipped = "the published layout is not in the grid, or predicted not to fit";
        return out;
    }
    out.layouts = static_cast<std::int64_t>(standing.times.size());
    out.rank = 1 + std::count_if(standing.times.begin(), standing.times.end(),
                                 [&](double t) { return t < standing.published; });
    out.gap = standing.published / standing.best_time - 1.0;
    out.best = to_text(standing.best, evaluator->tables());
    return out;
}

} // namespace shardplan::plan
