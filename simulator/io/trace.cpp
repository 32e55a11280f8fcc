#include "simulator/io/trace.hpp"

#include <algorithm>

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

/// Processes are stages, or ranks where more than one of a stage is shown; of one layer among
/// several, whose stages stand side by side.
class Processes {
public:
    Processes(std::size_t layer, std::size_t layers)
        : layer_(static_cast<std::int64_t>(layer)), layers_(static_cast<std::int64_t>(layers)) {}

    [[nodiscard]] std::int64_t of(const TimelineTrack& track) const {
        constexpr std::int64_t ranks_per_stage = 1'000'000;
        return (track.stage * layers_ + layer_) * ranks_per_stage +
               (track.ranks == 1 ? track.rank % ranks_per_stage : 0);
    }
    [[nodiscard]] std::string name(const TimelineTrack& track, TimelineOrigin origin) const {
        const std::string who = track.ranks == 1
                                    ? fmt::format("stage {}, rank {}", track.stage, track.rank)
                                    : fmt::format("stage {}: {} ranks like rank {}", track.stage,
                                                  track.ranks, track.rank);
        return layers_ > 1 ? fmt::format("{} {}", name_of(origin), who) : who;
    }

private:
    std::int64_t layer_;
    std::int64_t layers_;
};

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

void write_names(Events& events, const Timeline& timeline, const Processes& processes) {
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
        const std::int64_t pid = processes.of(track);
        const auto tid = static_cast<std::int64_t>(track.stream);
        if (pid != last) {
            meta("process_name", pid, 0)
                ->member("name", processes.name(track, timeline.origin))
                .end_object()
                .end_object();
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

void write_span(JsonWriter& json, const TimelineTrack& track, const TraceLayer& layer,
                const Span& span, std::int64_t process) {
    json.begin_object()
        .member("ph", "X")
        .member("name", span_label(layer.schedule, span))
        .member("cat", name_of(span.op))
        .member("pid", process)
        .member("tid", static_cast<std::int64_t>(track.stream))
        .member("ts", static_cast<double>(span.t0) / ns_per_us)
        .member("dur", static_cast<double>(span.t1 - span.t0) / ns_per_us)
        .begin_object("args")
        .member("waited_for", name_of(span.cause));
    if (span.bytes > 0.0) json.member("bytes", span.bytes);
    if (span.flops > 0.0) json.member("flops", span.flops);
    json.end_object().end_object();
}

void write_events(Events& events, const TraceLayer& layer, const Processes& processes) {
    const Timeline& timeline = layer.timeline;
    write_names(events, timeline, processes);
    for (const Span& span : timeline.spans) {
        const TimelineTrack& track = timeline.tracks[span.track];
        write_span(events.next(), track, layer, span, processes.of(track));
    }
    for (const Counter& counter : timeline.counters) {
        // beside the streams of its stage, of which a run has those of every rank
        const auto track =
            std::find_if(timeline.tracks.begin(), timeline.tracks.end(),
                         [&](const TimelineTrack& t) { return t.stage == counter.stage; });
        const std::int64_t pid = processes.of(
            track != timeline.tracks.end() ? *track : TimelineTrack{counter.stage, 0, 0});
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
    return trace_json(std::vector<TraceLayer>{{timeline, schedule}});
}

std::string trace_json(const std::vector<TraceLayer>& layers) {
    std::string out;
    const Status written = write_trace(layers, [&](std::string_view piece) -> Status {
        out += piece;
        return Done{};
    });
    return written ? out : std::string();
}

Status write_trace(const std::vector<TraceLayer>& layers, const TextSink& sink) {
    std::string origins;
    std::int64_t dropped = 0;
    for (const TraceLayer& layer : layers) {
        origins += (origins.empty() ? "" : ", ") + std::string(name_of(layer.timeline.origin));
        dropped += layer.timeline.dropped;
    }
    const std::string head = fmt::format(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"origin\":\"{}\","
        "\"dropped_spans\":{}}},\"traceEvents\":[",
        origins, dropped);
    if (Status status = sink(head); !status) return status;
    Events events(sink);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        write_events(events, layers[i], Processes(i, layers.size()));
    }
    if (Status status = events.finish(); !status) return status;
    return sink("]}\n");
}

} // namespace shardplan::sim
