#include "executor/run/step_recorder.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace shardplan::exec {
namespace {

using sim::StreamKind;
using sim::TaskKind;
using sim::TimeKind;

bool is_compute(TaskKind kind) {
    return kind == TaskKind::forward || kind == TaskKind::backward || kind == TaskKind::weight ||
           kind == TaskKind::loss || kind == TaskKind::optimizer || kind == TaskKind::release;
}

/// Kind of communication by the group that talks; reductions over several dimensions are those of
/// data parallelism.
TimeKind kind_of_group(std::string_view group) {
    if (group == "tp") return TimeKind::tp_comm;
    if (group == "cp") return TimeKind::cp_comm;
    if (group == "ep" || group == "etp") return TimeKind::ep_comm;
    if (group == "pp") return TimeKind::pp_comm;
    return TimeKind::dp_comm;
}

TimeKind kind_of(const RunSpan& span) {
    // a message is waited for until the other stage has computed it
    if (span.kind == TaskKind::receive) return TimeKind::bubble;
    const bool named = span.kind == TaskKind::exchange && !span.group.empty();
    return named ? kind_of_group(span.group) : sim::time_kind_of(span.kind, span.stream);
}

/// Exchanges of layers block the pass they stand in; those of data parallelism may come from a
/// thread beside it, which gathers ahead.
bool blocks_pass(const RunSpan& span) {
    return span.task < 0 && kind_of(span) != TimeKind::dp_comm;
}

/// Who is charged first when several spans run at once: exchanges inside passes, passes, exchanges
/// inside the optimizer, the optimizer, then communication beside all of them.
int rank_of(const RunSpan& span) {
    if (span.kind == TaskKind::optimizer) return 1;
    if (is_compute(span.kind)) return 3;
    if (span.task >= 0) return 0;
    return blocks_pass(span) ? 4 : 2;
}

/// The row a span is drawn on. Communication told on the stream of compute would lie over its task.
StreamKind stream_of(const RunSpan& span) {
    if (is_compute(span.kind) || span.stream != StreamKind::compute) return span.stream;
    switch (kind_of(span)) {
        case TimeKind::tp_comm:
            return StreamKind::tp;
        case TimeKind::cp_comm:
            return StreamKind::cp;
        case TimeKind::ep_comm:
            return StreamKind::ep;
        case TimeKind::pp_comm:
            return StreamKind::send;
        case TimeKind::bubble:
            return StreamKind::receive;
        case TimeKind::offload:
            return span.kind == TaskKind::offload_in ? StreamKind::copy_in : StreamKind::copy_out;
        default:
            return span.kind == TaskKind::gather || span.kind == TaskKind::gather_parameter
                       ? StreamKind::gather
                       : StreamKind::reduce;
    }
}

sim::WaitCause cause_of(const RunSpan& before, bool same_stream) {
    if (same_stream) return sim::WaitCause::stream;
    switch (before.kind) {
        case TaskKind::send:
        case TaskKind::receive:
            return sim::WaitCause::message;
        case TaskKind::exchange:
            return sim::WaitCause::exchange;
        case TaskKind::gather:
        case TaskKind::gather_parameter:
            return sim::WaitCause::gather;
        case TaskKind::reduce_gradient:
            return sim::WaitCause::reduce;
        case TaskKind::offload_out:
        case TaskKind::offload_in:
        case TaskKind::save:
            return sim::WaitCause::offload;
        case TaskKind::optimizer:
            return sim::WaitCause::optimizer;
        default:
            return sim::WaitCause::stream;
    }
}

/// Of each span, by its place: what ended last before it began.
std::vector<sim::WaitCause> causes_of(const std::vector<RunSpan>& spans) {
    std::vector<std::size_t> by_end(spans.size());
    std::vector<std::size_t> by_begin(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
        by_end[i] = by_begin[i] = i;
    }
    std::stable_sort(by_end.begin(), by_end.end(),
                     [&](std::size_t a, std::size_t b) { return spans[a].end < spans[b].end; });
    std::stable_sort(by_begin.begin(), by_begin.end(),
                     [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
    std::vector<sim::WaitCause> out(spans.size(), sim::WaitCause::none);
    std::size_t ended = 0;
    for (const std::size_t i : by_begin) {
        while (ended < by_end.size() && spans[by_end[ended]].end <= spans[i].begin) {
            ++ended;
        }
        if (ended == 0) continue;
        const RunSpan& before = spans[by_end[ended - 1]];
        out[i] = cause_of(before, stream_of(before) == stream_of(spans[i]));
    }
    return out;
}

/// Spans without exchanges that are all there is to a task of communication: their bytes become
/// its own.
std::vector<RunSpan> without_repetition(const std::vector<RunSpan>& spans) {
    const auto is_task = [](const RunSpan& s) { return s.task >= 0 && !is_compute(s.kind); };
    std::vector<RunSpan> out;
    std::vector<std::size_t> tasks; ///< of communication, in `out`, by time
    for (const RunSpan& span : spans) {
        if (!is_task(span)) continue;
        tasks.push_back(out.size());
        out.push_back(span);
    }
    std::sort(tasks.begin(), tasks.end(),
              [&](std::size_t a, std::size_t b) { return out[a].begin < out[b].begin; });
    for (const RunSpan& span : spans) {
        if (is_task(span)) continue;
        // the last task that began before it
        auto after = std::upper_bound(
            tasks.begin(), tasks.end(), span.begin,
            [&](double begin, std::size_t task) { return begin < out[task].begin; });
        if (span.task < 0 && after != tasks.begin()) {
            RunSpan& task = out[*std::prev(after)];
            if (span.end <= task.end) {
                task.bytes += span.bytes;
                continue;
            }
        }
        out.push_back(span);
    }
    return out;
}

} // namespace

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

sim::SecondsByKind seconds_by_kind(const std::vector<RunSpan>& spans, double begin, double end) {
    struct Edge {
        double at;
        bool opens;
        std::size_t span;
    };
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const double from = std::clamp(spans[i].begin, begin, end);
        const double to = std::clamp(spans[i].end, begin, end);
        if (from >= to) continue;
        edges.push_back({from, true, i});
        edges.push_back({to, false, i});
    }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
        return std::tuple(a.at, a.opens, a.span) < std::tuple(b.at, b.opens, b.span);
    });
    sim::SecondsByKind out;
    std::vector<std::size_t> open;
    double at = begin;
    const auto charge = [&](double to) {
        if (to <= at) return;
        TimeKind kind = TimeKind::overhead;
        if (!open.empty()) {
            const auto first =
                std::max_element(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
                    return std::pair(rank_of(spans[a]), spans[a].begin) <
                           std::pair(rank_of(spans[b]), spans[b].begin);
                });
            kind = kind_of(spans[*first]);
        }
        out[kind] += sim::Seconds(to - at);
        at = to;
    };
    for (const Edge& edge : edges) {
        charge(edge.at);
        if (edge.opens) {
            open.push_back(edge.span);
        } else {
            open.erase(std::find(open.begin(), open.end(), edge.span));
        }
    }
    charge(end);
    return out;
}

double StepSpans::communication() const {
    if (length <= 0.0) return 0.0;
    double sum = 0.0;
    for (const TimeKind kind : {TimeKind::tp_comm, TimeKind::cp_comm, TimeKind::ep_comm,
                                TimeKind::pp_comm, TimeKind::dp_comm, TimeKind::bubble}) {
        sum += seconds[kind].value();
    }
    return sum / length;
}

namespace {

/// What the rank holds over the step: tasks that follow one another, each with the most it needs.
sim::Counter memory_of(const std::vector<RunSpan>& spans, std::int64_t stage, double begin) {
    sim::Counter out{"memory", static_cast<std::int32_t>(stage), {}, {}};
    const auto note = [&](double seconds, std::int64_t bytes) {
        const std::int64_t at = sim::nanoseconds(seconds - begin);
        const auto value = static_cast<double>(bytes);
        if (!out.t.empty() && at <= out.t.back()) {
            out.values.back() = std::max(out.values.back(), value);
        } else {
            out.t.push_back(at);
            out.values.push_back(value);
        }
    };
    for (const RunSpan& span : spans) {
        if (span.held < 0) continue;
        note(span.begin, span.most_held);
        note(span.end, span.held);
    }
    return out;
}

} // namespace

RankTimeline timeline_of(const std::vector<RunSpan>& all, std::int64_t rank, std::int64_t stage,
                         double begin, std::size_t most) {
    const std::vector<RunSpan> spans = without_repetition(all);
    RankTimeline out;
    out.timeline.origin = sim::TimelineOrigin::measured;
    const std::vector<sim::WaitCause> causes = causes_of(spans);
    std::vector<std::size_t> order(spans.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
    if (order.size() > most) {
        out.timeline.dropped = static_cast<std::int64_t>(order.size() - most);
        order.resize(most);
    }
    std::vector<RunSpan> shown;
    for (const std::size_t i : order)
        shown.push_back(spans[i]);
    sim::Counter memory = memory_of(shown, stage, begin);
    if (!memory.t.empty()) out.timeline.counters.push_back(std::move(memory));
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return stream_of(spans[a]) < stream_of(spans[b]);
    });
    using Key = std::tuple<TaskKind, StreamKind, Index, Index, std::int64_t>;
    std::map<Key, std::uint32_t> known;
    for (const std::size_t i : order) {
        const RunSpan& s = spans[i];
        const StreamKind stream = stream_of(s);
        auto& tracks = out.timeline.tracks;
        if (tracks.empty() || tracks.back().stream != stream) {
            tracks.push_back({static_cast<std::int32_t>(stage), rank, 1, stream});
        }
        const auto [task, fresh] =
            known.try_emplace({s.kind, stream, s.chunk, s.unit, s.micro_batch},
                              static_cast<std::uint32_t>(out.tasks.size()));
        if (fresh) out.tasks.push_back({s.kind, stream, stage, s.chunk, s.unit, s.micro_batch});
        const auto time = [&](double seconds) { return sim::nanoseconds(seconds - begin); };
        out.timeline.spans.push_back({static_cast<std::uint32_t>(tracks.size() - 1), task->second,
                                      s.kind, causes[i], time(s.begin), time(s.end),
                                      static_cast<double>(s.bytes), 0.0});
    }
    return out;
}

RankTimeline join(const std::vector<RankTimeline>& ranks, std::int64_t clock_error) {
    RankTimeline out;
    out.timeline.origin = sim::TimelineOrigin::measured;
    out.timeline.clock_error = clock_error;
    for (const RankTimeline& rank : ranks) {
        const auto track = static_cast<std::uint32_t>(out.timeline.tracks.size());
        const auto task = static_cast<std::uint32_t>(out.tasks.size());
        out.tasks.insert(out.tasks.end(), rank.tasks.begin(), rank.tasks.end());
        const sim::Timeline& one = rank.timeline;
        out.timeline.tracks.insert(out.timeline.tracks.end(), one.tracks.begin(), one.tracks.end());
        for (sim::Span span : one.spans) {
            span.track += track;
            span.task += task;
            out.timeline.spans.push_back(span);
        }
        for (const sim::Counter& counter : one.counters) {
            const auto& known = out.timeline.counters;
            const bool told = std::any_of(known.begin(), known.end(), [&](const sim::Counter& c) {
                return c.name == counter.name && c.stage == counter.stage;
            });
            if (!told) out.timeline.counters.push_back(counter);
        }
        out.timeline.dropped += one.dropped;
    }
    return out;
}

SpanSink StepRecorder::sink() {
    return [this](const RunSpan& span) {
        const double difference = steady_seconds() - span.end;
        const std::lock_guard lock(mutex_);
        if (!has_offset_ || difference < offset_) {
            offset_ = difference;
            has_offset_ = true;
        }
        spans_.push_back(span);
    };
}

void StepRecorder::begin_step() {
    const std::lock_guard lock(mutex_);
    spans_.clear();
    begin_ = steady_seconds();
}

StepSpans StepRecorder::end_step() {
    const double end = steady_seconds();
    const std::lock_guard lock(mutex_);
    last_.swap(spans_);
    spans_.clear();
    return {seconds_by_kind(last_, to_span_clock(begin_), to_span_clock(end)), end - begin_};
}

} // namespace shardplan::exec
