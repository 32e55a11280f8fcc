#pragma once

#include <vector>

#include "simulator/engine/expand.hpp"
#include "simulator/engine/scenario_costs.hpp"
#include "simulator/engine/simulate.hpp"
#include "simulator/memory/memory.hpp"

/// Private to engine: a step that has been played, and what is read off it.
namespace shardplan::sim {

struct PlayedStep {
    const Evaluator& evaluator;
    const Layout& layout;
    ScenarioCosts scenario;
    Schedule schedule;
    TaskCosts costs; ///< of one rank per class
    TaskGraph graph;
    Play play;
    std::size_t ranks = 1; ///< played per stage: 1, or all of them
    std::size_t shown = 0; ///< of those, the rank whose step is shown
    RankGrid grid;

    /// Ids of the played tasks, from those of the Schedule, and back.
    [[nodiscard]] std::size_t played(std::size_t task) const { return task * ranks + shown; }
    [[nodiscard]] std::size_t task_of(std::size_t id) const { return id / ranks; }
    [[nodiscard]] double start(std::size_t task) const { return play.start[played(task)]; }
    [[nodiscard]] double finish(std::size_t task) const { return play.finish[played(task)]; }
    /// The task that a task's end waited for last, among those that run as one with it.
    [[nodiscard]] std::size_t decisive(std::size_t id) const {
        if (graph.joint.empty() || graph.joint[id] == no_joint) return id;
        return play.last_member[graph.joint[id]];
    }
    /// Tasks of the Schedule on one stream of a stage, in order.
    [[nodiscard]] std::vector<std::uint32_t> on_stream(std::int32_t stage, StreamKind stream) const;
};

bool is_pass_task(TaskKind kind);
TimeKind time_kind_of(const Schedule& schedule, std::size_t task);

/// From the first start to the last end on a stage.
double stage_span(const PlayedStep& step, std::int32_t stage);
/// Compute and waiting of every stage within `period` seconds.
std::vector<StageActivity> activity_of(const PlayedStep& step, double period);
std::vector<CriticalShare> critical_path(const PlayedStep& step);

/// The live set of every class over the step: its peak, and counters if asked for.
std::vector<MemoryPeak> replay_memory(const PlayedStep& step, std::vector<Counter>* counters);

/// Spans, tracks and link loads.
Timeline timeline_of(const PlayedStep& step);

} // namespace shardplan::sim
