#include <algorithm>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "simulator/memory/stage_memory.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::sim {

namespace {

/// Tensors of the live set by kind and name, added up over units and micro-batches.
class TensorList {
public:
    void add(const StoredTensor& tensor, std::string_view op, double copies) {
        if (copies == 0.0 || tensor.bytes == 0.0) {
            return;
        }
        Entry& entry = entries_[{tensor.kind, fmt::format("{}.{}", op, tensor.name)}];
        entry.bytes += copies * tensor.bytes;
        entry.copies += copies;
        entry.size = tensor.bytes;
    }
    void add_temporaries(std::string_view what, double bytes, double copies, TensorKind kind) {
        add({what, bytes, kind}, "", copies);
    }
    void write(std::vector<MemoryPart>& out) const {
        for (const auto& [key, entry] : entries_) {
            const auto& [kind, name] = key;
            out.push_back({kind, name.starts_with('.') ? name.substr(1) : name, entry.bytes,
                           "mem.live_set",
                           fmt::format("{:g} x {}", entry.copies, to_text(Bytes(entry.size)))});
        }
    }

private:
    struct Entry {
        double bytes = 0.0;
        double copies = 0.0;
        double size = 0.0;
    };
    std::map<std::pair<TensorKind, std::string>, Entry> entries_;
};

/// What `copies` of a unit keep after their forward pass.
void add_stored(const UnitProfile& unit, Recompute recompute, double copies, TensorList& list) {
    if (copies == 0.0) {
        return;
    }
    if (recompute == Recompute::full) {
        list.add_temporaries("block inputs", unit.input_bytes, copies, TensorKind::activations);
        return;
    }
    for (const Op& op : unit.ops) {
        for (const StoredTensor& tensor : op.stored) {
            if (is_held(tensor, recompute == Recompute::selective ? Held::between_passes
                                                                  : Held::without_recomputation)) {
                list.add(tensor, op.name, copies);
            }
        }
    }
}

/// What `copies` of a unit keep for gradients of their weights.
void add_waiting(const UnitProfile& unit, double copies, std::size_t behind, TensorList& list) {
    if (copies == 0.0) return;
    for (std::size_t i = behind; i < unit.ops.size(); ++i) {
        const Op& op = unit.ops[i];
        list.add_temporaries(fmt::format("{} output gradient that waits", op.name), op.waiting,
                             copies, TensorKind::temporaries);
        for (const StoredTensor& tensor : op.stored) {
            if (tensor.for_weights) list.add(tensor, op.name, copies);
        }
    }
}

/// The operators up to the one at which the unit peaks, and what that one needs for itself.
void add_running(const UnitProfile& unit, const UnitPeak& peak, Recompute recompute, PassKind pass,
                 bool splits, const TensorRules& rules, TensorList& list) {
    const OpList& ops = unit.ops;
    if (peak.op < 0) return;
    const auto running = static_cast<std::size_t>(peak.op);
    const Op& op = ops[running];
    const auto kind = TensorKind::temporaries;
    if (pass == PassKind::weight) {
        UnitProfile walked;
        walked.ops.assign(ops.begin(), ops.begin() + peak.op + 1);
        add_waiting(walked, 1.0, 0, list);
        list.add_temporaries(fmt::format("inside {} (weights)", op.name), op.transient_weight, 1.0,
                             kind);
        return;
    }
    const bool backward = pass == PassKind::backward;
    const bool selective = recompute == Recompute::selective;
    const bool all_back = backward && rules.selective == SelectivePolicy::per_operator;
    const Held whole = selective ? Held::rebuilt : Held::without_recomputation;
    const Held before = selective && !all_back ? Held::between_passes : whole;
    for (std::size_t i = 0; i <= running; ++i) {
        for (const StoredTensor& tensor : ops[i].stored) {
            if (is_held(tensor, i == running ? whole : before)) {
                list.add(tensor, ops[i].name, 1.0);
            }
        }
    }
    if (selective) {
        list.add_temporaries("what the operator before gave", op.dropped_before, 1.0,
                             TensorKind::activations);
    }
    double inside = op.transient_forward;
    if (peak.again) {
        inside = rules.recompute_without_output && op.output ? 0.0 : inside;
    } else if (backward) {
        inside = splits ? op.transient_input : op.transient_backward;
        if (splits) add_waiting(unit, 1.0, running + 1, list);
    }
    list.add_temporaries(fmt::format("inside {}{}", op.name,
                                     peak.again ? " (again)"
                                     : backward ? " (backward)"
                                                : ""),
                         inside, 1.0, kind);
    list.add_temporaries("gradient of the residual stream", peak.held, 1.0, kind);
}

/// Whole states of units, and what has been posted for messages.
void add_windows(const LivePeak& peak, TensorList& list) {
    list.add_temporaries("running and prefetched units", peak.gathered, 1.0,
                         TensorKind::gathered_weights);
    list.add_temporaries("unsharded gradients", peak.gradients, 1.0, TensorKind::gradients);
    list.add_temporaries("messages to come", peak.messages, 1.0, TensorKind::messages);
}

} // namespace

std::vector<MemoryPart> live_set_parts(const MemoryInputs& in, const LayoutMemory& memory,
                                       std::size_t stage, const LivePeak& peak) {
    TensorList list;
    const StageOutline& outline = memory.stage(stage);
    const Instant& at = *peak.at;
    const auto recompute_of = [&](const UnitCount& run) {
        return run.planned ? memory.recompute : Recompute::none;
    };
    const bool weighs = peak.pass == PassKind::weight;
    const bool leaves = peak.pass == PassKind::backward && outline.splits;
    for (std::size_t c = 0; c < outline.chunks.size(); ++c) {
        for (std::size_t r = 0; r < outline.chunks[c].size(); ++r) {
            const UnitCount& run = outline.chunks[c][r];
            const UnitProfile& unit = memory.profile(run);
            const auto count = static_cast<double>(run.count);
            const bool runs = c == at.chunk;
            const double before = !runs || r > peak.run ? 0.0 : r < peak.run ? count : peak.unit;
            const double behind = !runs || r < peak.run ? 0.0
                                  : r > peak.run        ? count
                                                        : count - before - 1.0;
            add_stored(unit, recompute_of(run), at.alive[c] * count + (weighs ? 0.0 : before),
                       list);
            const double waiting = c < at.waiting.size() ? at.waiting[c] * count : 0.0;
            add_waiting(unit, waiting + (weighs ? before : leaves ? behind : 0.0), 0, list);
        }
    }
    const UnitCount& run = outline.chunks[at.chunk][peak.run];
    const UnitProfile& unit = memory.profile(run);
    const TensorRules& rules = in.scenario.stack.tensors;
    add_running(unit, peak.of(unit, outline.splits), recompute_of(run), peak.pass, outline.splits,
                rules, list);
    if (peak.pass == PassKind::backward && recompute_of(run) == Recompute::full &&
        !rules.recompute_without_output) {
        list.add_temporaries("rebuilt block output", unit.input_bytes, 1.0,
                             TensorKind::activations);
    }
    add_windows(peak, list);
    std::vector<MemoryPart> out;
    list.write(out);
    return out;
}

Term explain_memory(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
                    std::size_t class_index) {
    // Operators are not kept by the caches that a search fills.
    MemoryCache cache;
    cache.impl().keep_ops = true;
    std::vector<ClassMemory> classes;
    evaluate_memory(in, layout, placement, cache, classes);
    const ClassMemory& c = classes[class_index];
    const LayoutMemory memory = layout_memory(in, layout, placement, cache);
    std::vector<MemoryPart> parts =
        allocated_parts(in, layout, memory, static_cast<std::size_t>(c.stage), c.peak_phase,
                        cache.impl().large_workspaces[static_cast<std::size_t>(c.node_group)]);
    const auto outside = {TensorKind::allocator_slack, TensorKind::communicators,
                          TensorKind::context};
    const StackMemory& constants = in.scenario.stack.memory;
    for (const TensorKind kind : outside) {
        std::string detail;
        if (kind == TensorKind::allocator_slack) {
            detail = fmt::format(
                "{:g} of what comes and goes, {:g} of the smaller of the loss's and "
                "a block's working set",
                constants.fragmentation.value, constants.phase_slack.value);
        } else if (kind == TensorKind::communicators) {
            const CommunicatorMemory opened = communicators_of(in.scenario, layout);
            const std::string others =
                opened.others > 0 ? fmt::format(", {} more of {} each", opened.others,
                                                to_text(Bytes(constants.communicator.value)))
                                  : "";
            detail = fmt::format("buffers {}{}{}", to_text(opened.buffers), others,
                                 layout.pp > 1 ? " and the channels of pipeline messages" : "");
        }
        parts.push_back({kind, std::string(name_of(kind)), c.at_peak[kind].value(),
                         "mem." + std::string(name_of(kind)), std::move(detail)});
    }
    TermRecorder recorder("memory",
                          fmt::format("process memory of a rank of stage {}, in the {} phase",
                                      c.stage, name_of(c.peak_phase)),
                          Dimension::bytes);
    for (std::size_t k = 0; k < tensor_kind_count; ++k) {
        const auto kind = static_cast<TensorKind>(k);
        const bool any = std::any_of(parts.begin(), parts.end(), [&](const MemoryPart& p) {
            return p.kind == kind && p.bytes != 0.0;
        });
        if (!any) {
            continue;
        }
        recorder.enter(name_of(kind), name_of(kind), "mem." + std::string(name_of(kind)));
        for (const MemoryPart& part : parts) {
            if (part.kind == kind && part.bytes != 0.0) {
                recorder.leaf(part.name, part.name, part.bytes, part.formula, part.detail);
            }
        }
        recorder.leave();
    }
    return recorder.take();
}

} // namespace shardplan::sim
