#include <algorithm>
#include <array>

#include "simulator/engine/played.hpp"
#include "simulator/memory/stage_memory.hpp"

namespace shardplan::sim {

namespace {

/// The units of the schedule as memory knows them.
struct LiveUnit {
    const UnitProfile* profile = nullptr;
    bool is_head = false;
};

void add(BytesByKind& sum, const BytesByKind& other, double factor) {
    for (std::size_t i = 0; i < tensor_kind_count; ++i) {
        sum.amounts[i] += factor * other.amounts[i];
    }
}

/// Bytes of a class that its passes do not move, by phase: what the estimate counts at the worst
/// instant of the phase, less the live set it saw there.
struct Bases {
    std::array<double, phase_count> bytes{};
    BytesByKind persistent;
    BytesByKind at_peak; ///< of the phase of the estimate's peak
    Phase peak_phase = Phase::forward;
};

Bases bases_of(const LayoutMemory& memory, std::size_t stage, const StageFigures& figures,
               const ClassMemory& estimate) {
    Bases out;
    out.persistent = estimate.persistent;
    out.peak_phase = estimate.peak_phase;
    out.at_peak = estimate.at_peak;
    for (const TensorKind outside :
         {TensorKind::allocator_slack, TensorKind::communicators, TensorKind::context}) {
        out.at_peak[outside] = Bytes{};
    }
    for (std::size_t i = 0; i < phase_count; ++i) {
        const auto phase = static_cast<Phase>(i);
        const LivePeak* peak = phase == Phase::forward    ? &figures.forward
                               : phase == Phase::loss     ? &figures.loss
                               : phase == Phase::backward ? &figures.backward
                                                          : nullptr;
        out.bytes[i] = estimate.phase_peaks[i].value();
        if (peak == nullptr || peak->at == nullptr) continue;
        // whole states of units and posted messages stay where they were counted
        LivePeak units = *peak;
        units.gathered = units.gradients = units.messages = 0.0;
        out.bytes[i] -= peak->bytes - peak->gathered - peak->gradients - peak->messages;
        if (phase != out.peak_phase) continue;
        BytesByKind live;
        add_live_set(memory, stage, units, live);
        add(out.at_peak, live, -1.0);
    }
    return out;
}

/// Walks the passes of one stage.
class Replay {
public:
    Replay(const PlayedStep& step, const std::vector<LiveUnit>& units, const Bases& bases)
        : step_(step),
          s_(step.schedule),
          units_(units),
          bases_(bases),
          splits_(splits_backward(step.layout.schedule)),
          alive_(units.size(), 0),
          waiting_(units.size(), 0) {}

    MemoryPeak run(std::int32_t stage, Counter* counter) {
        counter_ = counter;
        peak_.stage = stage;
        note(0.0, Phase::init, bases_.bytes[index(Phase::init)], 0, nullptr);
        for (const std::uint32_t task : step_.on_stream(stage, StreamKind::compute))
            visit(task);
        return std::move(peak_);
    }

private:
    static std::size_t index(Phase phase) { return static_cast<std::size_t>(phase); }

    void visit(std::uint32_t task) {
        const TaskKind kind = s_.kind[task];
        if (kind == TaskKind::optimizer) {
            note(step_.start(task), Phase::step, bases_.bytes[index(Phase::step)], task, nullptr);
            note(step_.finish(task), Phase::step, bases_.persistent.total().value(), task, nullptr);
            return;
        }
        const bool weighs = kind == TaskKind::weight;
        if (kind != TaskKind::forward && kind != TaskKind::backward && !weighs) return;
        const ScheduleInput& in = step_.scenario.input;
        const auto& list = in.units[s_.stage[task]][s_.chunk[task]];
        if (list.empty()) return;
        const std::uint16_t unit = list[s_.unit[task]];
        const LiveUnit& live = units_[unit];
        const bool forward = kind == TaskKind::forward;
        const Phase phase = live.is_head && !weighs ? Phase::loss
                            : forward               ? Phase::forward
                                                    : Phase::backward;
        const UnitPeak& peak = live.profile->peak(forward  ? PassKind::forward
                                                  : weighs ? PassKind::weight
                                                           : PassKind::backward,
                                                  splits_);
        const auto& steps = in.unit_kinds[unit];
        const std::size_t last = weighs ? 0 : (forward ? steps.forward : steps.backward).size();
        if (s_.part[task] == 0) {
            // the peak of a backward pass counts what the unit stored, that of gradients of weights
            // what waited
            if (!forward) change(weighs ? waiting_ : alive_, unit, -1);
            note(step_.start(task), phase, bases_.bytes[index(phase)] + stored_ + peak.bytes, task,
                 &peak);
        }
        if (s_.part[task] == last) {
            if (forward) change(alive_, unit, 1);
            if (splits_ && kind == TaskKind::backward) change(waiting_, unit, 1);
            note(step_.finish(task), phase, bases_.bytes[index(phase)] + stored_, task, nullptr);
        }
    }

    void change(std::vector<std::int64_t>& units, std::uint16_t unit, int count) {
        units[unit] += count;
        // counted anew, so that nothing is left of rounding
        stored_ = 0.0;
        for (std::size_t i = 0; i < units_.size(); ++i) {
            stored_ += static_cast<double>(alive_[i]) * units_[i].profile->stored_bytes +
                       static_cast<double>(waiting_[i]) * units_[i].profile->waiting_bytes;
        }
    }

    void note(double at, Phase phase, double bytes, std::size_t task, const UnitPeak* running) {
        const std::int64_t t = nanoseconds(at);
        if (counter_ != nullptr) {
            if (!counter_->t.empty() && counter_->t.back() == t) {
                counter_->values.back() = std::max(counter_->values.back(), bytes);
            } else {
                counter_->t.push_back(t);
                counter_->values.push_back(bytes);
            }
        }
        if (bytes <= peak_.allocated.value()) return;
        peak_.allocated = Bytes(bytes);
        peak_.phase = phase;
        peak_.at = t;
        peak_.during = phase == Phase::init ? "init" : describe_task(s_, task);
        peak_.kinds = kinds(phase, bytes, running);
    }

    [[nodiscard]] BytesByKind kinds(Phase phase, double bytes, const UnitPeak* running) const {
        BytesByKind out = phase == bases_.peak_phase ? bases_.at_peak : bases_.persistent;
        if (phase != Phase::init && phase != Phase::step) {
            for (std::size_t i = 0; i < units_.size(); ++i) {
                add(out, units_[i].profile->stored, static_cast<double>(alive_[i]));
                add(out, units_[i].profile->waiting, static_cast<double>(waiting_[i]));
            }
            if (running != nullptr) add(out, running->parts, 1.0);
        }
        // buffers of phases that the estimate does not take apart
        if (phase != bases_.peak_phase) {
            out[TensorKind::workspace] += Bytes(bytes) - out.total();
        }
        return out;
    }

    const PlayedStep& step_;
    const Schedule& s_;
    const std::vector<LiveUnit>& units_;
    const Bases& bases_;
    bool splits_ = false;               ///< gradients of weights are passes of their own
    std::vector<std::int64_t> alive_;   ///< by unit kind: between forward and backward
    std::vector<std::int64_t> waiting_; ///< likewise: between backward and weight passes
    double stored_ = 0.0;
    MemoryPeak peak_;
    Counter* counter_ = nullptr;
};

} // namespace

std::vector<MemoryPeak> replay_memory(const PlayedStep& step, std::vector<Counter>* counters) {
    const Evaluator& e = step.evaluator;
    const MemoryInputs in{e.scenario(), e.resolved(), e.tables()};
    MemoryCache cache;
    std::vector<ClassMemory> classes;
    const Placement& placement = step.scenario.placement;
    evaluate_memory(in, step.layout, placement, cache, classes);
    const LayoutMemory memory = layout_memory(in, step.layout, placement, cache);
    const auto blocks = static_cast<std::int64_t>(in.scenario.model.block_kinds.size());
    std::vector<LiveUnit> units;
    for (const PlannedUnit& u : step.scenario.units) {
        const std::int64_t unit = u.unit < blocks    ? u.unit
                                  : u.unit == blocks ? embedding_unit
                                                     : head_unit;
        const Recompute recompute = u.recomputed ? memory.recompute : Recompute::none;
        units.push_back({memory.units->units[memory.units->index_of(unit, recompute)].profile,
                         unit == head_unit});
    }
    std::vector<MemoryPeak> out;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const auto stage = static_cast<std::size_t>(classes[i].stage);
        const StageFigures figures = stage_figures(in, memory, stage);
        const Bases bases = bases_of(memory, stage, figures, classes[i]);
        Counter counter{"memory", static_cast<std::int32_t>(stage), {}, {}};
        out.push_back(
            Replay(step, units, bases)
                .run(static_cast<std::int32_t>(stage), counters != nullptr ? &counter : nullptr));
        out.back().node_group = classes[i].node_group;
        if (counters != nullptr) {
            counters->push_back(std::move(counter));
            counters->push_back(
                {"host memory", static_cast<std::int32_t>(stage), {0}, {classes[i].host.value()}});
        }
    }
    return out;
}

} // namespace shardplan::sim
