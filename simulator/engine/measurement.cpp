#include "simulator/engine/measurement.hpp"

#include <algorithm>
#include <limits>

namespace shardplan::sim {
namespace {

template <class Kind, class Amount, std::size_t N>
void describe_kinds(FieldVisitor& v, ByKind<Kind, Amount, N>& x) {
    for (std::size_t k = 0; k < N; ++k) {
        const std::string_view name = name_of(static_cast<Kind>(k));
        field(v, {name, name, "", false, 0.0}, x.amounts[k]);
    }
}

/// A number that a file holds in 64 bits and the program in fewer, not below `lo`.
template <class Int>
void narrow(FieldVisitor& v, FieldMeta meta, Int& x) {
    std::int64_t wide = x;
    meta.hi = static_cast<double>(std::numeric_limits<Int>::max());
    field(v, meta, wide);
    x = static_cast<Int>(wide);
}

} // namespace

std::optional<std::size_t> median_step(const Measurement& m) {
    std::vector<std::size_t> counted;
    for (auto i = static_cast<std::size_t>(m.settling); i < m.steps.size(); ++i) {
        counted.push_back(i);
    }
    if (counted.empty()) return std::nullopt;
    const auto middle = counted.begin() + static_cast<std::ptrdiff_t>((counted.size() - 1) / 2);
    std::nth_element(counted.begin(), middle, counted.end(), [&](std::size_t a, std::size_t b) {
        const double x = m.steps[a].seconds.value();
        const double y = m.steps[b].seconds.value();
        return x != y ? x < y : a < b;
    });
    return *middle;
}

Schedule schedule_of(const Measurement& m) {
    Schedule out;
    for (const MeasuredTask& task : m.tasks) {
        out.kind.push_back(task.kind);
        out.stream.push_back(task.stream);
        out.stage.push_back(static_cast<std::uint16_t>(task.stage));
        out.chunk.push_back(static_cast<std::uint16_t>(task.chunk));
        out.unit.push_back(static_cast<std::uint16_t>(task.unit));
        out.part.push_back(0);
        out.pass.push_back(task.kind == TaskKind::backward ? PassKind::backward
                                                           : PassKind::forward);
        out.micro_batch.push_back(
            task.micro_batch < 0 ? no_micro_batch : static_cast<std::uint32_t>(task.micro_batch));
        const auto at_least = [](std::int32_t& size, std::int64_t index) {
            size = std::max(size, static_cast<std::int32_t>(index + 1));
        };
        at_least(out.shape.stages, task.stage);
        at_least(out.shape.chunks, task.chunk);
        at_least(out.shape.micro_batches, task.micro_batch);
    }
    out.first_dependency.assign(m.tasks.size() + 1, 0);
    return out;
}

void describe(FieldVisitor& v, BytesByKind& x) { describe_kinds(v, x); }
void describe(FieldVisitor& v, SecondsByKind& x) { describe_kinds(v, x); }

void describe(FieldVisitor& v, TimelineTrack& x) {
    narrow(v, {"stage", "stage", "Pipeline stage.", false, 0.0}, x.stage);
    field(v, {"rank", "rank", "The rank, or one of those it stands for.", false, 0.0}, x.rank);
    field(v, {"ranks", "ranks", "Ranks that it stands for.", false, 1.0}, x.ranks);
    field(v, {"stream", "stream", "Queue of the rank."}, x.stream);
}

void describe(FieldVisitor& v, Span& x) {
    narrow(v, {"track", "track", "Place of its track, from 0.", true, 0.0}, x.track);
    narrow(v, {"task", "task", "Place of its task, from 0.", true, 0.0}, x.task);
    field(v, {"op", "task kind", "What was done.", true}, x.op);
    field(v, {"cause", "waited for", "Why it did not start earlier."}, x.cause);
    field(v, {"t0", "begin", "Nanoseconds since the step began.", true}, x.t0);
    field(v, {"t1", "end", "Nanoseconds since the step began.", true}, x.t1);
    field(v, {"bytes", "bytes", "Sent by one rank.", false, 0.0}, x.bytes);
    field(v, {"flops", "flops", "Of one rank; 0: not known.", false, 0.0}, x.flops);
}

void describe(FieldVisitor& v, Counter& x) {
    field(v, {"name", "name", "The quantity.", true}, x.name);
    narrow(v, {"stage", "stage", "Pipeline stage.", false, 0.0}, x.stage);
    field(v, {"t", "times", "Nanoseconds, rising."}, x.t);
    field(v, {"values", "values", "What it has from each time on."}, x.values);
}

void describe(FieldVisitor& v, Timeline& x) {
    field(v, {"origin", "origin", "Predicted or measured."}, x.origin);
    field(v,
          {"clock_error", "clock error", "Nanoseconds by which clocks of ranks may differ.", false,
           0.0},
          x.clock_error);
    field(v, {"tracks", "tracks", "Rows of spans.", true}, x.tracks);
    field(v, {"spans", "spans", "By track, then time.", true}, x.spans);
    field(v, {"counters", "counters", "Quantities over time."}, x.counters);
    field(v, {"dropped", "dropped", "Spans that were left out.", false, 0.0}, x.dropped);
}

void describe(FieldVisitor& v, MeasuredStep& x) {
    field(v, {"step", "step", "Number of the step, from 1.", true, 1.0}, x.step);
    field(v, {"loss", "loss", "Mean cross entropy per token, natural units.", true}, x.loss);
    field(v, {"seconds", "time", "From begin to end on the slowest rank.", true, 0.0}, x.seconds);
    field(v, {"tokens", "tokens", "Tokens of all ranks.", true, 1.0}, x.tokens);
}

void describe(FieldVisitor& v, MeasuredRank& x) {
    field(v, {"rank", "rank", "Number of the rank, from 0.", true, 0.0}, x.rank);
    field(v, {"stage", "stage", "Pipeline stage.", true, 0.0, 65535.0}, x.stage);
    field(v, {"host", "host", "Machine it ran on."}, x.host);
    field(v, {"held", "held", "Device memory between two steps, by kind of tensor.", true}, x.held);
    field(v, {"at_peak", "at the peak", "Device memory at its largest, by kind of tensor.", true},
          x.at_peak);
    field(v, {"peak_phase", "peak phase", "When memory was largest."}, x.peak_phase);
    field(v, {"phases", "peaks of phases", "Device memory at its largest in each phase of a step."},
          x.phases);
    field(v, {"offloaded_host", "offloaded to host", "States kept in host memory.", false, 0.0},
          x.offloaded_host);
    field(v, {"offloaded_disk", "offloaded to disk", "States kept on disk.", false, 0.0},
          x.offloaded_disk);
    field(v,
          {"process", "process", "Largest resident memory of its process; ranks may share one.",
           false, 0.0},
          x.process);
    field(v,
          {"seconds", "time by kind",
           "The median step by kind of time; gemm: all passes, bubble: waiting for another stage "
           "and its message."},
          x.seconds);
    field(v, {"sent", "sent", "Bytes sent per step, by group of ranks.", false, 0.0}, x.sent);
}

void describe(FieldVisitor& v, MeasuredTask& x) {
    field(v, {"kind", "kind", "What was done.", true}, x.kind);
    field(v, {"stream", "stream", "Queue of the rank."}, x.stream);
    field(v, {"stage", "stage", "Pipeline stage.", false, 0.0, 65535.0}, x.stage);
    field(v, {"chunk", "chunk", "Chunk of the stage.", false, 0.0, 65535.0}, x.chunk);
    field(v, {"unit", "unit", "Unit of the chunk, or bucket.", false, 0.0, 65535.0}, x.unit);
    field(v,
          {"micro_batch", "micro-batch", "Micro-batch; -1: once per step.", false, -1.0,
           2147483646.0},
          x.micro_batch);
}

void describe(FieldVisitor& v, NoiseProbe& x) {
    field(v, {"repeats", "repeats", "How often the work was timed.", true, 1.0}, x.repeats);
    field(v, {"median", "median", "Median time of the work.", true, 0.0}, x.median);
    field(v, {"spread", "spread", "90th less 10th percentile, over the median.", true, 0.0},
          x.spread);
}

void describe(FieldVisitor& v, Measurement& x) {
    field(v, {"plan_hash", "plan hash", "Names the scenario and the layout that ran.", true},
          x.plan_hash);
    field(v, {"plan", "plan", "File the plan was read from."}, x.plan);
    field(v, {"model", "model", "Name of the model."}, x.model);
    field(v, {"layout", "layout", "Text form of the layout that ran.", true}, x.layout);
    field(v, {"program", "program", "What ran it.", true}, x.program);
    field(v, {"backend", "back end", "threads, mpi or gpu.", true}, x.backend);
    field(v, {"date", "date", "Start of the run, UTC: 2026-11-29T20:15:00Z."}, x.date);
    field(v, {"ranks", "ranks", "Ranks that took part.", true, 1.0}, x.ranks);
    field(v, {"threads_per_rank", "threads", "Threads of one rank's operators.", false, 0.0},
          x.threads_per_rank);
    field(v, {"hosts", "hosts", "Machines, each once."}, x.hosts);
    field(v, {"versions", "versions", "Of the program and what it stands on."}, x.versions);
    field(v, {"clock", "clock", "What times were read from."}, x.clock);
    field(v, {"settling", "settling steps", "Leading steps that count for nothing.", false, 0.0},
          x.settling);
    field(v, {"steps", "steps", "Optimizer steps in order.", true}, x.steps);
    field(v, {"per_rank", "ranks", "What each rank held and sent.", true}, x.per_rank);
    field(v, {"noise", "noise", "How evenly the machine works."}, x.noise);
    field(v,
          {"timeline_step", "step shown", "The step that the timeline shows; 0: none.", false, 0.0},
          x.timeline_step);
    field(v, {"tasks", "tasks", "What spans of the timeline name."}, x.tasks);
    field(v, {"timeline", "timeline", "One step as every rank lived it."}, x.timeline);
}

} // namespace shardplan::sim
