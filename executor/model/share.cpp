#include "executor/model/share.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "executor/comm/layout_groups.hpp"
#include "simulator/schedule/pipeline_order.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;

PartOf place_in(const sim::Layout& layout, sim::Group group, Index rank) {
    const std::vector<int> members = group_members(layout, group, static_cast<int>(rank));
    const auto at = std::find(members.begin(), members.end(), static_cast<int>(rank));
    return {at - members.begin(), static_cast<Index>(members.size())};
}

/// `what` of the model, by the path of its field, has to be a multiple of the degree.
sim::Status divides(Index degree, const char* name, Index count, const char* path) {
    if (degree <= 1 || count % degree == 0) return sim::Done{};
    return Error{ErrorCode::bad_input, "layout",
                 std::string(name) + std::to_string(degree) + " does not divide " + path + " = " +
                     std::to_string(count),
                 "use a degree of " + std::string(name).substr(0, std::string(name).find(" =")) +
                     " that divides it"};
}

sim::Status check_degrees(const sim::ModelSpec& model, const sim::Layout& layout) {
    for (const sim::BlockKind& kind : model.block_kinds) {
        const sim::Ffn& f = kind.ffn;
        const bool routed = f.kind == sim::FfnKind::moe;
        const Index keys = key_heads(kind.attention);
        const std::pair<Index, const char*> by_tp[] = {
            {kind.attention.heads, "attention/heads"},
            {layout.tp % keys == 0 ? 0 : keys, "attention/kv_heads"},
            {routed ? 0 : f.width, "ffn/width"},
            {routed ? f.shared_width : 0, "ffn/shared_width"},
        };
        for (const auto& [count, path] : by_tp) {
            if (auto s = divides(layout.tp, "tp", count, path); !s) return s;
        }
        if (layout.cp > 1 && layout.cp_kind == sim::CpKind::all_to_all) {
            const Index ranks = Index{layout.tp} * layout.cp;
            const char* name = "tp x cp:a2a = ";
            if (auto s = divides(ranks, name, by_tp[0].first, by_tp[0].second); !s) return s;
            // neighbours with the same head, or heads of their own
            const Index spread = ranks % keys == 0 ? 0 : keys;
            if (auto s = divides(ranks, name, spread, "attention/kv_heads"); !s) return s;
        }
        if (!routed) continue;
        if (auto s = divides(layout.ep, "ep", f.experts, "ffn/experts"); !s) return s;
        if (auto s = divides(sim::etp_of(layout), "etp", f.expert_width, "ffn/expert_width"); !s) {
            return s;
        }
        const Index ranks = Index{layout.tp} * layout.cp * layout.dp;
        const Index holders = Index{layout.ep} * sim::etp_of(layout);
        if (auto s = divides(holders, "ep x etp = ", ranks, "tp x cp x dp"); !s) return s;
    }
    return sim::Done{};
}

/// The chunks of a stage; ends lie where the first and the last micro-batch begin and end.
std::vector<ChunkShare> chunks_of(const sim::ModelSpec& model, const sim::Layout& layout,
                                  const sim::LayoutTables& tables, Index stage) {
    const std::vector<sim::Stage> stages = sim::stages_of(model, layout, tables);
    const sim::Stage& own = stages[static_cast<std::size_t>(stage)];
    std::vector<ChunkShare> chunks;
    for (const sim::Stage::Slice& slice : own.chunks) {
        chunks.push_back({slice.first, slice.count});
    }
    const sim::PipelineShape shape{layout.schedule, static_cast<std::int32_t>(stages.size()),
                                   static_cast<std::int32_t>(chunks.size()), 2};
    for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
        const std::vector<sim::Position> way = sim::way_of(shape, m);
        for (const sim::Position& at : way) {
            if (at.stage != stage) continue;
            ChunkShare& chunk = chunks[static_cast<std::size_t>(at.chunk)];
            chunk.embeds = chunk.embeds || at == way.front();
            chunk.has_head = chunk.has_head || at == way.back();
        }
    }
    return chunks;
}

} // namespace

PartOf key_part(PartOf tp, Index kv_heads) {
    if (kv_heads >= tp.parts) return tp;
    return {tp.part * kv_heads / tp.parts, kv_heads};
}

Index key_heads(const sim::Attention& attention) {
    return attention.kind == sim::AttentionKind::mla ? attention.heads : attention.kv_heads;
}

RankShare whole_model(const sim::ModelSpec& model) {
    RankShare share;
    share.chunks = {{0, sim::block_count(*sim::trunk_of(model)), true, true}};
    return share;
}

sim::Result<RankShare> share_of(const sim::ModelSpec& model, const sim::Layout& layout,
                                const sim::LayoutTables& tables, Index rank) {
    if (auto status = check_degrees(model, layout); !status) return std::move(status).error();
    RankShare share;
    share.rank = rank;
    share.stage = sim::coordinates_of(layout, rank).pp;
    share.stages = layout.pp;
    share.tp = place_in(layout, sim::Group::tp, rank);
    share.cp = place_in(layout, sim::Group::cp, rank);
    share.ep = place_in(layout, sim::Group::ep, rank);
    share.etp = place_in(layout, sim::Group::etp, rank);
    share.dp = place_in(layout, sim::Group::dp, rank);
    share.sp = layout.sp && layout.tp > 1;
    share.cp_kind = layout.cp_kind;
    share.chunks = chunks_of(model, layout, tables, share.stage);
    share.mirrored = layout.schedule == sim::ScheduleKind::dual_pipe && layout.pp > 1;
    bool embeds = false;
    bool has_head = false;
    for (const ChunkShare& chunk : share.chunks) {
        embeds = embeds || chunk.embeds;
        has_head = has_head || chunk.has_head;
    }
    share.table_on_two_stages = model.embedding.tied && layout.pp > 1 && embeds != has_head;
    return share;
}

} // namespace shardplan::exec
