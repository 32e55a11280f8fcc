#include "simulator/memory/memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "simulator/memory/stage_memory.hpp"

namespace shardplan::sim {

namespace {

/// Instants that can be the worst of a step. Load, save and restart move states, not activations.
constexpr Phase step_phases[] = {Phase::init, Phase::forward, Phase::loss, Phase::backward,
                                 Phase::step};

/// Library workspaces grew with compute capability 9.0 (Hopper).
bool has_large_workspaces(const Device& device) {
    return std::strtod(device.compute_capability.c_str(), nullptr) >= 9.0;
}

const UnitPeak* peak_of(const StageMemory& stage, Phase phase) {
    switch (phase) {
    case Phase::forward: return &stage.live.forward;
    case Phase::loss: return &stage.live.loss;
    case Phase::backward: return &stage.live.backward;
    default: return nullptr;
    }
}

/// Communicators of more than one rank that this layout opens on a rank.
int communicators(const Layout& layout) {
    const double replicas = static_cast<double>(layout.dp) * layout.cp;
    int groups = (layout.tp > 1 ? 1 : 0) + (layout.cp > 1 ? 1 : 0) + (replicas > 1.0 ? 1 : 0) +
                 (layout.ep > 1 ? 1 : 0);
    const bool hybrid = layout.shard_group > 0 && layout.shard_group < replicas;
    groups += hybrid ? 1 : 0;
    return groups;
}

/// Memory outside the allocator: the driver's context and the collective library's buffers.
struct Outside {
    double context = 0.0;
    double communicators = 0.0;
};
Outside outside_of(const StackMemory& memory, const Layout& layout) {
    Outside out;
    out.context = memory.context.value;
    out.communicators = communicators(layout) * memory.communicator.value +
                        (layout.pp > 1 ? memory.message_channel.value : 0.0);
    return out;
}

/// Figures of one class that its reserved memory follows from.
struct WorkingSets {
    double persistent = 0.0;
    double allocated = 0.0;
    double loss = 0.0;  ///< beyond what is stored
    double block = 0.0; ///< beyond what is stored
};

/// Reserved beyond allocated: a share of what comes and goes, and most of the smaller of the two
/// large working sets, because free blocks of one phase are cut for the other and gradients settle
/// in the rests.
/// Source: replay of operator lists through the rules of PyTorch's caching allocator.
double slack(const WorkingSets& sets, double fragmentation, double phase_slack) {
    return fragmentation * (sets.allocated - sets.persistent) +
           phase_slack * std::min(sets.loss, sets.block);
}

void set_bands(const StackMemory& memory, const WorkingSets& sets, const Outside& outside,
               ClassMemory& out) {
    const double moving = sets.allocated - sets.persistent;
    const double twice = std::min(sets.loss, sets.block);
    const double sigma = memory.activation_sigma.value * moving;
    out.allocated = {Bytes(sets.allocated - sigma), Bytes(sets.allocated),
                     Bytes(sets.allocated + sigma)};
    const double reserved =
        sets.allocated + slack(sets, memory.fragmentation.value, memory.phase_slack.value);
    // Near the limit PyTorch returns wholly free segments and tries again before it gives up, so
    // the low end takes the low ends of both shares.
    const double low =
        sets.allocated + slack(sets, memory.fragmentation.lo, memory.phase_slack.lo) - sigma;
    const double high = reserved + std::sqrt(std::pow(memory.fragmentation.sigma * moving, 2) +
                                             std::pow(memory.phase_slack.sigma * twice, 2) +
                                             sigma * sigma);
    out.reserved = {Bytes(low), Bytes(reserved), Bytes(high)};
    const double fixed = outside.context + outside.communicators;
    out.process = {Bytes(low + fixed), Bytes(reserved + fixed), Bytes(high + fixed)};
}

Verdict verdict_of(const Band<Bytes>& reserved, Bytes usable) {
    if (reserved.high <= usable) {
        return Verdict::fits;
    }
    return reserved.low > usable ? Verdict::does_not_fit : Verdict::borderline;
}

double offloaded_activations(const Layout& layout, const StageMemory& stage) {
    return stage.offloadable_bytes * static_cast<double>(layout.offload_activations) /
           static_cast<double>(offload_scale);
}

/// Stacks that allocate gradients one by one have none before the first backward pass.
bool gradients_exist(const MemoryInputs& in, const Layout& layout, Phase phase) {
    const bool first_pass = phase == Phase::forward || phase == Phase::loss;
    return phase != Phase::init &&
           !(first_pass && in.scenario.stack.states.gradients_start_late &&
             micro_batches(in.resolved, layout) == 1);
}

/// Everything allocated on the device at the worst instant of one phase.
void add_allocated(const MemoryInputs& in, const Layout& layout, const StageMemory& stage,
                   Phase phase, bool newer, PartSum& sum) {
    const StackProfile& stack = in.scenario.stack;
    const StackMemory& memory = stack.memory;
    add_persistent(in.scenario, in.resolved, layout, stage.parameters,
                   gradients_exist(in, layout, phase), sum);
    sum.add(TensorKind::workspace, "product workspaces",
            newer ? memory.workspace.value : memory.workspace_older.value, "mem.workspace");
    if (stage.grouped_experts) {
        sum.add(TensorKind::workspace, "grouped product workspaces",
                newer ? memory.grouped_workspace.value : memory.grouped_workspace_older.value,
                "mem.grouped_workspace");
    }
    sum.add(TensorKind::workspace, "gather buffer", stage.buffer_bytes, "mem.sp_buffer");
    switch (phase) {
    case Phase::forward:
    case Phase::loss:
    case Phase::backward: {
        const UnitPhase units = phase == Phase::forward ? UnitPhase::forward
                                : phase == Phase::loss  ? UnitPhase::loss
                                                                : UnitPhase::backward;
        add_gathered_units(in.resolved, stack, layout, stage.parameters, units, sum);
        sum.add(TensorKind::activations, "offloaded activations",
                -offloaded_activations(layout, stage), "mem.offloaded_activations");
        sum.add(TensorKind::messages, "stage messages", stage.message_bytes, "mem.messages");
        sum.add(TensorKind::logits, "logits of earlier micro-batches", stage.earlier_logits,
                "mem.output_buffers");
        if (sum.lists_parts()) {
            for (const MemoryPart& part : live_set_parts(in, stage, *peak_of(stage, phase))) {
                sum.add(part);
            }
        } else {
            sum.add(peak_of(stage, phase)->parts);
        }
        break;
    }
    case Phase::step:
        add_step_temporaries(in.resolved, stack, layout, stage.parameters, sum);
        break;
    default: break;
    }
}

/// Host memory by phase, and what lies on local storage.
void set_host(const MemoryInputs& in, const Layout& layout, const StageMemory& stage,
              ClassMemory& out) {
    const StageParameters& p = stage.parameters;
    const StackProfile& stack = in.scenario.stack;
    const double moved = offloaded_bytes(in.resolved, stack, layout, p) +
                         offloaded_activations(layout, stage);
    const bool to_nvme = layout.offload_tier == OffloadTier::nvme;
    const HostStaging staging = host_staging(in.resolved, stack, layout, p);
    out.nvme = Bytes(to_nvme ? moved : 0.0);
    out.host = Bytes(stack.memory.host_process.value + (to_nvme ? 0.0 : moved));
    out.host_phases.fill(out.host);
    const Bytes process(stack.memory.host_process.value);
    out.host_phases[static_cast<std::size_t>(Phase::load)] = process + Bytes(staging.load);
    out.host_phases[static_cast<std::size_t>(Phase::restart)] = process + Bytes(staging.load);
    out.host_phases[static_cast<std::size_t>(Phase::save)] = out.host + Bytes(staging.save);
    // On the device, loading holds the weights and saving holds the states; neither computes.
    out.phase_peaks[static_cast<std::size_t>(Phase::load)] = out.persistent[TensorKind::weights];
    out.phase_peaks[static_cast<std::size_t>(Phase::restart)] = out.persistent.total();
    out.phase_peaks[static_cast<std::size_t>(Phase::save)] = out.persistent.total();
}

void evaluate_class(const MemoryInputs& in, const Layout& layout, const StageMemory& stage,
                    const RankClass& rank_class, ClassMemory& out) {
    const StackProfile& stack = in.scenario.stack;
    const Device& device = in.scenario.devices[static_cast<std::size_t>(rank_class.node_group)];
    const bool newer = has_large_workspaces(device);
    out.stage = rank_class.stage;
    out.node_group = rank_class.node_group;
    out.ranks = rank_class.count;
    out.example_rank = rank_class.example_rank;
    PartSum persistent;
    add_persistent(in.scenario, in.resolved, layout, stage.parameters, true, persistent);
    out.persistent = persistent.by_kind();
    WorkingSets sets;
    sets.persistent = persistent.by_kind().total().value();
    const double late = (out.persistent[TensorKind::gradients] +
                         out.persistent[TensorKind::buckets]).value();
    out.phase_peaks = {};
    for (const Phase phase : step_phases) {
        const UnitPeak* peak = peak_of(stage, phase);
        if (phase == Phase::loss && peak->bytes == 0.0) {
            continue;
        }
        PartSum sum;
        add_allocated(in, layout, stage, phase, newer, sum);
        const double bytes = sum.by_kind().total().value();
        out.phase_peaks[static_cast<std::size_t>(phase)] = Bytes(bytes);
        if (bytes > sets.allocated) {
            sets.allocated = bytes;
            out.at_peak = sum.by_kind();
            out.peak_phase = phase;
        }
        if (peak != nullptr) {
            const double held = gradients_exist(in, layout, phase) ? sets.persistent
                                                                   : sets.persistent - late;
            double& working = phase == Phase::loss ? sets.loss : sets.block;
            working = std::max(working, bytes - held - stage.stored_bytes +
                                            offloaded_activations(layout, stage));
        }
    }
    const Outside outside = outside_of(stack.memory, layout);
    set_bands(stack.memory, sets, outside, out);
    out.at_peak[TensorKind::allocator_slack] = out.reserved.value - out.allocated.value;
    out.at_peak[TensorKind::context] = Bytes(outside.context);
    out.at_peak[TensorKind::communicators] = Bytes(outside.communicators);
    out.usable = device.memory_visible - Bytes(outside.context + outside.communicators);
    if (in.resolved.memory_cap.value() > 0.0) {
        out.usable = std::min(out.usable, in.resolved.memory_cap);
    }
    out.verdict = verdict_of(out.reserved, out.usable);
    set_host(in, layout, stage, out);
}

} // namespace

std::vector<MemoryPart> allocated_parts(const MemoryInputs& in, const Layout& layout,
                                        const StageMemory& stage, Phase phase,
                                        const Device& device) {
    std::vector<MemoryPart> out;
    PartSum sum(&out);
    add_allocated(in, layout, stage, phase, has_large_workspaces(device), sum);
    return out;
}

void evaluate_memory(const MemoryInputs& in, const Layout& layout, const Placement& placement,
                     MemoryCache& cache, std::vector<ClassMemory>& out) {
    const std::vector<StageMemory>& stages = stage_memories(in, layout, placement, cache);
    out.resize(placement.classes.size());
    for (std::size_t i = 0; i < placement.classes.size(); ++i) {
        const RankClass& rank_class = placement.classes[i];
        evaluate_class(in, layout, stages[static_cast<std::size_t>(rank_class.stage)], rank_class,
                       out[i]);
    }
}

std::size_t deciding_class(const std::vector<ClassMemory>& classes) {
    std::size_t worst = 0;
    double worst_ratio = -1.0;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const double ratio = classes[i].usable.value() > 0.0
                                 ? classes[i].reserved.high / classes[i].usable
                                 : classes[i].reserved.high.value();
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = i;
        }
    }
    return worst;
}

} // namespace shardplan::sim
