#include <algorithm>
#include <array>
#include <limits>

#include "simulator/engine/played.hpp"

namespace shardplan::sim {

bool is_pass_task(TaskKind kind) {
    return kind == TaskKind::forward || kind == TaskKind::backward || kind == TaskKind::weight;
}

TimeKind time_kind_of(TaskKind kind, StreamKind stream) {
    switch (kind) {
        case TaskKind::forward:
        case TaskKind::backward:
        case TaskKind::weight:
        case TaskKind::loss:
        case TaskKind::release:
            return TimeKind::gemm;
        case TaskKind::exchange:
            return stream == StreamKind::tp   ? TimeKind::tp_comm
                   : stream == StreamKind::cp ? TimeKind::cp_comm
                                              : TimeKind::ep_comm;
        case TaskKind::send:
        case TaskKind::receive:
            return TimeKind::pp_comm;
        case TaskKind::gather:
        case TaskKind::gather_parameter:
        case TaskKind::reduce_gradient:
            return TimeKind::dp_comm;
        case TaskKind::optimizer:
            return TimeKind::optimizer;
        case TaskKind::offload_out:
        case TaskKind::offload_in:
        case TaskKind::save:
            return TimeKind::offload;
    }
    return TimeKind::gemm;
}

TimeKind time_kind_of(const Schedule& s, std::size_t task) {
    return time_kind_of(s.kind[task], s.stream[task]);
}

std::vector<std::uint32_t> PlayedStep::on_stream(std::int32_t stage, StreamKind stream) const {
    const std::size_t base =
        static_cast<std::size_t>(stage) * stream_kind_count + static_cast<std::size_t>(stream);
    const std::size_t at = base * ranks;
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = graph.first_on_stream[at]; i < graph.first_on_stream[at + 1]; ++i) {
        out.push_back(static_cast<std::uint32_t>(task_of(graph.on_stream[i])));
    }
    return out;
}

double stage_span(const PlayedStep& step, std::int32_t stage) {
    double first = std::numeric_limits<double>::infinity();
    double last = 0.0;
    for (std::size_t stream = 0; stream < stream_kind_count; ++stream) {
        for (const std::uint32_t task : step.on_stream(stage, static_cast<StreamKind>(stream))) {
            // a receive that waits is not work yet
            if (step.schedule.kind[task] == TaskKind::receive) continue;
            first = std::min(first, step.start(task));
            last = std::max(last, step.finish(task));
        }
    }
    return std::max(0.0, last - first);
}

namespace {

/// Says what [from, to] on a stage is spent waiting for: back along the tasks that let `id` end, or
/// that end at `to`.
class Waiting {
public:
    Waiting(const PlayedStep& step, std::int32_t stage, SecondsByKind& exposed)
        : step_(step), stage_(stage), exposed_(exposed) {}

    void charge(std::size_t id, double from, double to) {
        double t = to;
        while (t > from && id != no_task) {
            id = step_.decisive(id);
            const double begin = std::max(step_.play.start[id], from);
            if (begin < t) {
                add(step_.task_of(id), t - begin);
                t = begin;
            }
            id = step_.play.cause[id];
        }
        if (t > from) exposed_[TimeKind::bubble] += Seconds(t - from);
    }

private:
    void add(std::size_t task, double seconds) {
        TimeKind kind = time_kind_of(step_.schedule, task);
        // others' work, and one's own that ran before this gap
        if (kind == TimeKind::gemm || step_.schedule.stage[task] != stage_) {
            if (kind != TimeKind::pp_comm) kind = TimeKind::bubble;
        }
        exposed_[kind] += Seconds(seconds);
    }

    const PlayedStep& step_;
    std::int32_t stage_;
    SecondsByKind& exposed_;
};

StageActivity stage_activity(const PlayedStep& step, std::int32_t stage, std::size_t last_id,
                             double period) {
    StageActivity out;
    out.stage = stage;
    Waiting waiting(step, stage, out.exposed);
    double busy = 0.0;
    double alone = 0.0;
    double before = 0.0;
    const bool whole = step.scenario.input.update_waits_for_all;
    const auto tasks = step.on_stream(stage, StreamKind::compute);
    bool begun = whole; // else the step of a stage begins with its first pass
    for (const std::uint32_t task : tasks) {
        const double start = step.start(task);
        const double finish = step.finish(task);
        if (begun && start > before) {
            waiting.charge(step.play.cause[step.played(task)], before, start);
        }
        const TimeKind kind = time_kind_of(step.schedule, task);
        begun = begun || step.schedule.kind[task] != TaskKind::receive;
        if (kind == TimeKind::gemm || kind == TimeKind::optimizer) {
            busy += finish - start;
            alone += step.costs.seconds[task];
        } else {
            out.exposed[kind] += Seconds(finish - start);
        }
        before = finish;
    }
    double end = step.play.makespan;
    if (!whole) {
        // until the stage itself is done
        end = before;
        for (std::size_t stream = 0; stream < stream_kind_count; ++stream) {
            for (const std::uint32_t task :
                 step.on_stream(stage, static_cast<StreamKind>(stream))) {
                if (step.finish(task) <= end) continue;
                end = step.finish(task);
                last_id = step.played(task);
            }
        }
    }
    if (end > before) waiting.charge(last_id, before, end);
    out.busy = Seconds(busy);
    out.slowed = Seconds(std::max(0.0, busy - alone));
    out.utilisation = period > 0.0 ? std::min(busy, alone) / period : 0.0;
    return out;
}

std::size_t last_played(const PlayedStep& step) {
    std::size_t last = 0;
    for (std::size_t id = 1; id < step.play.finish.size(); ++id) {
        if (step.play.finish[id] > step.play.finish[last]) last = id;
    }
    return last;
}

} // namespace

std::vector<StageActivity> activity_of(const PlayedStep& step, double period) {
    const std::size_t last = last_played(step);
    std::vector<StageActivity> out;
    for (std::int32_t stage = 0; stage < step.schedule.shape.stages; ++stage) {
        out.push_back(stage_activity(step, stage, last, period));
    }
    return out;
}

std::vector<CriticalShare> critical_path(const PlayedStep& step) {
    if (step.play.finish.empty()) return {};
    const auto stages = static_cast<std::size_t>(step.schedule.shape.stages);
    // what a task is counted as follows from its kind and stream
    constexpr std::size_t per_stage = task_kind_count * stream_kind_count;
    std::vector<CriticalShare> shares(stages * per_stage);
    std::size_t id = last_played(step);
    while (id != no_task) {
        id = step.decisive(id);
        const std::size_t task = step.task_of(id);
        const Schedule& s = step.schedule;
        CriticalShare& share = shares[s.stage[task] * per_stage +
                                      static_cast<std::size_t>(s.kind[task]) * stream_kind_count +
                                      static_cast<std::size_t>(s.stream[task])];
        share.stage = s.stage[task];
        share.task = s.kind[task];
        share.stream = s.stream[task];
        share.kind = time_kind_of(s, task);
        share.seconds += Seconds(step.play.finish[id] - step.play.start[id]);
        id = step.play.cause[id];
    }
    std::vector<CriticalShare> out;
    for (const CriticalShare& share : shares) {
        if (share.seconds.value() > 0.0) out.push_back(share);
    }
    return out;
}

} // namespace shardplan::sim
