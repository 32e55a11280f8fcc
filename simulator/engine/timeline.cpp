#include "simulator/engine/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "simulator/engine/played.hpp"

namespace shardplan::sim {

std::int64_t nanoseconds(double seconds) {
    constexpr double per_second = 1e9;
    return std::llround(seconds * per_second);
}

namespace {

/// Longer timelines help nobody and fill the memory of whoever opens them.
constexpr std::size_t most_spans = 4'000'000;

WaitCause cause_of(const PlayedStep& step, std::size_t id) {
    const std::uint32_t cause = step.play.cause[id];
    if (cause == no_task) return WaitCause::none;
    const std::size_t task = step.task_of(id);
    const std::size_t on = step.task_of(cause);
    const Schedule& s = step.schedule;
    if (s.stage[on] == s.stage[task] && s.stream[on] == s.stream[task]) return WaitCause::stream;
    switch (s.kind[on]) {
        case TaskKind::send:
        case TaskKind::receive:
            return WaitCause::message;
        case TaskKind::exchange:
            return WaitCause::exchange;
        case TaskKind::gather:
        case TaskKind::gather_parameter:
            return WaitCause::gather;
        case TaskKind::reduce_gradient:
            return WaitCause::reduce;
        case TaskKind::offload_out:
        case TaskKind::offload_in:
        case TaskKind::save:
            return WaitCause::offload;
        case TaskKind::optimizer:
            return WaitCause::optimizer;
        default:
            return s.stage[on] == s.stage[task] ? WaitCause::stream : WaitCause::pipeline;
    }
}

/// Bytes per second that the flows of a stage put on its links, by kind of stream.
void add_loads(const PlayedStep& step, std::vector<Counter>& counters) {
    for (std::int32_t stage = 0; stage < step.schedule.shape.stages; ++stage) {
        std::vector<std::pair<std::int64_t, double>> changes;
        for (std::size_t stream = 0; stream < stream_kind_count; ++stream) {
            for (const std::uint32_t task :
                 step.on_stream(stage, static_cast<StreamKind>(stream))) {
                const double seconds = step.finish(task) - step.start(task);
                if (step.costs.bytes[task] <= 0.0 || seconds <= 0.0) continue;
                const double rate = step.costs.bytes[task] / seconds;
                changes.emplace_back(nanoseconds(step.start(task)), rate);
                changes.emplace_back(nanoseconds(step.finish(task)), -rate);
            }
        }
        if (changes.empty()) continue;
        std::sort(changes.begin(), changes.end());
        Counter counter{"bytes sent per second", stage, {}, {}};
        double load = 0.0;
        for (const auto& [t, change] : changes) {
            load += change;
            if (counter.t.empty() || counter.t.back() != t) {
                counter.t.push_back(t);
                counter.values.push_back(0.0);
            }
            counter.values.back() = std::max(0.0, load);
        }
        counters.push_back(std::move(counter));
    }
}

} // namespace

Timeline timeline_of(const PlayedStep& step) {
    Timeline out;
    const Schedule& s = step.schedule;
    const bool all = step.graph.size() <= most_spans;
    const std::size_t ranks = all ? step.ranks : 1;
    if (!all) out.dropped = static_cast<std::int64_t>(step.graph.size() - s.size());
    const std::int64_t per_class = step.grid.ranks();
    for (std::int32_t stage = 0; stage < s.shape.stages; ++stage) {
        std::int64_t example = 0;
        for (const RankClass& c : step.scenario.placement.classes) {
            if (c.stage == stage) {
                example = c.example_rank;
                break;
            }
        }
        for (std::size_t r = 0; r < ranks; ++r) {
            for (std::size_t stream = 0; stream < stream_kind_count; ++stream) {
                const auto kind = static_cast<StreamKind>(stream);
                const auto tasks = step.on_stream(stage, kind);
                if (tasks.empty()) continue;
                const std::size_t shown = all && step.ranks > 1 ? r : step.shown;
                out.tracks.push_back({stage,
                                      step.ranks > 1 ? static_cast<std::int64_t>(shown) : example,
                                      step.ranks > 1 ? 1 : per_class, kind});
                const auto track = static_cast<std::uint32_t>(out.tracks.size() - 1);
                for (const std::uint32_t task : tasks) {
                    const std::size_t id = task * step.ranks + shown;
                    const std::int64_t t0 = nanoseconds(step.play.start[id]);
                    const std::int64_t t1 = nanoseconds(step.play.finish[id]);
                    // marks without length say nothing that their neighbours do not
                    if (t0 == t1) continue;
                    out.spans.push_back(
                        {track, task, s.kind[task], cause_of(step, id), t0, t1,
                         step.costs.bytes[task],
                         flops_of(step.scenario.input, s, step.scenario.costs, task)});
                }
            }
        }
    }
    add_loads(step, out.counters);
    return out;
}

} // namespace shardplan::sim
