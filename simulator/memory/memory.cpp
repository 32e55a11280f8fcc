#include "simulator/memory/memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "simulator/memory/stage_memory.hpp"

namespace shardplan::sim {

namespace {

/// Library workspaces grew with compute capability 9.0 (Hopper).
bool has_large_workspaces(const Device& device) {
    return std::strtod(device.compute_capability.c_str(), nullptr) >= 9.0;
}

const LivePeak* peak_of(const StageFigures& figures, Phase phase) {
    switch (phase) {
        case Phase::forward:
            return &figures.forward;
        case Phase::loss:
            return &figures.loss;
        case Phase::backward:
            return &figures.backward;
        default:
            return nullptr;
    }
}

/// Memory outside the allocator: the driver's context and the collective library's buffers.
struct Outside {
    double context = 0.0;
    double groups = 0.0;   ///< buffers of the communicators of groups
    double channels = 0.0; ///< buffers of messages between stages
    double communicators = 0.0;
};
Outside outside_of(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement) {
    const StackMemory& memory = in.scenario.stack.memory;
    const CommunicatorMemory opened = placement.communicators != nullptr
                                          ? *placement.communicators
                                          : communicators_of(in.scenario, layout);
    Outside out;
    out.context = memory.context.value;
    out.groups =
        opened.buffers.value() + static_cast<double>(opened.others) * memory.communicator.value;
    out.channels = layout.pp > 1 ? memory.message_channel.value : 0.0;
    out.communicators = out.groups + out.channels;
    return out;
}

/// Bytes of one class that its reserved memory follows from.
struct WorkingSets {
    double persistent = 0.0;
    double allocated = 0.0; ///< at the worst instant
    double loss = 0.0;      ///< beyond what is stored
    double block = 0.0;     ///< beyond what is stored
    Phase peak_phase = Phase::forward;
    std::array<double, phase_count> phases{}; ///< allocated at the worst instant of each
};

/// Reserved beyond allocated: a share of what comes and goes, and most of the smaller of the two
/// large working sets, because free blocks of one phase are cut for the other and gradients settle
/// in the rests.
/// Source: replay of operator lists through the rules of PyTorch's caching allocator.
double slack(const WorkingSets& sets, double fragmentation, double phase_slack) {
    return fragmentation * (sets.allocated - sets.persistent) +
           phase_slack * std::min(sets.loss, sets.block);
}

struct Bands {
    Band<Bytes> allocated, reserved;
};

Band<Bytes> band(double low, double value, double high) {
    return {Bytes(low), Bytes(value), Bytes(high)};
}

Bands bands_of(const StackMemory& memory, const WorkingSets& sets) {
    const double moving = sets.allocated - sets.persistent;
    const double twice = std::min(sets.loss, sets.block);
    const double sigma = memory.activation_sigma.value * moving;
    const double reserved =
        sets.allocated + slack(sets, memory.fragmentation.value, memory.phase_slack.value);
    // Near the limit PyTorch returns wholly free segments and tries again before it gives up, so
    // the low end takes the low ends of both shares.
    const double low =
        sets.allocated + slack(sets, memory.fragmentation.lo, memory.phase_slack.lo) - sigma;
    const double cuts = memory.fragmentation.sigma * moving;
    const double phases = memory.phase_slack.sigma * twice;
    const double high = reserved + std::sqrt(cuts * cuts + phases * phases + sigma * sigma);
    return {band(sets.allocated - sigma, sets.allocated, sets.allocated + sigma),
            band(low, reserved, high)};
}

/// Reserved and what lies outside the allocator. Driver and library are wrong about their own, the
/// buffers of one library together.
Band<Bytes> process_band(const StackMemory& memory, const Band<Bytes>& reserved,
                         const Outside& outside) {
    const double context = outside.context * memory.context.sigma;
    const double library = outside.groups * memory.communicator.sigma +
                           outside.channels * memory.message_channel.sigma;
    const double fixed2 = context * context + library * library;
    const double value = reserved.value.value() + (outside.context + outside.communicators);
    const auto with_fixed = [&](Bytes width) {
        return std::sqrt(width.value() * width.value() + fixed2);
    };
    return band(value - with_fixed(reserved.value - reserved.low), value,
                value + with_fixed(reserved.high - reserved.value));
}

Verdict verdict_of(const Band<Bytes>& reserved, Bytes usable) {
    if (reserved.high <= usable) {
        return Verdict::fits;
    }
    return reserved.low > usable ? Verdict::does_not_fit : Verdict::borderline;
}

double offloaded_activations(const Layout& layout, const StageFigures& figures, Phase phase) {
    const bool at_loss = phase == Phase::loss;
    return (at_loss ? figures.offloadable_at_loss : figures.offloadable) *
           static_cast<double>(layout.offload_activations) / static_cast<double>(offload_scale);
}

/// Stacks that allocate gradients one by one have none before the first backward pass.
bool gradients_exist(const MemoryInputs& in, const LayoutMemory& memory, Phase phase) {
    const bool first_pass = phase == Phase::forward || phase == Phase::loss;
    return phase != Phase::init && !(first_pass && in.scenario.stack.states.gradients_start_late &&
                                     memory.micro_batches == 1);
}

/// Of libraries, inside the allocator.
struct Workspaces {
    double products = 0.0;
    double grouped = 0.0;
};
Workspaces workspaces(const MemoryInputs& in, const LayoutMemory& memory, bool large) {
    const StackMemory& m = in.scenario.stack.memory;
    Workspaces out;
    out.products = large ? m.workspace.value : m.workspace_older.value;
    if (memory.grouped_experts) {
        out.grouped = large ? m.grouped_workspace.value : m.grouped_workspace_older.value;
    }
    return out;
}

const StateFigures::Sum* gathered_in(const StateFigures& states, Phase phase) {
    switch (phase) {
        case Phase::forward:
            return &states.gathered_forward;
        case Phase::loss:
            return &states.gathered_loss;
        case Phase::backward:
            return &states.gathered_backward;
        default:
            return nullptr;
    }
}

/// Everything of one phase but states, gathered units, the live set and the optimizer's
/// temporaries.
void add_stage_parts(const MemoryInputs& in, const Layout& layout, const LayoutMemory& memory,
                     const StageFigures& figures, Phase phase, bool large, PartSum& sum) {
    const Workspaces libraries = workspaces(in, memory, large);
    sum.add(TensorKind::workspace, "product workspaces", libraries.products, "mem.workspace");
    sum.add(TensorKind::workspace, "grouped product workspaces", libraries.grouped,
            "mem.grouped_workspace");
    sum.add(TensorKind::workspace, "gather buffer", figures.buffer, "mem.sp_buffer");
    if (peak_of(figures, phase) != nullptr) {
        sum.add(TensorKind::activations, "offloaded activations",
                -offloaded_activations(layout, figures, phase), "mem.offloaded_activations");
        sum.add(TensorKind::messages, "stage messages", figures.messages, "mem.messages");
        sum.add(TensorKind::logits, "logits of earlier micro-batches", figures.earlier_logits,
                "mem.output_buffers");
    }
}

/// The same figures, without kinds, of the phases that can be the worst of a step: load, save and
/// restart move states, not activations.
WorkingSets working_sets(const MemoryInputs& in, const Layout& layout, const LayoutMemory& memory,
                         const StateFigures& states, const StageFigures& figures, bool large) {
    WorkingSets out;
    out.persistent = states.persistent.bytes;
    const Workspaces libraries = workspaces(in, memory, large);
    const double fixed = libraries.products + libraries.grouped + figures.buffer;
    const double passes = fixed + figures.messages + figures.earlier_logits;
    const auto add_phase = [&](Phase phase, double beside_states) {
        const double bytes =
            (gradients_exist(in, memory, phase) ? states.persistent.bytes : states.early.bytes) +
            beside_states;
        out.phases[static_cast<std::size_t>(phase)] = bytes;
        if (bytes > out.allocated) {
            out.allocated = bytes;
            out.peak_phase = phase;
        }
    };
    const auto add_pass = [&](Phase phase, const LivePeak& peak, const StateFigures::Sum& gathered,
                              double& working) {
        const double moving = passes + gathered.bytes + peak.bytes;
        working = std::max(working, moving - figures.stored);
        add_phase(phase, moving - offloaded_activations(layout, figures, phase));
    };
    add_phase(Phase::init, fixed);
    add_pass(Phase::forward, figures.forward, states.gathered_forward, out.block);
    if (figures.loss.at != nullptr) {
        add_pass(Phase::loss, figures.loss, states.gathered_loss, out.loss);
    }
    add_pass(Phase::backward, figures.backward, states.gathered_backward, out.block);
    add_phase(Phase::step, fixed + states.step.bytes);
    return out;
}

/// What is allocated at the worst instant of a phase, by kind.
BytesByKind kinds_at(const MemoryInputs& in, const Layout& layout, const LayoutMemory& memory,
                     std::size_t stage, const StageFigures& figures, Phase phase, bool large) {
    const StateFigures& states = memory.state(stage);
    PartSum sum;
    sum.add(gradients_exist(in, memory, phase) ? states.persistent.kinds : states.early.kinds);
    add_stage_parts(in, layout, memory, figures, phase, large, sum);
    if (const StateFigures::Sum* gathered = gathered_in(states, phase)) {
        sum.add(gathered->kinds);
    } else if (phase == Phase::step) {
        sum.add(states.step.kinds);
    }
    BytesByKind out = sum.by_kind();
    const LivePeak* peak = peak_of(figures, phase);
    if (peak != nullptr && peak->at != nullptr) {
        add_live_set(memory, stage, *peak, out);
    }
    return out;
}

void add_outside(const Bands& bands, const Outside& outside, BytesByKind& kinds) {
    kinds[TensorKind::allocator_slack] = bands.reserved.value - bands.allocated.value;
    kinds[TensorKind::context] = Bytes(outside.context);
    kinds[TensorKind::communicators] = Bytes(outside.communicators);
}

Bytes usable_of(const MemoryInputs& in, const Outside& outside, std::int64_t node_group) {
    const Device& device = in.scenario.devices[static_cast<std::size_t>(node_group)];
    const Bytes free = device.memory_visible - Bytes(outside.context + outside.communicators);
    return in.resolved.memory_cap.value() > 0.0 ? std::min(free, in.resolved.memory_cap) : free;
}

/// Host memory by phase, and what lies on local storage.
void set_host(const MemoryInputs& in, const Layout& layout, const StageParameters& p,
              const StageFigures& figures, ClassMemory& out) {
    const StackProfile& stack = in.scenario.stack;
    const double moved = offloaded_bytes(in.resolved, stack, layout, p) +
                         offloaded_activations(layout, figures, Phase::loss);
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

void evaluate_class(const MemoryInputs& in, const Layout& layout, const LayoutMemory& memory,
                    const RankClass& rank_class, bool large, const Outside& outside,
                    ClassMemory& out) {
    const StackMemory& rules = in.scenario.stack.memory;
    const auto stage = static_cast<std::size_t>(rank_class.stage);
    const StateFigures& states = memory.state(stage);
    const StageFigures figures = stage_figures(in, memory, stage);
    const WorkingSets sets = working_sets(in, layout, memory, states, figures, large);
    const Bands bands = bands_of(rules, sets);
    out.stage = rank_class.stage;
    out.node_group = rank_class.node_group;
    out.ranks = rank_class.count;
    out.example_rank = rank_class.example_rank;
    out.persistent = states.persistent.kinds;
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
        out.phase_peaks[phase] = Bytes(sets.phases[phase]);
    }
    out.peak_phase = sets.peak_phase;
    out.at_peak = kinds_at(in, layout, memory, stage, figures, sets.peak_phase, large);
    out.allocated = bands.allocated;
    out.reserved = bands.reserved;
    out.process = process_band(rules, bands.reserved, outside);
    add_outside(bands, outside, out.at_peak);
    out.usable = usable_of(in, outside, rank_class.node_group);
    out.verdict = verdict_of(out.reserved, out.usable);
    set_host(in, layout, states.parameters, figures, out);
}

/// Which node groups have the larger library workspaces.
const std::vector<bool>& large_workspaces(const MemoryInputs& in, MemoryCache& cache) {
    std::vector<bool>& large = cache.impl().large_workspaces;
    if (large.empty()) {
        for (const Device& device : in.scenario.devices) {
            large.push_back(has_large_workspaces(device));
        }
    }
    return large;
}

/// Is there a class that runs the same on the same devices with no less alive?
bool is_dominated(const PipelineOutline& outline, const std::vector<RankClass>& classes,
                  std::size_t index) {
    const RankClass& own = classes[index];
    const std::size_t leader = outline.stages[static_cast<std::size_t>(own.stage)].dominated_by;
    if (leader == static_cast<std::size_t>(own.stage)) {
        return false;
    }
    return std::any_of(classes.begin(), classes.end(), [&](const RankClass& other) {
        return other.stage == static_cast<std::int64_t>(leader) &&
               other.node_group == own.node_group;
    });
}

/// The largest kind of what the verdict compares, which is what the allocator holds.
TensorKind largest_kind(const BytesByKind& bytes) {
    auto largest = static_cast<TensorKind>(0);
    Bytes most = bytes[largest];
    for (std::size_t i = 1; i < tensor_kind_count; ++i) {
        const auto kind = static_cast<TensorKind>(i);
        const bool outside = kind == TensorKind::context || kind == TensorKind::communicators;
        if (!outside && bytes.amounts[i] > most) {
            most = bytes.amounts[i];
            largest = kind;
        }
    }
    return largest;
}

/// The low end of reserved memory with one micro-batch alive, less what does not grow with it: no
/// larger micro-batch needs less. In the backward pass there are gradients, so allocated is at
/// least states + `alone`, and reserved adds a share of what is beyond the states.
double least_reserved(const StackMemory& memory, const StateFigures& states,
                      const StageFigures& figures) {
    const double share = 1.0 + memory.fragmentation.lo - memory.activation_sigma.value;
    return states.persistent.bytes + std::max(0.0, share) * figures.alone;
}

/// The search for the class nearest to its limit.
class Nearest {
public:
    Nearest(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
            MemoryCache& cache)
        : in_(in),
          layout_(layout),
          classes_(placement.classes),
          cache_(cache),
          memory_(layout_memory(in, layout, placement, cache)),
          large_(large_workspaces(in, cache)),
          outside_(outside_of(in, layout, placement)) {}

    MemoryHeadline run() {
        // With one node group a class is a stage.
        if (classes_.size() == memory_.outline->stages.size()) {
            for (const std::size_t index : memory_.outline->leading) {
                look_at(index);
            }
        } else {
            for (std::size_t i = 0; i < classes_.size(); ++i) {
                if (!is_dominated(*memory_.outline, classes_, i)) {
                    look_at(i);
                }
            }
        }
        if (ratio_ >= 0.0) {
            BytesByKind kinds = kinds_at(in_, layout_, memory_,
                                         static_cast<std::size_t>(classes_[out_.deciding].stage),
                                         figures_, out_.phase, is_large(out_.deciding));
            add_outside(bands_, outside_, kinds);
            out_.kind = largest_kind(kinds);
            out_.reserved = bands_.reserved;
        }
        return out_;
    }

private:
    [[nodiscard]] bool is_large(std::size_t index) const {
        return large_[static_cast<std::size_t>(classes_[index].node_group)];
    }

    void look_at(std::size_t index) {
        const auto stage = static_cast<std::size_t>(classes_[index].stage);
        const StageFigures& figures = cached_figures(in_, memory_, stage, cache_);
        const WorkingSets sets =
            working_sets(in_, layout_, memory_, memory_.state(stage), figures, is_large(index));
        const Bands bands = bands_of(in_.scenario.stack.memory, sets);
        const Bytes usable = usable_of(in_, outside_, classes_[index].node_group);
        const Verdict verdict = verdict_of(bands.reserved, usable);
        out_.verdict = std::max(out_.verdict, verdict);
        out_.hopeless = out_.hopeless ||
                        (verdict == Verdict::does_not_fit && layout_.offload_activations == 0 &&
                         least_reserved(in_.scenario.stack.memory, memory_.state(stage), figures) >
                             usable.value());
        const double ratio =
            usable.value() > 0.0 ? bands.reserved.high / usable : bands.reserved.high.value();
        if (ratio > ratio_) {
            ratio_ = ratio;
            out_.deciding = index;
            out_.phase = sets.peak_phase;
            out_.usable = usable;
            figures_ = figures;
            bands_ = bands;
        }
    }

    const MemoryInputs& in_;
    const Layout& layout_;
    const std::vector<RankClass>& classes_;
    MemoryCache& cache_;
    LayoutMemory memory_;
    const std::vector<bool>& large_;
    Outside outside_;
    MemoryHeadline out_;
    double ratio_ = -1.0;
    StageFigures figures_;
    Bands bands_;
};

} // namespace

MemoryHeadline nearest_headline(const MemoryInputs& in, const Layout& layout,
                                const PlacedStages& placement, MemoryCache& cache) {
    return Nearest(in, layout, placement, cache).run();
}

std::vector<MemoryPart> allocated_parts(const MemoryInputs& in, const Layout& layout,
                                        const LayoutMemory& memory, std::size_t stage, Phase phase,
                                        bool large) {
    std::vector<MemoryPart> out;
    PartSum sum(&out);
    const StackProfile& stack = in.scenario.stack;
    const StageParameters& p = memory.state(stage).parameters;
    const StageFigures figures = stage_figures(in, memory, stage);
    add_persistent(in.scenario, in.resolved, layout, p, gradients_exist(in, memory, phase), sum);
    add_stage_parts(in, layout, memory, figures, phase, large, sum);
    if (const LivePeak* peak = peak_of(figures, phase)) {
        const UnitPhase units = phase == Phase::forward ? UnitPhase::forward
                                : phase == Phase::loss  ? UnitPhase::loss
                                                        : UnitPhase::backward;
        add_gathered_units(in.resolved, stack, layout, p, units, sum);
        for (const MemoryPart& part : live_set_parts(in, memory, stage, *peak)) {
            sum.add(part);
        }
    } else if (phase == Phase::step) {
        add_step_temporaries(in.resolved, stack, layout, p, sum);
    }
    return out;
}

void evaluate_memory(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
                     MemoryCache& cache, std::vector<ClassMemory>& out) {
    const LayoutMemory memory = layout_memory(in, layout, placement, cache);
    const std::vector<bool>& large = large_workspaces(in, cache);
    const Outside outside = outside_of(in, layout, placement);
    out.resize(placement.classes.size());
    for (std::size_t i = 0; i < placement.classes.size(); ++i) {
        const RankClass& rank_class = placement.classes[i];
        evaluate_class(in, layout, memory, rank_class,
                       large[static_cast<std::size_t>(rank_class.node_group)], outside, out[i]);
    }
}

} // namespace shardplan::sim
