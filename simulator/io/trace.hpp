#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/engine/timeline.hpp"
#include "simulator/io/file.hpp"

namespace shardplan::sim {

/// A timeline in the JSON form of Chrome's trace viewer, which ui.perfetto.dev opens: a process per
/// stage or rank, a thread per stream, counters of memory and links. `schedule`: whose tasks the
/// spans name. Times are microseconds.
/// Source: Google, Trace Event Format, 2016.
std::string trace_json(const Timeline& timeline, const Schedule& schedule);

/// One of several timelines in one trace, with processes of its own.
struct TraceLayer {
    const Timeline& timeline;
    const Schedule& schedule; ///< whose tasks its spans name
};
/// The same of several, one beside the other stage by stage; processes begin with their origin.
std::string trace_json(const std::vector<TraceLayer>& layers);
/// Piece by piece: a trace is several times as long as the timeline it shows.
Status write_trace(const std::vector<TraceLayer>& layers, const TextSink& sink);

/// "F m3", "B c1 m3 u5": a span in a few letters, for a box that is short.
std::string span_label(const Schedule& schedule, const Span& span);

} // namespace shardplan::sim
