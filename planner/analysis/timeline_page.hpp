#pragma once

#include <string>

#include "simulator/engine/measurement.hpp"
#include "simulator/engine/simulate.hpp"

namespace shardplan::plan {

/// A page without any other file: the spans of a step as a Gantt chart to zoom and drag, memory
/// over time below it, and what every stage waits for. `title`: of the page, plain text. `over`: a
/// run whose timeline is laid over it, stream by stream; null: none.
std::string timeline_page(const sim::Simulation& simulation, const std::string& title,
                          const sim::Measurement* over = nullptr);

/// Colours of a timeline by kind of task, light theme, in the order of TaskKind: "#2a6fbb".
std::string task_color(sim::TaskKind kind);

} // namespace shardplan::plan
