#include "simulator/engine/simulate.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "simulator/engine/played.hpp"

namespace shardplan::sim {

namespace {

RankGrid grid_of(const Layout& layout) {
    RankGrid grid;
    grid.tp = layout.tp;
    grid.cp = layout.cp;
    grid.dp = static_cast<std::int32_t>(layout.dp);
    grid.experts = static_cast<std::int32_t>(
        std::min<std::int64_t>(grid.ranks(), std::int64_t{layout.ep} * etp_of(layout)));
    return grid;
}

/// A task takes about 85 bytes, so these are about 2 GB.
constexpr std::int64_t most_tasks = 25'000'000;

Error too_many(std::int64_t tasks, std::int64_t allowed) {
    return {ErrorCode::bad_input, "simulation",
            "playing every rank needs " + std::to_string(tasks) + " tasks, more than " +
                std::to_string(allowed),
            "play one rank per class, or fewer ranks or micro-batches"};
}

/// The rank of a stage whose last task ends last.
std::size_t slowest_rank(const PlayedStep& step) {
    std::size_t last = 0;
    for (std::size_t id = 1; id < step.play.finish.size(); ++id) {
        if (step.play.finish[id] > step.play.finish[last]) last = id;
    }
    return step.decisive(last) % step.ranks;
}

/// Fills graph and play.
Status play_step(const SimulateOptions& options, PlayedStep& step) {
    const Stragglers stragglers{options.straggler_sigma, options.seed};
    const PlayOptions bound{options.most_events};
    if (!options.every_rank) {
        slow_down(step.schedule, step.grid, stragglers, step.costs);
        step.graph = graph_of(step.schedule);
        auto played = play(step.graph, step.costs, bound);
        if (!played) return std::move(played).error();
        step.play = std::move(*played);
        return Done{};
    }
    const std::int64_t tasks = static_cast<std::int64_t>(step.schedule.size()) * step.grid.ranks();
    const std::int64_t allowed = std::min(most_tasks, options.most_events);
    if (tasks > allowed) return too_many(tasks, allowed);
    step.ranks = static_cast<std::size_t>(step.grid.ranks());
    step.graph = expand(step.schedule, step.grid);
    const TaskCosts costs =
        expand_costs(step.schedule, step.costs, step.graph, step.grid, stragglers);
    auto played = play(step.graph, costs, bound);
    if (!played) return std::move(played).error();
    step.play = std::move(*played);
    step.shown = slowest_rank(step);
    for (std::size_t task = 0; task < step.schedule.size(); ++task) {
        step.costs.seconds[task] = costs.seconds[step.played(task)];
    }
    return Done{};
}

template <class T>
void free_memory(std::vector<T>& of) {
    std::vector<T>().swap(of);
}

/// Frees what only the playing needs, so that spans take its place.
void free_inputs(PlayedStep& step) {
    for (std::vector<float>* shares :
         {&step.costs.takes_units, &step.costs.takes_bandwidth, &step.costs.bandwidth_bound}) {
        free_memory(*shares);
    }
    free_memory(step.costs.route);
    free_memory(step.graph.waits);
    free_memory(step.graph.first_successor);
    free_memory(step.graph.successors);
}

} // namespace

Result<Simulation> simulate(const Evaluator& evaluator, const Layout& layout,
                            const SimulateOptions& options) {
    PlayedStep step{evaluator, layout, {}, {}, {}, {}, {}, 1, 0, grid_of(layout)};
    step.scenario =
        scenario_costs(evaluator, layout, options.exchanges ? Detail::exchanges : Detail::units);
    step.scenario.input.most_tasks = most_tasks;
    auto schedule = make_schedule(step.scenario.input);
    if (!schedule) return std::move(schedule).error();
    step.schedule = std::move(*schedule);
    step.costs = price(step.scenario.input, step.schedule, step.scenario.costs);
    const Status played = play_step(options, step);
    if (!played) return played.error();
    free_inputs(step);
    Simulation out;
    double period = step.play.makespan;
    if (!step.scenario.input.update_waits_for_all) {
        // stages step one after another, and the next step follows on each as soon as it is done
        period = 0.0;
        for (std::int32_t stage = 0; stage < step.schedule.shape.stages; ++stage) {
            period = std::max(period, stage_span(step, stage));
        }
    }
    out.overhead = Seconds(step.scenario.overhead);
    out.step = Seconds(period) + out.overhead;
    out.events = step.play.events + step.play.flow_events;
    out.tasks = static_cast<std::int64_t>(step.graph.size());
    out.largest_queue = step.play.largest_queue;
    out.stages = activity_of(step, period);
    out.critical = critical_path(step);
    if (options.spans) out.timeline = timeline_of(step);
    out.peaks = replay_memory(step, options.spans ? &out.timeline.counters : nullptr);
    out.schedule = std::move(step.schedule);
    return out;
}

} // namespace shardplan::sim
