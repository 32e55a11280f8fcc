#include "simulator/estimate/step_time.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "simulator/estimate/data_parallel.hpp"
#include "simulator/estimate/processor_share.hpp"
#include "simulator/estimate/stage_passes.hpp"
#include "simulator/units/hash_mix.hpp"
#include "simulator/units/recent_table.hpp"

namespace shardplan::sim {

/// Everything a stage does for one micro-batch.
struct StageTimes {
    DataParallelTime dp;
    OffloadTime offload;
    StagePass pass;
};

/// What a stage does whatever the micro-batch.
struct StageFixed {
    DataParallelMoves moves;
    OffloadFixed offload;
    double optimizer = 0.0; ///< seconds per step
};

/// What StagePasses read beside the Scenario: numbers of LayoutParts, and of the path of messages.
struct PassesKey {
    std::uint64_t units = 0; ///< 0: nothing is kept
    std::uint64_t runs = 0;
    std::uint32_t message_path = 0;

    friend bool operator==(const PassesKey&, const PassesKey&) = default;
};
/// A step before what happens once at its end.
struct StepBody {
    std::uint32_t micro_batch = 0;
    StepResult out;
    double bubble = 0.0;
    double together = 1.0;    ///< by which what all ranks compute at once takes longer
    double slowed = 0.0;      ///< seconds that data parallelism delays exchanges
    std::vector<Hiding> ends; ///< by run: what data parallelism does once per step
};
/// Those of layouts that differ in the micro-batch, and in what is offloaded between steps.
struct KnownBodies {
    std::vector<StepBody> bodies;
    std::size_t used = 0; ///< of `bodies`
    std::size_t next = 0; ///< tried first: micro-batches come in the same order again
};

struct StepScratch::Impl {
    /// Of late: layouts that differ in sharding only follow one another closely.
    RecentTable<PassesKey, RunPasses> known{1024};
    std::vector<UnitTotals> unit_totals;
    std::vector<StageTimes> stages; ///< by run; those of equal shapes at the first of them
    PipelinePasses passes;
    PipelineRoom pipeline;
    std::vector<StageFixed> fixed; ///< by run, of the layouts of `row`
    std::uint64_t row = 0;
    /// Of rows of late.
    RecentTable<Layout, KnownBodies> known_bodies{16};
    KnownBodies* bodies = nullptr; ///< of `row`; null: they are worked out every time
    StepBody unkept;
};

namespace {

/// Those of the row; null where passes wait for copies to the host.
KnownBodies* bodies_of_row(Layout layout, StepScratch::Impl& scratch) {
    if (layout.offload_parameters != 0 || layout.offload_activations != 0) return nullptr;
    layout.micro_batch = 0;
    layout.offload_optimizer = 0;
    layout.offload_tier = OffloadTier::none;
    const std::size_t hash = hash_value(layout);
    KnownBodies* known = scratch.known_bodies.find(layout, hash);
    if (known == nullptr) {
        known = &scratch.known_bodies.take(layout, hash);
        known->used = 0;
    }
    known->next = 0;
    return known;
}

/// Null where it is not known.
const StepBody* find_body(std::uint32_t micro_batch, KnownBodies& known) {
    for (std::size_t tried = 0; tried < known.used; ++tried) {
        if (known.next >= known.used) known.next = 0;
        const StepBody& body = known.bodies[known.next];
        if (body.micro_batch == micro_batch) return &body;
        ++known.next;
    }
    return nullptr;
}

/// A body in memory of one that is not used any more.
StepBody& add_body(std::uint32_t micro_batch, KnownBodies& known) {
    if (known.used == known.bodies.size()) known.bodies.emplace_back();
    StepBody& body = known.bodies[known.used];
    body.micro_batch = micro_batch;
    known.next = ++known.used;
    return body;
}

/// By run, those of equal shapes at the first of them.
const RunPasses& passes_by_run(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                               const std::vector<ShapeRun>& runs, Recompute recompute,
                               StepScratch::Impl& scratch) {
    const PassesKey key{parts.units_number, parts.runs_number,
                        parts.collectives.number_of(Group::pp)};
    const std::size_t hash = hash_mix(hash_mix(key.units, key.runs), key.message_path);
    const RunPasses* known = key.units != 0 ? scratch.known.find(key, hash) : nullptr;
    if (known != nullptr) return *known;
    RunPasses& made = scratch.known.take(key, hash);
    set_run_passes(c, layout, parts, runs, recompute, scratch.unit_totals, made);
    return made;
}

void set_stage_times(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                     const StageShape& shape, const StagePasses& passes, const StageFixed& fixed,
                     std::int64_t m, StageTimes& s) {
    HidingBudget under_forward = passes.under_forward;
    HidingBudget under_backward = passes.under_backward;
    s.dp = data_parallel_time(c, layout, fixed.moves, m, under_forward, under_backward);
    const double forward =
        passes.forward.total() + passes.message_forward.exposed + s.dp.forward.exposed;
    const double backward = passes.backward.total() + passes.recompute.total() +
                            passes.message_backward.exposed + s.dp.backward.exposed;
    s.offload = fixed.offload.rate > 0.0
                    ? offload_time(c, layout, parts, shape, fixed.offload, forward, backward)
                    : OffloadTime{};
    under_forward.wait(s.offload.forward.exposed);
    under_backward.wait(s.offload.backward.exposed);
    const SharedLinks& links = fixed.moves.links;
    hide_step(c, links, under_forward, under_backward,
              exchanges_of(passes.forward, {}, passes.ep, links),
              exchanges_of(passes.backward, passes.recompute, passes.ep, links), s.dp);
    s.pass.forward = Seconds(forward + s.offload.forward.exposed);
    s.pass.backward_input = Seconds(backward - passes.backward_weight + s.offload.backward.exposed);
    s.pass.backward_weight = Seconds(passes.backward_weight);
}

/// Sets what all layouts of a row have in common.
void begin_row(const StepContext& c, const Layout& layout, const LayoutParts& parts,
               const std::vector<ShapeRun>& runs, StepScratch::Impl& scratch) {
    if (parts.row != 0 && parts.row == scratch.row) return;
    scratch.fixed.clear();
    for (std::size_t i = 0; i < runs.size(); ++i) {
        StageFixed& fixed = scratch.fixed.emplace_back();
        if (runs[i].same_as < i) continue;
        fixed.moves = data_parallel_moves(c, layout, parts, runs[i].shape);
        fixed.offload = offload_fixed(c, layout, parts, runs[i].shape);
        fixed.optimizer = optimizer_seconds(c, layout, parts, runs[i].shape);
    }
    scratch.row = parts.row;
    scratch.bodies = parts.row != 0 ? bodies_of_row(layout, scratch) : nullptr;
}

/// Adds to exposed times, and to the recorder if there is one.
template <class Recorder>
class Ledger {
public:
    Ledger(StepResult& out, Recorder& recorder) : out_(out), recorder_(recorder) {}

    void add(TimeKind kind, std::int64_t unit, std::string_view name, std::string_view formula,
             double count, double each) {
        const double seconds = count * each;
        out_.exposed[kind] += Seconds(seconds);
        if constexpr (Recorder::active) {
            if (seconds != 0.0) {
                recorder_.entries.push_back({kind, unit, name, formula, seconds, count});
            }
        }
    }
    void hide(TimeKind kind, double seconds) { out_.hidden[kind] += Seconds(seconds); }

private:
    StepResult& out_;
    Recorder& recorder_;
};

/// What the slowest stage does for all micro-batches.
template <class Recorder>
void record_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                   const StageShape& shape, const StagePasses& passes, const StageTimes& s,
                   Recompute recompute, double m, double stretched, Ledger<Recorder>& ledger) {
    for (const UnitUse& use : shape.units) {
        const UnitTime& u = parts.units[static_cast<std::size_t>(use.unit)];
        const std::string_view name =
            Recorder::active ? unit_name(c.scenario->model, use.unit) : std::string_view();
        const double n = m * use.count;
        const auto both = [&](TimeKind kind, std::string_view formula, double PassTime::*part,
                              double factor = 1.0) {
            ledger.add(kind, use.unit, name, formula, n,
                       factor * (u.forward.*part + u.backward.*part));
        };
        both(TimeKind::gemm, "time.gemm", &PassTime::gemm, stretched);
        both(TimeKind::attention, "time.attention", &PassTime::attention, stretched);
        both(TimeKind::elementwise, "time.elementwise", &PassTime::elementwise, stretched);
        both(TimeKind::launch, "time.launch", &PassTime::launch, stretched);
        both(TimeKind::tp_comm, "time.tp_comm", &PassTime::tp);
        both(TimeKind::cp_comm, "time.cp_comm", &PassTime::cp);
        both(TimeKind::ep_comm, "time.ep_comm", &PassTime::ep);
        ledger.add(TimeKind::recompute, use.unit, name, "time.recompute", m,
                   stretched * recompute_of(use, u, recompute).total());
        ledger.hide(TimeKind::tp_comm, n * (u.forward.tp_hidden + u.backward.tp_hidden));
        ledger.hide(TimeKind::cp_comm, n * (u.forward.cp_hidden + u.backward.cp_hidden));
    }
    if (layout.pp > 1) {
        ledger.add(TimeKind::pp_comm, -1, "activations", "time.message", m,
                   passes.message_forward.exposed);
        ledger.add(TimeKind::pp_comm, -1, "gradients", "time.message", m,
                   passes.message_backward.exposed);
        ledger.hide(TimeKind::pp_comm,
                    m * (passes.message_forward.hidden + passes.message_backward.hidden));
    }
    ledger.add(TimeKind::dp_comm, -1, "forward_gather", "time.gather", m, s.dp.forward.exposed);
    ledger.add(TimeKind::dp_comm, -1, "backward_gather_reduce", "time.reduce", m,
               s.dp.backward.exposed);
    ledger.hide(TimeKind::dp_comm, m * (s.dp.forward.hidden + s.dp.backward.hidden));
    ledger.add(TimeKind::offload, -1, "forward_copies", "time.offload", m,
               s.offload.forward.exposed);
    ledger.add(TimeKind::offload, -1, "backward_copies", "time.offload", m,
               s.offload.backward.exposed);
    ledger.hide(TimeKind::offload, m * (s.offload.forward.hidden + s.offload.backward.hidden));
}

StageTraffic traffic_of(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                        const StageShape& shape, const StagePasses& passes, const StageTimes& s,
                        const StageFixed& fixed, Recompute recompute, double m) {
    StageTraffic out;
    for (const UnitUse& use : shape.units) {
        const UnitTime& u = parts.units[static_cast<std::size_t>(use.unit)];
        const double n = m * use.count;
        out.tp += n * u.tp;
        out.cp += n * u.cp;
        out.ep += n * u.ep;
        if (recompute == Recompute::full) {
            const double again = m * use.recomputed;
            out.tp += again * u.tp_again;
            out.cp += again * u.cp_again;
            out.ep += again * u.ep_again;
        } else if (recompute == Recompute::selective) {
            out.tp += n * u.tp_selective;
            out.cp += n * u.cp_selective;
            out.ep += n * u.ep_selective;
        }
    }
    if (layout.pp > 1) {
        out.message = {message_bytes(c, layout),
                       passes.message / visits_of(layout.schedule, layout.chunks)};
    }
    out.dp = s.dp.traffic;
    out.tied = fixed.moves.tied;
    return out;
}

/// What is sent, by run.
struct TrafficRecorder : NullRecorder {
    std::vector<StageTraffic>* runs = nullptr;
};

/// The last micro-batch goes back through one stage after another while each of them reduces its
/// gradients: whatever that delays, it delays for all. Where weight gradients are passes of their
/// own, what is reduced is final only when the micro-batch is gone.
double slowed_drain(const Layout& layout, const std::vector<ShapeRun>& runs,
                    const std::vector<StageTimes>& stages, std::size_t slowest) {
    if (splits_backward(layout.schedule)) return 0.0;
    double all = 0.0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto others = static_cast<double>(runs[i].count - (i == slowest ? 1 : 0));
        all += others * stages[runs[i].same_as].dp.slowed_backward;
    }
    // of several chunks the first one is the last to come
    return all / visits_of(layout.schedule, layout.chunks);
}

/// What the ranks of a node compute in the passes of a step.
PassWork pass_work(const std::vector<ShapeRun>& runs, const RunPasses& own,
                   const ProcessorShare& share, std::size_t slowest, double m, double visits) {
    const auto of_stage = [&](std::size_t run) {
        const StagePasses& p = own[runs[run].same_as];
        return p.forward.compute() + p.forward.launch + p.backward.compute() + p.backward.launch +
               p.recompute.total();
    };
    double all = 0.0;
    double stages = 0.0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        all += static_cast<double>(runs[i].count) * of_stage(i);
        stages += static_cast<double>(runs[i].count);
    }
    PassWork out;
    out.node = m * all * static_cast<double>(share.stages) / stages;
    out.slowest = m * of_stage(slowest);
    out.in_turn = of_stage(slowest) / visits;
    return out;
}

/// The passes of all micro-batches.
template <class Recorder>
void run_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                const std::vector<ShapeRun>& runs, Recompute recompute, std::int64_t m,
                StepScratch::Impl& scratch, Recorder& recorder, StepBody& body) {
    Ledger<Recorder> ledger(body.out, recorder);
    std::vector<StageTimes>& stages = scratch.stages;
    PipelinePasses& passes = scratch.passes;
    const RunPasses& own = passes_by_run(c, layout, parts, runs, recompute, scratch);
    stages.resize(std::max(stages.size(), runs.size()));
    passes.runs.resize(runs.size());
    passes.chunks.clear();
    body.ends.clear();
    const double visits = visits_of(layout.schedule, layout.chunks);
    std::size_t slowest = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::size_t known = runs[i].same_as;
        if (known == i) {
            set_stage_times(c, layout, parts, runs[i].shape, own[i], scratch.fixed[i], m,
                            stages[i]);
            if (stages[i].pass.total() > stages[slowest].pass.total()) slowest = i;
        }
        passes.runs[i] = {stages[known].pass, runs[i].count};
        if (!own[known].chunks.empty()) {
            add_chunk_passes(own[known], stages[known].pass, visits, passes.chunks);
        }
        body.ends.push_back(stages[known].dp.step);
    }
    passes.hop = Seconds(c.overlap.pp * own.front().message / visits);
    if (splits_backward(layout.schedule)) passes.lengths = pass_lengths(runs, own);
    const PipelineTime pipeline =
        pipeline_time(layout.schedule, passes, m, layout.chunks, scratch.pipeline);
    body.bubble = pipeline.bubble.value() + slowed_drain(layout, runs, stages, slowest);
    body.slowed = stages[slowest].dp.slowed_forward +
                  stages[slowest].dp.reductions * stages[slowest].dp.slowed_backward;
    body.out.slowest_stage = pipeline.slowest_stage;
    const auto times = static_cast<double>(m);
    const ProcessorShare share =
        processor_share(*c.scenario, layout, path_in(parts.paths, Group::pp));
    double stretched = 1.0;
    body.together = share.everywhere();
    if (share.any()) {
        PassWork work = pass_work(runs, own, share, slowest, times, visits);
        work.slowest += body.bubble;
        stretched = stretch(share, work);
        body.bubble *= stretched;
    }
    record_passes(c, layout, parts, runs[slowest].shape, own[slowest], stages[slowest], recompute,
                  times, stretched, ledger);
    if constexpr (std::is_same_v<Recorder, TrafficRecorder>) {
        recorder.runs->clear();
        for (const ShapeRun& run : runs) {
            const std::size_t i = run.same_as;
            recorder.runs->push_back(traffic_of(c, layout, parts, run.shape, own[i], stages[i],
                                                scratch.fixed[i], recompute, times));
        }
    }
}

/// What happens once per step, on the stage where it takes longest. `ledger`: adds to `out`.
template <class Recorder>
void end_step(const StepContext& c, const std::vector<ShapeRun>& runs,
              const std::vector<StageFixed>& fixed, const StepBody& body, Ledger<Recorder>& ledger,
              StepResult& out) {
    std::size_t last = 0;
    double tail = -1.0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].same_as != i) continue;
        const double after = body.ends[i].exposed + fixed[i].optimizer + fixed[i].offload.step;
        if (after > tail) {
            tail = after;
            last = i;
        }
    }
    ledger.add(TimeKind::dp_comm, -1, "step", "time.dp_step", 1.0, body.ends[last].exposed);
    ledger.hide(TimeKind::dp_comm, body.ends[last].hidden);
    ledger.add(TimeKind::ep_comm, -1, "beside_reduction", "time.shared_link", 1.0, body.slowed);
    ledger.add(TimeKind::optimizer, -1, "passes", "time.optimizer", 1.0,
               body.together * fixed[last].optimizer);
    ledger.add(TimeKind::offload, -1, "states", "time.offload_states", 1.0,
               fixed[last].offload.step);
    ledger.add(TimeKind::bubble, -1, "pipeline", "time.bubble", 1.0, body.bubble);
    ledger.add(TimeKind::overhead, -1, "step", "time.overhead", 1.0,
               c.scenario->stack.time.step_overhead.value);
    out.total = out.exposed.total();
}

template <class Recorder>
StepResult compose(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                   const std::vector<ShapeRun>& runs, RecomputePlan plan, std::int64_t m,
                   StepScratch& scratch, Recorder& recorder) {
    begin_row(c, layout, parts, runs, scratch.impl());
    StepBody body;
    run_passes(c, layout, parts, runs, plan.kind, m, scratch.impl(), recorder, body);
    Ledger<Recorder> ledger(body.out, recorder);
    end_step(c, runs, scratch.impl().fixed, body, ledger, body.out);
    return body.out;
}

} // namespace

StepScratch::StepScratch() : impl_(std::make_unique<Impl>()) {}
StepScratch::~StepScratch() = default;
StepScratch::StepScratch(StepScratch&&) noexcept = default;
StepScratch& StepScratch::operator=(StepScratch&&) noexcept = default;

StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch) {
    StepScratch::Impl& own = scratch.impl();
    begin_row(context, layout, parts, runs, own);
    NullRecorder none;
    const StepBody* body =
        own.bodies != nullptr ? find_body(layout.micro_batch, *own.bodies) : nullptr;
    if (body == nullptr) {
        StepBody& made =
            own.bodies != nullptr ? add_body(layout.micro_batch, *own.bodies) : own.unkept;
        made.out = {};
        run_passes(context, layout, parts, runs, plan.kind, micro_batches, own, none, made);
        body = &made;
    }
    StepResult out = body->out;
    Ledger<NullRecorder> ledger(out, none);
    end_step(context, runs, own.fixed, *body, ledger, out);
    return out;
}

StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch, TimeRecorder& recorder) {
    return compose(context, layout, parts, runs, plan, micro_batches, scratch, recorder);
}

StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch,
                     std::vector<StageTraffic>& traffic) {
    TrafficRecorder recorder;
    recorder.runs = &traffic;
    return compose(context, layout, parts, runs, plan, micro_batches, scratch, recorder);
}

} // namespace shardplan::sim
