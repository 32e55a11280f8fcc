#include "simulator/memory/stage_outline.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "simulator/schedule/pass_order.hpp"
#include "simulator/schedule/pipeline_order.hpp"

namespace shardplan::sim {

namespace {

/// Multi-token prediction: each module is a block with a head of its own.
void add_prediction_modules(const ModelSpec& model, ChunkOutline& out) {
    for (const Part& part : model.parts) {
        if (part.role != PartRole::mtp) {
            continue;
        }
        for (const Run& run : part.runs) {
            out.push_back({run.kind, run.count, true});
            out.push_back({head_unit, run.count, false});
        }
    }
}

/// `at`: which stage and chunk that is.
ChunkOutline chunk_outline(const ModelSpec& model, const Stage& stage, const PipelineShape& shape,
                           const Position& at, std::int64_t recomputed_layers) {
    ChunkOutline out;
    const auto chunk = static_cast<std::size_t>(at.chunk);
    const std::size_t step = step_on_way(shape, at);
    if (stage.has_embedding && step == 0) {
        out.push_back({embedding_unit, 1, false});
    }
    const auto chunks = static_cast<std::int64_t>(stage.chunks.size());
    std::int64_t planned = stage.chunks[chunk].count;
    if (recomputed_layers > 0) {
        // k blocks of the stage, spread over its chunks from the first on
        const auto c = static_cast<std::int64_t>(chunk);
        planned = std::min(planned,
                           recomputed_layers / chunks + (c < recomputed_layers % chunks ? 1 : 0));
    }
    for (const KindCount& run : kinds_in(*trunk_of(model), stage.chunks[chunk])) {
        const std::int64_t first = std::min(run.count, planned);
        planned -= first;
        if (first > 0) {
            out.push_back({run.kind, first, true});
        }
        if (run.count > first) {
            out.push_back({run.kind, run.count - first, false});
        }
    }
    if (stage.has_head && step + 1 == way_length(shape)) {
        add_prediction_modules(model, out);
        out.push_back({head_unit, 1, false});
    }
    return out;
}

void group_chunks(StageOutline& out) {
    for (std::size_t c = 0; c < out.chunks.size(); ++c) {
        std::size_t group = 0;
        while (group < out.groups.size() && !(out.chunks[out.groups[group]] == out.chunks[c])) {
            ++group;
        }
        if (group == out.groups.size()) {
            out.groups.push_back(c);
        }
        out.group_of.push_back(group);
    }
}

bool covers(const FewOf<double, 3>& a, const FewOf<double, 3>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i] < b[i]) {
            return false;
        }
    }
    return true;
}

/// Same kind of pass over the same units, and never less alive, waiting or to come.
bool covers(const StageOutline& stage, const Instant& a, const Instant& b) {
    for (std::size_t c = 0; c < b.unreduced.size(); ++c) {
        if (b.unreduced[c] && !a.unreduced[c]) return false;
    }
    return a.pass == b.pass && stage.group_of[a.chunk] == stage.group_of[b.chunk] &&
           a.to_come >= b.to_come && covers(a.alive_by_group, b.alive_by_group) &&
           covers(a.waiting_by_group, b.waiting_by_group);
}

/// Keeps the instants that no other one covers, the first of equals.
void offer(StageOutline& stage, const Instant& instant) {
    for (const Instant& known : stage.instants) {
        if (covers(stage, known, instant)) {
            return;
        }
    }
    std::vector<Instant>& all = stage.instants;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (covers(stage, instant, all[i])) continue;
        if (kept < i) std::swap(all[kept], all[i]);
        ++kept;
    }
    if (kept == all.size()) {
        all.push_back(instant);
        return;
    }
    all[kept] = instant; // in memory of one that it covers
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(kept) + 1, all.end());
}

/// Of a pass: does a message from another stage bring what it begins with?
bool begins_with_message(const PipelineShape& shape, const Position& at, bool forward) {
    // of dualpipe's two directions each has the chunk of its number
    const std::vector<Position> way =
        way_of(shape, visits_of(shape.kind, shape.chunks) == shape.chunks || at.chunk == 0
                          ? 0
                          : shape.micro_batches - 1);
    const std::size_t step = step_on_way(shape, at);
    if (forward) return step > 0 && way[step - 1].stage != at.stage;
    return step + 1 < way.size() && way[step + 1].stage != at.stage;
}

/// One chunk, whole backward passes: the first forward passes fill the pipeline, then one
/// micro-batch takes the place of another.
void walk_single_chunk(const Layout& layout, std::size_t index, std::int64_t micro_batches,
                       std::int64_t counted_messages, StageOutline& out) {
    const std::int64_t after = std::int64_t{layout.pp} - static_cast<std::int64_t>(index) - 1;
    const std::int64_t warm_up = layout.schedule == ScheduleKind::gpipe ? micro_batches : after;
    const std::int64_t alive = std::max<std::int64_t>(std::min(warm_up, micro_batches - 1), 0);
    out.in_flight = {alive + 1};
    for (const bool forward : {true, false}) {
        Instant instant;
        instant.pass = forward ? PassKind::forward : PassKind::backward;
        instant.alive = {static_cast<std::int32_t>(alive)};
        instant.alive_by_group.push_back(static_cast<double>(alive));
        // of the first such instant
        const std::int64_t from_before = index > 0 ? micro_batches - 1 - alive : 0;
        const std::int64_t from_behind = after > 0 ? micro_batches - (forward ? 0 : 1) : 0;
        instant.to_come = std::min(counted_messages, from_before + from_behind);
        out.instants.push_back(std::move(instant));
    }
}

/// Follows the passes of a stage.
class Walk {
public:
    Walk(StageOutline& out, const PipelineShape& shape, std::int32_t stage,
         std::int64_t counted_messages)
        : out_(out), counted_messages_(counted_messages) {
        const std::size_t chunks = out.chunks.size();
        out.in_flight.assign(chunks, 0);
        now_.alive.assign(chunks, 0);
        for (std::size_t group = 0; group < out.groups.size(); ++group)
            now_.alive_by_group.push_back(0.0);
        if (out.splits) {
            now_.waiting.assign(chunks, 0);
            now_.waiting_by_group = now_.alive_by_group;
            now_.unreduced.assign(chunks, false);
        }
        if (counted_messages == 0) return;
        for (std::size_t c = 0; c < chunks; ++c) {
            const Position at{stage, static_cast<std::int32_t>(c)};
            for (const bool forward : {true, false})
                brought_.push_back(begins_with_message(shape, at, forward));
        }
    }

    /// All passes are announced before the first is visited.
    void announce(PassKind pass, std::size_t chunk) { to_come_ += brought(pass, chunk); }

    void visit(PassKind pass, std::size_t chunk) {
        now_.chunk = chunk;
        now_.pass = pass;
        to_come_ -= brought(pass, chunk);
        now_.to_come = std::min(counted_messages_, to_come_);
        if (pass == PassKind::backward) add(now_.alive, now_.alive_by_group, -1);
        if (pass == PassKind::weight) add(now_.waiting, now_.waiting_by_group, -1);
        offer(out_, now_);
        if (pass == PassKind::backward && out_.splits) {
            add(now_.waiting, now_.waiting_by_group, 1);
            now_.unreduced[chunk] = true;
        }
        if (pass == PassKind::weight) now_.unreduced[chunk] = false;
        if (pass != PassKind::forward) return;
        add(now_.alive, now_.alive_by_group, 1);
        out_.in_flight[chunk] = std::max<std::int64_t>(out_.in_flight[chunk], now_.alive[chunk]);
    }

private:
    void add(std::vector<std::int32_t>& by_chunk, FewOf<double, 3>& by_group, std::int32_t count) {
        by_chunk[now_.chunk] += count;
        by_group[out_.group_of[now_.chunk]] += count;
    }
    [[nodiscard]] std::int64_t brought(PassKind pass, std::size_t chunk) const {
        if (pass == PassKind::weight || counted_messages_ == 0) return 0;
        return brought_[2 * chunk + (pass == PassKind::forward ? 0 : 1)] ? 1 : 0;
    }

    StageOutline& out_;
    std::int64_t counted_messages_ = 0;
    Instant now_;
    std::vector<bool> brought_; ///< by chunk and direction: begins with a message
    std::int64_t to_come_ = 0;
};

/// The passes of all stages: the lists that all have in common, or one list each.
struct Passes {
    PassLists lists;
    std::vector<std::vector<ScheduledPass>> own;
};

Passes passes_of(const Layout& layout, const PipelineShape& shape) {
    Passes out;
    if (splits_backward(shape.kind)) {
        out.own = pipeline_order(shape);
    } else if (shape.chunks > 1) {
        out.lists = pass_lists(layout.pp, shape.chunks, shape.micro_batches);
    }
    return out;
}

void walk_passes(const Passes& passes, const PipelineShape& shape, std::size_t index,
                 std::int64_t counted_messages, StageOutline& out) {
    Walk walk(out, shape, static_cast<std::int32_t>(index), counted_messages);
    if (!passes.own.empty()) {
        for (const ScheduledPass& pass : passes.own[index])
            walk.announce(pass.kind, static_cast<std::size_t>(pass.chunk));
        for (const ScheduledPass& pass : passes.own[index])
            walk.visit(pass.kind, static_cast<std::size_t>(pass.chunk));
        return;
    }
    for (const std::vector<Pass>* list : {&passes.lists.forward, &passes.lists.backward}) {
        if (counted_messages == 0) break;
        for (const Pass& pass : *list) {
            walk.announce(pass.forward ? PassKind::forward : PassKind::backward,
                          static_cast<std::size_t>(pass.chunk));
        }
    }
    const std::int64_t ahead =
        warm_up_passes(shape.kind, shape.stages, static_cast<std::int64_t>(index),
                       static_cast<std::int64_t>(out.chunks.size()), shape.micro_batches);
    for_each_pass(passes.lists, ahead, [&](const Pass& pass) {
        walk.visit(pass.forward ? PassKind::forward : PassKind::backward,
                   static_cast<std::size_t>(pass.chunk));
    });
}

bool runs_the_same(const StageOutline& a, const StageOutline& b) {
    return a.has_embedding == b.has_embedding && a.has_head == b.has_head && a.chunks == b.chunks;
}

/// Does every instant of `b` have one of `a` with no less alive, absolutely and relative to what is
/// in flight at most? Then nothing derived from the live set is larger on `b`.
bool dominates(const StageOutline& a, const StageOutline& b) {
    return std::all_of(b.instants.begin(), b.instants.end(), [&](const Instant& worse) {
        return std::any_of(a.instants.begin(), a.instants.end(), [&](const Instant& better) {
            if (!covers(a, better, worse)) {
                return false;
            }
            for (std::size_t g = 0; g < a.groups.size(); ++g) {
                const double rest_a = better.alive_by_group[g] - a.in_flight_by_group[g];
                const double rest_b = worse.alive_by_group[g] - b.in_flight_by_group[g];
                if (rest_a < rest_b) {
                    return false;
                }
            }
            return true;
        });
    });
}

/// Sets structure and dominated_by of the last stage.
void compare_with_earlier(PipelineOutline& out) {
    const std::size_t last = out.stages.size() - 1;
    StageOutline& stage = out.stages[last];
    stage.dominated_by = last;
    stage.structure = 0;
    while (stage.structure < out.structures.size() &&
           !runs_the_same(out.stages[out.structures[stage.structure]], stage)) {
        ++stage.structure;
    }
    if (stage.structure == out.structures.size()) {
        out.structures.push_back(last);
    }
    for (const std::size_t leader : out.leading) {
        if (out.stages[leader].structure == stage.structure &&
            dominates(out.stages[leader], stage)) {
            stage.dominated_by = leader;
            return;
        }
    }
    out.leading.push_back(last);
}

} // namespace

PipelineOutline outline_of(const ModelSpec& model, const Layout& layout,
                           const std::vector<Stage>& stages, std::int64_t micro_batches,
                           std::int64_t recomputed_layers, std::int64_t counted_messages) {
    PipelineOutline out;
    out.stages.reserve(stages.size());
    const std::int64_t chunks =
        stages.empty() ? 1 : static_cast<std::int64_t>(stages.front().chunks.size());
    const PipelineShape shape{layout.schedule, layout.pp, static_cast<std::int32_t>(chunks),
                              static_cast<std::int32_t>(micro_batches)};
    const Passes passes = passes_of(layout, shape);
    for (std::size_t i = 0; i < stages.size(); ++i) {
        StageOutline stage;
        stage.has_embedding = stages[i].has_embedding;
        stage.has_head = stages[i].has_head;
        for (std::size_t c = 0; c < stages[i].chunks.size(); ++c) {
            const Position at{static_cast<std::int32_t>(i), static_cast<std::int32_t>(c)};
            stage.chunks.push_back(chunk_outline(model, stages[i], shape, at, recomputed_layers));
        }
        group_chunks(stage);
        stage.splits = splits_backward(shape.kind);
        if (stage.chunks.size() == 1 && !stage.splits) {
            walk_single_chunk(layout, i, micro_batches, counted_messages, stage);
        } else {
            walk_passes(passes, shape, i, counted_messages, stage);
        }
        stage.instants.shrink_to_fit(); // many outlines are kept
        stage.in_flight_by_group.assign(stage.groups.size(), 0.0);
        for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
            stage.in_flight_by_group[stage.group_of[c]] += static_cast<double>(stage.in_flight[c]);
        }
        out.stages.push_back(std::move(stage));
        compare_with_earlier(out);
    }
    return out;
}

} // namespace shardplan::sim
