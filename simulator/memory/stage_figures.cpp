#include <algorithm>

#include "simulator/memory/stage_memory.hpp"
#include "simulator/units/hash_mix.hpp"

/// The live set of a stage, from what its units hold and what it runs when.
namespace shardplan::sim {

namespace {

/// `place`: a unit of a run, and what is done to it.
struct Place {
    std::size_t run = 0;
    std::int64_t unit = 0;
    PassKind pass = PassKind::forward;
};
void raise(LivePeak& peak, double bytes, const Place& place) {
    if (bytes > peak.bytes) {
        peak.bytes = bytes;
        peak.run = static_cast<std::uint32_t>(place.run);
        peak.unit = static_cast<std::uint32_t>(place.unit);
        peak.pass = place.pass;
    }
}

/// Where backward passes leave gradients of weights: more waits the nearer they are to the first
/// unit, more is stored the nearer to the last.
void set_split_figures(const LayoutMemory& memory, const ChunkOutline& chunk, ChunkFigures& out) {
    for (const UnitCount& run : chunk)
        out.waiting += static_cast<double>(run.count) * memory.profile(run).waiting_bytes;
    double stored = 0.0;
    double waiting = 0.0;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
        const UnitProfile& unit = memory.profile(chunk[i]);
        LivePeak& backward = chunk[i].unit == head_unit ? out.loss : out.backward;
        for (const std::int64_t at : {std::int64_t{0}, chunk[i].count - 1}) {
            const auto before = static_cast<double>(at);
            const double behind = out.waiting - waiting - (before + 1.0) * unit.waiting_bytes;
            const double running = unit.peak(PassKind::backward, true).bytes;
            raise(backward, stored + before * unit.stored_bytes + running + behind,
                  {i, at, PassKind::backward});
            raise(out.weight, waiting + before * unit.waiting_bytes + unit.weight.bytes,
                  {i, at, PassKind::weight});
        }
        stored += static_cast<double>(chunk[i].count) * unit.stored_bytes;
        waiting += static_cast<double>(chunk[i].count) * unit.waiting_bytes;
    }
}

void set_chunk_figures(const LayoutMemory& memory, const ChunkOutline& chunk, bool splits,
                       ChunkFigures& out) {
    out = {};
    for (std::size_t i = 0; i < chunk.size(); ++i) {
        const UnitCount& run = chunk[i];
        const UnitBytes& unit = memory.bytes(run);
        // The last of a row of equal units sees the most already stored.
        const std::int64_t last = run.count - 1;
        const double before = out.stored + static_cast<double>(last) * unit.stored;
        const double all = static_cast<double>(run.count) * unit.stored;
        if (run.unit == head_unit) {
            raise(out.loss, before + unit.forward, {i, last, PassKind::forward});
            if (!splits) {
                raise(out.loss, before + unit.backward, {i, last, PassKind::backward});
            }
        } else {
            raise(out.forward, before + unit.forward, {i, last, PassKind::forward});
            if (!splits) {
                raise(out.backward, before + unit.backward, {i, last, PassKind::backward});
            }
            out.kept += all;
            out.largest = std::max(out.largest, unit.stored);
        }
        out.stored += all;
    }
    if (splits) set_split_figures(memory, chunk, out);
}

void consider(LivePeak& worst, const LivePeak& own, double others, double messages,
              const Instant& at) {
    if (own.bytes > 0.0 && others + own.bytes > worst.bytes) {
        worst = own;
        worst.bytes = others + own.bytes;
        worst.messages = messages;
        worst.at = &at;
    }
}

/// The live set of one instant unit by unit, where what is whole of the states differs from one to
/// the next.
class WindowWalk {
public:
    WindowWalk(const LayoutMemory& memory, const StateFigures& states, const StageOutline& outline,
               StageFigures& out)
        : memory_(memory), states_(states), outline_(outline), out_(out) {}

    void along(const Instant& instant, const ChunkFigures& own, double others, double messages) {
        const ChunkOutline& chunk = outline_.chunks[instant.chunk];
        const std::vector<UnitWindow>& windows = states_.windows.of[instant.chunk];
        const bool splits = outline_.splits;
        double stored = 0.0;
        double waiting = 0.0;
        std::size_t next = 0;
        for (std::size_t i = 0; i < chunk.size(); ++i) {
            const UnitProfile& unit = memory_.profile(chunk[i]);
            const bool head = chunk[i].unit == head_unit;
            for (std::int64_t at = 0; at < chunk[i].count; ++at, ++next) {
                const auto before = static_cast<double>(at);
                double beside = instant.pass == PassKind::weight
                                    ? waiting + before * unit.waiting_bytes
                                    : stored + before * unit.stored_bytes;
                if (splits && instant.pass == PassKind::backward) {
                    beside += own.waiting - waiting - (before + 1.0) * unit.waiting_bytes;
                }
                LivePeak& worst = head                                ? out_.loss
                                  : instant.pass == PassKind::forward ? out_.forward
                                                                      : out_.backward;
                for (const bool normed : {false, true}) {
                    LivePeak live;
                    live.normed = normed;
                    if (normed && (!splits || instant.pass != PassKind::backward)) continue;
                    live.pass = instant.pass;
                    raise(live, beside + live.of(unit, splits).bytes, {i, at, instant.pass});
                    if (next < windows.size()) add_window(instant, windows[next], live);
                    consider(worst, live, others, messages, instant);
                }
            }
            stored += static_cast<double>(chunk[i].count) * unit.stored_bytes;
            waiting += static_cast<double>(chunk[i].count) * unit.waiting_bytes;
        }
    }

private:
    void add_window(const Instant& instant, const UnitWindow& window, LivePeak& live) const {
        const StageWindows& all = states_.windows;
        const auto pass = static_cast<std::size_t>(instant.pass);
        double gradients = window.gradients[pass];
        // where weights wait, a backward pass has none of its own before it comes to a norm
        if (outline_.splits && instant.pass == PassKind::backward && !live.normed) {
            gradients = window.others;
        }
        if (instant.pass == PassKind::forward) {
            // of other micro-batches, between their loss and what follows
            const auto& chunks = outline_.chunks;
            for (std::size_t c = 0; c < chunks.size(); ++c) {
                const bool loses = !chunks[c].empty() && chunks[c].back().unit == head_unit;
                if (loses && instant.alive[c] > 0) gradients = std::max(gradients, all.after_loss);
            }
        }
        // and of those whose weights wait
        for (std::size_t c = 0; c < instant.unreduced.size(); ++c) {
            if (!instant.unreduced[c]) continue;
            if (c != instant.chunk) {
                gradients += all.gradients[c];
            } else if (instant.pass != PassKind::weight) {
                gradients = std::max(gradients, all.gradients[c]);
            }
        }
        live.gathered = states_.value_bytes * window.values[pass];
        live.gradients = states_.gradient_bytes * gradients;
        live.bytes += live.gathered + live.gradients;
    }

    const LayoutMemory& memory_;
    const StateFigures& states_;
    const StageOutline& outline_;
    StageFigures& out_;
};

} // namespace

StageFigures stage_figures(const MemoryInputs& in, const LayoutMemory& memory, std::size_t stage) {
    const TensorRules& rules = in.scenario.stack.tensors;
    const StageOutline& outline = memory.stage(stage);
    const StateFigures& states = memory.state(stage);
    std::vector<ChunkFigures>& groups = *memory.scratch;
    groups.resize(std::max(groups.size(), outline.groups.size()));
    StageFigures out;
    double largest = 0.0;
    for (std::size_t g = 0; g < outline.groups.size(); ++g) {
        set_chunk_figures(memory, outline.chunks[outline.groups[g]], outline.splits, groups[g]);
        out.stored += outline.in_flight_by_group[g] * groups[g].kept;
        largest = std::max(largest, groups[g].largest);
        out.alone = std::max(out.alone, groups[g].backward.bytes);
    }
    // The unit that runs and the next one must be on the device; passes written out by hand bring
    // a unit back when it runs, and none for the loss (executor/model/model.cpp). Where gradients
    // of weights wait, the fullest moment with activations away is a later one, with more that
    // waits: the larger figure stays.
    const bool alone = rules.buffers == PassBuffers::written && !outline.splits;
    out.offloadable = std::max(0.0, out.stored - (alone ? 1.0 : 2.0) * largest);
    out.offloadable_at_loss = alone ? out.stored : out.offloadable;
    WindowWalk windows(memory, states, outline, out);
    for (const Instant& instant : outline.instants) {
        const double messages = rules.posts_receives
                                    ? static_cast<double>(instant.to_come) * memory.units->residual
                                    : 0.0;
        double others = messages;
        for (std::size_t g = 0; g < outline.groups.size(); ++g) {
            others += instant.alive_by_group[g] * groups[g].stored;
        }
        for (std::size_t g = 0; g < instant.waiting_by_group.size(); ++g) {
            others += instant.waiting_by_group[g] * groups[g].waiting;
        }
        const ChunkFigures& own = groups[outline.group_of[instant.chunk]];
        if (!states.windows.of.empty()) {
            windows.along(instant, own, others, messages);
            continue;
        }
        if (instant.pass == PassKind::weight) {
            consider(out.backward, own.weight, others, messages, instant);
            continue;
        }
        const bool forward = instant.pass == PassKind::forward;
        consider(forward ? out.forward : out.backward, forward ? own.forward : own.backward, others,
                 messages, instant);
        consider(out.loss, own.loss, others, messages, instant);
    }
    if (memory.outline->stages.size() > 1 && !rules.posts_receives) {
        out.messages = static_cast<double>(rules.message_buffers) * memory.units->residual;
    }
    const bool gathers = rules.gather_buffer == GatherBuffer::everywhere ||
                         (rules.gather_buffer == GatherBuffer::head && outline.has_head);
    if (gathers && memory.sp) {
        out.buffer = memory.gathered_residual;
    }
    if (rules.score_buffer && memory.recompute != Recompute::full) {
        out.buffer += memory.units->scores;
    }
    if (outline.has_head && memory.micro_batches > 1 && rules.output_buffers > 0) {
        out.earlier_logits = static_cast<double>(rules.output_buffers) * memory.units->logits;
    }
    return out;
}

const StageFigures& cached_figures(const MemoryInputs& in, const LayoutMemory& memory,
                                   std::size_t stage, MemoryCache& cache) {
    if (!memory.state(stage).windows.of.empty()) {
        return cache.impl().of_windows = stage_figures(in, memory, stage);
    }
    const FiguresKey key{memory.units->number, memory.outline->number, stage, memory.recompute};
    const std::size_t hash =
        hash_mix(hash_mix(key.units, key.outline), stage * EnumNames<Recompute>::names.size() +
                                                       static_cast<std::size_t>(key.recompute));
    RecentTable<FiguresKey, StageFigures>& all = cache.impl().figures;
    const StageFigures* known = all.find(key, hash);
    if (known != nullptr) return *known;
    StageFigures& made = all.take(key, hash);
    made = stage_figures(in, memory, stage);
    return made;
}

namespace {

void add(BytesByKind& sum, const BytesByKind& other, double factor) {
    for (std::size_t i = 0; i < tensor_kind_count; ++i) {
        sum.amounts[i] += factor * other.amounts[i];
    }
}

} // namespace

void add_live_set(const LayoutMemory& memory, std::size_t stage, const LivePeak& peak,
                  BytesByKind& sum) {
    const StageOutline& outline = memory.stage(stage);
    const Instant& at = *peak.at;
    for (std::size_t g = 0; g < outline.groups.size(); ++g) {
        const double alive = at.alive_by_group[g];
        const double waiting = g < at.waiting_by_group.size() ? at.waiting_by_group[g] : 0.0;
        if (alive == 0.0 && waiting == 0.0) {
            continue;
        }
        for (const UnitCount& run : outline.chunks[outline.groups[g]]) {
            const UnitProfile& unit = memory.profile(run);
            add(sum, unit.stored, alive * static_cast<double>(run.count));
            add(sum, unit.waiting, waiting * static_cast<double>(run.count));
        }
    }
    const ChunkOutline& chunk = outline.chunks[at.chunk];
    const bool weighs = peak.pass == PassKind::weight;
    const bool leaves = peak.pass == PassKind::backward && outline.splits;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
        const UnitProfile& unit = memory.profile(chunk[i]);
        const auto count = static_cast<double>(chunk[i].count);
        const double before = i < peak.run ? count : i == peak.run ? peak.unit : 0.0;
        const double behind = i < peak.run ? 0.0 : i == peak.run ? count - before - 1.0 : count;
        if (before > 0.0) add(sum, weighs ? unit.waiting : unit.stored, before);
        if (leaves && behind > 0.0) add(sum, unit.waiting, behind);
    }
    const UnitProfile& unit = memory.profile(chunk[peak.run]);
    add(sum, peak.of(unit, outline.splits).parts, 1.0);
    sum[TensorKind::gathered_weights] += Bytes(peak.gathered);
    sum[TensorKind::gradients] += Bytes(peak.gradients);
    sum[TensorKind::messages] += Bytes(peak.messages);
}

} // namespace shardplan::sim
