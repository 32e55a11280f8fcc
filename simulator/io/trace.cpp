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

/// Events on their way to a sink, a few at a time.
class Events {
public:
    explicit Events(const TextSink& sink) : sink_(sink) { json_.begin_array(); }

    /// For one more event; what there is goes out first where it is enough for a piece.
    JsonWriter& next() {
        constexpr std::size_t piece = 2048;
        if (++held_ > piece) flush();
        return json_;
    }
    /// Hands on what is held.
    Status finish() {
        flush();
        return status_;
    }

private:
    void flush() {
        json_.end_array();
        const std::string text = json_.str();
        // without the brackets; what is left begins with its events
        const std::string_view events = std::string_view(text).substr(1, text.size() - 2);
        if (!events.empty() && status_) {
            if (any_) status_ = sink_(",\n");
            if (status_) status_ = sink_(events);
            any_ = true;
        }
        json_ = JsonWriter(Indent::compact);
        json_.begin_array();
        held_ = 1;
    }

    const TextSink& sink_;
    JsonWriter json_{Indent::compact};
    Status status_ = Done{};
    std::size_t held_ = 0;
    bool any_ = false;
};

void write_names(Events& events, const Timeline& timeline) {
    std::int64_t last = -1;
    const auto meta = [&](std::string_view what, std::int64_t pid, std::int64_t tid) {
        return &events.next()
                    .begin_object()
                    .member("ph", "M")
                    .member("name", what)
                    .member("pid", pid)
                    .member("tid", tid)
                    .begin_object("args");
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
    std::string out;
    const Status written = write_trace(timeline, schedule, [&](std::string_view piece) -> Status {
        out += piece;
        return Done{};
    });
    return written ? out : std::string();
}

Status write_trace(const Timeline& timeline, const Schedule& schedule, const TextSink& sink) {
    const std::string head = fmt::format(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"origin\":\"{}\","
        "\"dropped_spans\":{}}},\"traceEvents\":[",
        name_of(timeline.origin), timeline.dropped);
    if (Status status = sink(head); !status) return status;
    Events events(sink);
    write_names(events, timeline);
    for (const Span& span : timeline.spans)
        write_span(events.next(), timeline.tracks[span.track], schedule, span);
    for (const Counter& counter : timeline.counters) {
        const std::int64_t pid = process_of({counter.stage, 0, 0, StreamKind::compute});
        for (std::size_t i = 0; i < counter.t.size(); ++i) {
            events.next()
                .begin_object()
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
    if (Status status = events.finish(); !status) return status;
    return sink("]}\n");
}

} // namespace shardplan::sim
