#include "simulator/io/trace.hpp"

#include <fmt/format.h>

#include "simulator/io/json.hpp"

namespace shardplan::sim {

namespace {

constexpr double ns_per_us = 1e3;

std::string_view letters_of(TaskKind kind) {
    switch (kind) {
        case TaskKind::forward:
            return "F";
        case TaskKind::backward:
            return "B";
        case TaskKind::weight:
            return "W";
        default:
            return name_of(kind);
    }
}

/// Processes are stages, or ranks where more than one of a stage is shown.
std::int64_t process_of(const TimelineTrack& track) {
    constexpr std::int64_t ranks_per_stage = 1'000'000;
    return track.stage * ranks_per_stage + (track.ranks == 1 ? track.rank % ranks_per_stage : 0);
}

void write_names(JsonWriter& json, const Timeline& timeline) {
    std::int64_t last = -1;
    const auto meta = [&](std::string_view what, std::int64_t pid, std::int64_t tid) {
        json.begin_object()
            .member("ph", "M")
            .member("name", what)
            .member("pid", pid)
            .member("tid", tid);
        return &json.begin_object("args");
    };
    for (const TimelineTrack& track : timeline.tracks) {
        const std::int64_t pid = process_of(track);
        const auto tid = static_cast<std::int64_t>(track.stream);
        if (pid != last) {
            const std::string name = track.ranks == 1
                                         ? fmt::format("stage {}, rank {}", track.stage, track.rank)
                                         : fmt::format("stage {}: {} ranks like rank {}",
                                                       track.stage, track.ranks, track.rank);
            meta("process_name", pid, 0)->member("name", name).end_object().end_object();
            meta("process_sort_index", pid, 0)->member("sort_index", pid).end_object().end_object();
            last = pid;
        }
        meta("thread_name", pid, tid)
            ->member("name", name_of(track.stream))
            .end_object()
            .end_object();
        meta("thread_sort_index", pid, tid)->member("sort_index", tid).end_object().end_object();
    }
}

void write_span(JsonWriter& json, const TimelineTrack& track, const Schedule& schedule,
                const Span& span) {
    json.begin_object()
        .member("ph", "X")
        .member("name", span_label(schedule, span))
        .member("cat", name_of(span.op))
        .member("pid", process_of(track))
        .member("tid", static_cast<std::int64_t>(track.stream))
        .member("ts", static_cast<double>(span.t0) / ns_per_us)
        .member("dur", static_cast<double>(span.t1 - span.t0) / ns_per_us)
        .begin_object("args")
        .member("waited_for", name_of(span.cause));
    if (span.bytes > 0.0) json.member("bytes", span.bytes);
    if (span.flops > 0.0) json.member("flops", span.flops);
    json.end_object().end_object();
}

} // namespace

std::string span_label(const Schedule& s, const Span& span) {
    std::string text(letters_of(span.op));
    if (span.task >= s.size() || s.micro_batch[span.task] == no_micro_batch) return text;
    if (s.shape.chunks > 1) text += fmt::format(" c{}", s.chunk[span.task]);
    text += fmt::format(" m{}", s.micro_batch[span.task]);
    const bool of_unit =
        span.op != TaskKind::send && span.op != TaskKind::receive && span.op != TaskKind::loss;
    return of_unit ? text + fmt::format(" u{}", s.unit[span.task]) : text;
}

std::string trace_json(const Timeline& timeline, const Schedule& schedule) {
    JsonWriter json(Indent::compact);
    json.begin_object()
        .member("displayTimeUnit", "ms")
        .begin_object("otherData")
        .member("origin", name_of(timeline.origin))
        .member("dropped_spans", timeline.dropped)
        .end_object()
        .begin_array("traceEvents");
    write_names(json, timeline);
    for (const Span& span : timeline.spans) {
        write_span(json, timeline.tracks[span.track], schedule, span);
    }
    for (const Counter& counter : timeline.counters) {
        const std::int64_t pid = process_of({counter.stage, 0, 0, StreamKind::compute});
        for (std::size_t i = 0; i < counter.t.size(); ++i) {
            json.begin_object()
                .member("ph", "C")
                .member("name", counter.name)
                .member("pid", pid)
                .member("ts", static_cast<double>(counter.t[i]) / ns_per_us)
                .begin_object("args")
                .member(counter.name, counter.values[i])
                .end_object()
                .end_object();
        }
    }
    json.end_array().end_object();
    return json.str();
}

} // namespace shardplan::sim
