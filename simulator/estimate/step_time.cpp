#include "simulator/estimate/step_time.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "simulator/estimate/data_parallel.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::sim {

std::vector<StageShape> stage_shapes(const ModelSpec& model, const Layout& layout,
                                     const RecomputePlan& plan, const std::vector<Stage>& stages) {
    const Part* trunk = trunk_of(model);
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    // Both directions of DualPipe hold a copy, and half of the micro-batches go each way.
    const bool twice = layout.schedule == ScheduleKind::dual_pipe && layout.chunks == 2;
    const double weight = twice ? 0.5 : 1.0;
    std::vector<StageShape> shapes;
    shapes.reserve(stages.size());
    for (const Stage& stage : stages) {
        StageShape shape;
        shape.has_embedding = stage.has_embedding;
        shape.has_head = stage.has_head;
        double left = plan.kind == Recompute::full
                          ? (plan.layers_per_stage > 0 ? static_cast<double>(plan.layers_per_stage)
                                                       : std::numeric_limits<double>::infinity())
                          : 0.0;
        if (shape.has_embedding) shape.units.push_back({kinds, weight, 0.0});
        for (const Stage::Slice& slice : stage.chunks) {
            if (trunk == nullptr) break;
            for (const KindCount& run : kinds_in(*trunk, slice)) {
                const auto blocks = static_cast<double>(run.count);
                const double again = std::min(left, blocks);
                left -= again;
                shape.blocks += weight * blocks;
                const auto same =
                    std::find_if(shape.units.begin(), shape.units.end(),
                                 [&](const UnitUse& use) { return use.unit == run.kind; });
                if (same == shape.units.end()) {
                    shape.units.push_back({run.kind, weight * blocks, weight * again});
                } else {
                    same->count += weight * blocks;
                    same->recomputed += weight * again;
                }
            }
        }
        if (shape.has_head) shape.units.push_back({kinds + 1, weight, 0.0});
        shapes.push_back(std::move(shape));
    }
    return shapes;
}

std::vector<ShapeRun> runs_of(const std::vector<StageShape>& shapes) {
    std::vector<ShapeRun> runs;
    for (const StageShape& shape : shapes) {
        if (!runs.empty() && runs.back().shape == shape) {
            ++runs.back().count;
            continue;
        }
        const auto same = std::find_if(runs.begin(), runs.end(),
                                       [&](const ShapeRun& run) { return run.shape == shape; });
        const auto same_as = static_cast<std::size_t>(same - runs.begin());
        runs.push_back({shape, 1, same_as});
    }
    return runs;
}

StepContext step_context(const Scenario& scenario, const Resolved& resolved) {
    StepContext c;
    c.scenario = &scenario;
    c.resolved = &resolved;
    const Device* slowest = scenario.devices.data();
    for (const Device& device : scenario.devices) {
        if (peak_of(device, resolved.compute) < peak_of(*slowest, resolved.compute)) {
            slowest = &device;
        }
    }
    c.rates = compute_rates(*slowest, scenario.stack, resolved);
    c.overlap = overlap_of(scenario.stack);
    if (const Part* trunk = trunk_of(scenario.model)) c.hidden = static_cast<double>(trunk->hidden);
    const bool wide = resolved.compute == Dtype::fp32 || resolved.compute == Dtype::tf32;
    c.activation_element = wide ? bytes_per_element(Dtype::fp32) : bytes_per_element(Dtype::bf16);
    c.parameter_element = bytes_per_element(resolved.parameter);
    c.gradient_element = bytes_per_element(resolved.gradient);
    const NodeTemplate& node = scenario.cluster.node_groups.front().node;
    const auto devices = static_cast<double>(std::max<std::int64_t>(1, node.devices));
    c.host_link = usable(node.host.pcie_per_device).value();
    c.host_memory = node.host.memory_bandwidth.value() / devices;
    c.nvme = node.host.nvme_bandwidth.value() / devices;
    return c;
}

OpList unit_ops(const StepContext& c, const Layout& layout, std::int64_t unit, BlockPart part) {
    const ModelSpec& model = c.scenario->model;
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    const ShardingKey key = sharding_of(layout);
    const StackProfile& stack = c.scenario->stack;
    if (unit == kinds) return embedding_ops(model, *c.resolved, stack, key);
    if (unit == kinds + 1) return head_ops(model, *c.resolved, stack, key);
    const Part* trunk = trunk_of(model);
    return block_ops(model.block_kinds[static_cast<std::size_t>(unit)],
                     trunk == nullptr ? 0 : trunk->hidden, model, *c.resolved, stack, key, part);
}

std::string_view unit_name(const ModelSpec& model, std::int64_t unit) {
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    if (unit == kinds) return "embedding";
    if (unit == kinds + 1) return "head";
    return model.block_kinds[static_cast<std::size_t>(unit)].name;
}

OwnLayoutParts layout_parts(const StepContext& c, const Layout& layout) {
    OwnLayoutParts own;
    LayoutParts& parts = own.parts;
    parts.paths = paths_of(*c.scenario, layout);
    const ModelSpec& model = c.scenario->model;
    const auto kinds = static_cast<std::int64_t>(model.block_kinds.size());
    const Part* trunk = trunk_of(model);
    for (std::int64_t unit = 0; unit < kinds + 2; ++unit) {
        UnitWork work;
        work.add(unit_ops(c, layout, unit), c.rates);
        own.times.push_back(
            std::make_unique<UnitTime>(unit_time(work, c.rates, c.overlap, parts.paths,
                                                 parts.collectives, layout.cp_kind, unit < kinds)));
        own.units.push_back(own.times.back().get());
        if (unit < kinds) {
            parts.parameters.push_back(
                block_on_rank(model.block_kinds[static_cast<std::size_t>(unit)],
                              trunk == nullptr ? 0 : trunk->hidden, *c.resolved, layout));
        }
    }
    parts.parameters.push_back(embedding_on_rank(model, *c.resolved, layout));
    // where one stage holds both ends, a tied table is counted there once
    parts.parameters.push_back(head_on_rank(model, *c.resolved, layout, layout.pp == 1));
    parts.units = UnitTimes(own.units);
    return own;
}

/// The passes of a stage for one micro-batch, which how parameters are sharded does not concern.
struct StagePasses {
    PassTime forward;
    PassTime backward;
    double backward_weight = 0.0;
    double recompute = 0.0;
    Hiding message; ///< one direction, all chunks
};

/// Everything a stage does for one micro-batch.
struct StageTimes {
    Hiding message; ///< see StagePasses
    DataParallelTime dp;
    OffloadTime offload;
    StagePass pass;
};

/// What a stage does whatever the micro-batch.
struct StageFixed {
    DataParallelMoves moves;
    double optimizer = 0.0; ///< seconds per step
};

/// What StagePasses read beside the Scenario: numbers of LayoutParts, and of the path of messages.
struct PassesKey {
    std::uint64_t units = 0; ///< 0: nothing is kept
    std::uint64_t runs = 0;
    std::uint32_t message_path = 0;

    friend bool operator==(const PassesKey&, const PassesKey&) = default;
};
/// Passes of all stages, by run.
struct KnownPasses {
    static constexpr std::size_t slots = 256;
    PassesKey key;
    std::vector<StagePasses> stages;
};

struct StepScratch::Impl {
    /// Of late: layouts that differ in sharding only follow one another closely.
    std::vector<KnownPasses> known = std::vector<KnownPasses>(KnownPasses::slots);
    std::vector<StageTimes> stages; ///< by run; those of equal shapes at the first of them
    std::vector<StageRun> passes;
    std::vector<StageFixed> fixed; ///< by run, of the layouts of `row`
    std::uint64_t row = 0;
};

namespace {

/// The activations (or their gradient) of a stage's end, as every rank holds them.
double boundary_bytes(const StepContext& c, const Layout& layout) {
    const double tokens = static_cast<double>(layout.micro_batch) *
                          static_cast<double>(c.resolved->sequence) / layout.cp;
    return tokens * c.hidden * c.activation_element / (layout.sp ? layout.tp : 1);
}

/// Ranks of a tensor-parallel group that each send a part of the same boundary tensor.
double senders(const StepContext& c, const Layout& layout) {
    return c.scenario->stack.tensors.scattered_messages && !layout.sp ? layout.tp : 1.0;
}

double message_bytes(const StepContext& c, const Layout& layout) {
    return boundary_bytes(c, layout) / senders(c, layout);
}

/// Handing a boundary tensor to the neighbouring stage; parts are put together again there.
/// Source: Narayanan et al. 2021 (arXiv 2104.04473), section 4.1.
double message_seconds(const StepContext& c, const Layout& layout, const LayoutParts& parts) {
    const auto price = [&](Group group, Collective op, double bytes) {
        return parts.collectives.price(parts.paths, group, op, bytes).seconds;
    };
    double seconds = price(Group::pp, Collective::send_recv, message_bytes(c, layout));
    if (senders(c, layout) > 1.0) {
        seconds += price(Group::tp, Collective::all_gather, boundary_bytes(c, layout));
    }
    return seconds;
}

double recompute_of(const UnitUse& use, const UnitTime& unit, Recompute kind) {
    switch (kind) {
        case Recompute::none:
            return 0.0;
        case Recompute::selective:
            return use.count * unit.selective_recompute;
        case Recompute::full:
            return use.recomputed * unit.forward.total();
    }
    return 0.0;
}

/// `message`: seconds of one hand-over to a neighbour.
StagePasses stage_passes(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                         const StageShape& shape, double message, Recompute recompute) {
    StagePasses s;
    for (const UnitUse& use : shape.units) {
        const UnitTime& unit = parts.units[static_cast<std::size_t>(use.unit)];
        s.forward += use.count * unit.forward;
        s.backward += use.count * unit.backward;
        s.backward_weight += use.count * unit.backward_weight;
        s.recompute += recompute_of(use, unit, recompute);
    }
    if (layout.pp > 1) {
        const double all = message * std::max(1.0, static_cast<double>(layout.chunks));
        s.message = hide(all, c.overlap.pp, s.forward.compute(), c.overlap.slowdown);
    }
    return s;
}

/// By run, those of equal shapes at the first of them.
const std::vector<StagePasses>& passes_by_run(const StepContext& c, const Layout& layout,
                                              const LayoutParts& parts,
                                              const std::vector<ShapeRun>& runs,
                                              Recompute recompute, StepScratch::Impl& scratch) {
    const PassesKey key{parts.units_number, parts.runs_number,
                        parts.collectives.number_of(Group::pp)};
    const std::size_t slot = hash_mix(hash_mix(key.units, key.runs), key.message_path);
    KnownPasses& known = scratch.known[slot % KnownPasses::slots];
    if (key.units != 0 && known.key == key) return known.stages;
    const double message = layout.pp > 1 ? message_seconds(c, layout, parts) : 0.0;
    known.key = key;
    known.stages.resize(runs.size());
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].same_as == i) {
            known.stages[i] = stage_passes(c, layout, parts, runs[i].shape, message, recompute);
        }
    }
    return known.stages;
}

void set_stage_times(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                     const StageShape& shape, const StagePasses& passes,
                     const DataParallelMoves& moves, std::int64_t m, StageTimes& s) {
    s.message = passes.message;
    const double backward_compute = passes.backward.compute() + passes.recompute;
    s.dp = data_parallel_time(c, layout, moves, m, passes.forward.compute(), backward_compute);
    s.offload = offload_time(c, layout, parts, shape, passes.forward.total(),
                             passes.backward.total() + passes.recompute);
    s.pass.forward = Seconds(passes.forward.total() + s.message.exposed + s.dp.forward.exposed +
                             s.offload.forward.exposed);
    s.pass.backward_input =
        Seconds(passes.backward.total() - passes.backward_weight + passes.recompute +
                s.message.exposed + s.dp.backward.exposed + s.offload.backward.exposed);
    s.pass.backward_weight = Seconds(passes.backward_weight);
}

const std::vector<StageFixed>& fixed_by_run(const StepContext& c, const Layout& layout,
                                            const LayoutParts& parts,
                                            const std::vector<ShapeRun>& runs,
                                            StepScratch::Impl& scratch) {
    if (parts.row == 0 || parts.row != scratch.row) {
        scratch.fixed.clear();
        for (std::size_t i = 0; i < runs.size(); ++i) {
            StageFixed& fixed = scratch.fixed.emplace_back();
            if (runs[i].same_as < i) continue;
            fixed.moves = data_parallel_moves(c, layout, parts, runs[i].shape);
            fixed.optimizer = optimizer_seconds(c, layout, parts, runs[i].shape);
        }
        scratch.row = parts.row;
    }
    return scratch.fixed;
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
                   const StageShape& shape, const StageTimes& s, Recompute recompute, double m,
                   Ledger<Recorder>& ledger) {
    for (const UnitUse& use : shape.units) {
        const UnitTime& u = parts.units[static_cast<std::size_t>(use.unit)];
        const std::string_view name =
            Recorder::active ? unit_name(c.scenario->model, use.unit) : std::string_view();
        const double n = m * use.count;
        const auto both = [&](TimeKind kind, std::string_view formula, double PassTime::*part) {
            ledger.add(kind, use.unit, name, formula, n, u.forward.*part + u.backward.*part);
        };
        both(TimeKind::gemm, "time.gemm", &PassTime::gemm);
        both(TimeKind::attention, "time.attention", &PassTime::attention);
        both(TimeKind::elementwise, "time.elementwise", &PassTime::elementwise);
        both(TimeKind::launch, "time.launch", &PassTime::launch);
        both(TimeKind::tp_comm, "time.tp_comm", &PassTime::tp);
        both(TimeKind::cp_comm, "time.cp_comm", &PassTime::cp);
        both(TimeKind::ep_comm, "time.ep_comm", &PassTime::ep);
        ledger.add(TimeKind::recompute, use.unit, name, "time.recompute", m,
                   recompute_of(use, u, recompute));
        ledger.hide(TimeKind::tp_comm, n * (u.forward.tp_hidden + u.backward.tp_hidden));
        ledger.hide(TimeKind::cp_comm, n * (u.forward.cp_hidden + u.backward.cp_hidden));
    }
    if (layout.pp > 1) {
        ledger.add(TimeKind::pp_comm, -1, "messages", "time.message", 2.0 * m, s.message.exposed);
        ledger.hide(TimeKind::pp_comm, 2.0 * m * s.message.hidden);
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

void add_traffic(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                 const StageShape& shape, const StageTimes& s, Recompute recompute, double m,
                 StepResult& out) {
    for (const UnitUse& use : shape.units) {
        const UnitTime& u = parts.units[static_cast<std::size_t>(use.unit)];
        const double n = m * use.count;
        out.tp += n * u.tp;
        out.cp += n * u.cp;
        out.ep += n * u.ep;
        if (recompute == Recompute::full) {
            const double again = m * use.recomputed;
            out.tp += again * u.tp_forward;
            out.cp += again * u.cp_forward;
            out.ep += again * u.ep_forward;
        }
    }
    if (layout.pp > 1) {
        const auto v = static_cast<double>(std::max<int>(1, layout.chunks));
        out.pp.bytes = 2.0 * m * v * message_bytes(c, layout);
        out.pp.seconds = 2.0 * m * (s.message.exposed + s.message.hidden);
    }
    out.dp = s.dp.traffic;
}

/// Nobody asks for traffic.
struct TimesOnly : NullRecorder {};

template <class Recorder>
StepResult compose(const StepContext& c, const Layout& layout, const LayoutParts& parts,
                   const std::vector<ShapeRun>& runs, RecomputePlan plan, std::int64_t m,
                   StepScratch& scratch, Recorder& recorder) {
    StepResult out;
    Ledger<Recorder> ledger(out, recorder);
    std::vector<StageTimes>& stages = scratch.impl().stages;
    std::vector<StageRun>& passes = scratch.impl().passes;
    const std::vector<StageFixed>& fixed = fixed_by_run(c, layout, parts, runs, scratch.impl());
    const std::vector<StagePasses>& own =
        passes_by_run(c, layout, parts, runs, plan.kind, scratch.impl());
    stages.resize(std::max(stages.size(), runs.size()));
    passes.resize(runs.size());
    std::size_t slowest = 0;
    std::size_t last = 0; // the stage whose work after the pipeline takes longest
    double tail = -1.0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::size_t known = runs[i].same_as;
        if (known == i) {
            set_stage_times(c, layout, parts, runs[i].shape, own[i], fixed[i].moves, m, stages[i]);
            const StageTimes& s = stages[i];
            const double after = s.dp.step.exposed + fixed[i].optimizer + s.offload.step;
            if (after > tail) {
                tail = after;
                last = i;
            }
            if (s.pass.total() > stages[slowest].pass.total()) slowest = i;
        }
        passes[i] = {stages[known].pass, runs[i].count};
    }
    const PipelineTime pipeline = pipeline_time(layout.schedule, passes, m, layout.chunks);
    out.slowest_stage = pipeline.slowest_stage;
    const auto times = static_cast<double>(m);
    record_passes(c, layout, parts, runs[slowest].shape, stages[slowest], plan.kind, times, ledger);
    if constexpr (!std::is_same_v<Recorder, TimesOnly>) {
        add_traffic(c, layout, parts, runs[slowest].shape, stages[slowest], plan.kind, times, out);
    }
    const StageTimes& end = stages[last];
    ledger.add(TimeKind::dp_comm, -1, "step", "time.dp_step", 1.0, end.dp.step.exposed);
    ledger.hide(TimeKind::dp_comm, end.dp.step.hidden);
    ledger.add(TimeKind::optimizer, -1, "passes", "time.optimizer", 1.0, fixed[last].optimizer);
    ledger.add(TimeKind::offload, -1, "states", "time.offload_states", 1.0, end.offload.step);
    ledger.add(TimeKind::bubble, -1, "pipeline", "time.bubble", 1.0, pipeline.bubble.value());
    ledger.add(TimeKind::overhead, -1, "step", "time.overhead", 1.0,
               c.scenario->stack.time.step_overhead.value);
    out.total = out.exposed.total();
    return out;
}

} // namespace

StepScratch::StepScratch() : impl_(std::make_unique<Impl>()) {}
StepScratch::~StepScratch() = default;
StepScratch::StepScratch(StepScratch&&) noexcept = default;
StepScratch& StepScratch::operator=(StepScratch&&) noexcept = default;

StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch) {
    NullRecorder none;
    return compose(context, layout, parts, runs, plan, micro_batches, scratch, none);
}

StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch, TimeRecorder& recorder) {
    return compose(context, layout, parts, runs, plan, micro_batches, scratch, recorder);
}

StepResult step_without_traffic(const StepContext& context, const Layout& layout,
                                const LayoutParts& parts, const std::vector<ShapeRun>& runs,
                                RecomputePlan plan, std::int64_t micro_batches,
                                StepScratch& scratch) {
    TimesOnly none;
    return compose(context, layout, parts, runs, plan, micro_batches, scratch, none);
}

} // namespace shardplan::sim
