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

/// The operators up to the one at which the unit peaks, and what that one needs for itself.
void add_running(const UnitProfile& unit, Recompute recompute, bool in_backward,
                 const TensorRules& rules, TensorList& list) {
    const OpList& ops = unit.ops;
    const UnitPeak& peak = in_backward ? unit.backward : unit.forward;
    const bool selective = recompute == Recompute::selective;
    const bool all_back = in_backward && rules.selective == SelectivePolicy::per_operator;
    const Held whole = selective ? Held::rebuilt : Held::without_recomputation;
    const Held before = selective && !all_back ? Held::between_passes : whole;
    for (std::int32_t i = 0; i <= peak.op; ++i) {
        const Op& op = ops[static_cast<std::size_t>(i)];
        for (const StoredTensor& tensor : op.stored) {
            if (is_held(tensor, i == peak.op ? whole : before)) {
                list.add(tensor, op.name, 1.0);
            }
        }
    }
    const Op& op = ops[static_cast<std::size_t>(peak.op)];
    const auto kind = TensorKind::temporaries;
    list.add_temporaries(fmt::format("inside {}{}", op.name, in_backward ? " (backward)" : ""),
                         in_backward ? op.transient_backward : op.transient_forward, 1.0, kind);
    list.add_temporaries("gradient of the residual stream", peak.held, 1.0, kind);
}

} // namespace

std::vector<MemoryPart> live_set_parts(const MemoryInputs& in, const LayoutMemory& memory,
                                       std::size_t stage, const LivePeak& peak) {
    TensorList list;
    const StageOutline& outline = memory.stage(stage);
    const auto recompute_of = [&](const UnitCount& run) {
        return run.planned ? memory.recompute : Recompute::none;
    };
    for (std::size_t c = 0; c < outline.chunks.size(); ++c) {
        for (std::size_t r = 0; r < outline.chunks[c].size(); ++r) {
            const UnitCount& run = outline.chunks[c][r];
            auto copies = static_cast<double>(peak.at->alive[c] * run.count);
            if (c == peak.at->chunk && r <= peak.run) {
                copies += static_cast<double>(run.count);
                copies -= r == peak.run ? 1.0 : 0.0;
            }
            add_stored(memory.profile(run), recompute_of(run), copies, list);
        }
    }
    const UnitCount& run = outline.chunks[peak.at->chunk][peak.run];
    const UnitProfile& unit = memory.profile(run);
    add_running(unit, recompute_of(run), peak.in_backward, in.scenario.stack.tensors, list);
    if (peak.in_backward && recompute_of(run) == Recompute::full) {
        list.add_temporaries("rebuilt block output", unit.input_bytes, 1.0,
                             TensorKind::activations);
    }
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
