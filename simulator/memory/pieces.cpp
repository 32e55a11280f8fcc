#include "simulator/memory/pieces.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/schedule/layout_schedule.hpp"

namespace shardplan::sim {

namespace {

void add_segments(const ShardDegrees& parts, const UnitElements& sum, Portion& portion) {
    if (sum.dense > 0.0) portion.segments.push_back({sum.dense, parts.dense, false});
    if (sum.expert > 0.0) portion.segments.push_back({sum.expert, parts.expert, true});
    if (sum.table > 0.0) portion.segments.push_back({sum.table, parts.dense, false});
}

} // namespace

StageUnits stage_units(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                       const Stage& stage, std::size_t number) {
    const Part& trunk = *trunk_of(model);
    const bool mirrored = layout.schedule == ScheduleKind::dual_pipe && layout.pp > 1;
    const bool apart = model.embedding.tied && layout.pp > 1 &&
                       (mirrored || stage.has_embedding != stage.has_head);
    // what a head without the embedding holds beside its norm is the table
    const double table = model.embedding.tied
                             ? head_on_rank(model, resolved, layout, false).trained() -
                                   head_on_rank(model, resolved, layout, true).trained()
                             : 0.0;
    StageUnits out;
    for (const Stage::Slice& slice : stage.chunks) {
        std::vector<UnitElements>& chunk = out.emplace_back();
        for (const KindCount& run : kinds_in(trunk, slice)) {
            const BlockKind& kind = model.block_kinds[static_cast<std::size_t>(run.kind)];
            const RankParameters p = block_on_rank(kind, trunk.hidden, resolved, layout);
            chunk.insert(chunk.end(), static_cast<std::size_t>(run.count),
                         {p.dense, 0.0, p.expert});
        }
    }
    // the way back of dualpipe begins on the last stage, in its last chunk
    const bool back = mirrored && number > 0;
    if (stage.has_embedding) {
        std::vector<UnitElements>& chunk = back ? out.back() : out.front();
        const double all = embedding_on_rank(model, resolved, layout).trained();
        chunk.insert(chunk.begin(), apart ? UnitElements{all - table, table} : UnitElements{all});
    }
    if (stage.has_head) {
        std::vector<UnitElements>& chunk = back ? out.front() : out.back();
        const double all = head_on_rank(model, resolved, layout, stage.has_embedding).trained();
        const bool holds = apart && !stage.has_embedding;
        chunk.push_back(holds ? UnitElements{all - table, table} : UnitElements{all});
    }
    return out;
}

double Segment::piece() const { return std::ceil(count / parts); }

double Segment::piece_here(std::int64_t thousandths) const {
    return piece() - std::floor(piece() * static_cast<double>(thousandths) /
                                static_cast<double>(offload_scale));
}

std::vector<Portion> portions_of(const Layout& layout, const StageUnits& units) {
    const ShardDegrees parts = layout.shard == Shard::none ? ShardDegrees{} : shard_degrees(layout);
    const bool by_unit =
        layout.shard == Shard::all && (parts.dense > 1.0 || layout.offload_parameters > 0);
    const auto wrapped = static_cast<std::size_t>(wrapped_units(layout.wrap));
    std::vector<Portion> out;
    UnitElements sum;
    const auto close = [&] {
        add_segments(parts, sum, out.emplace_back());
        sum = {};
    };
    for (const std::vector<UnitElements>& chunk : units) {
        for (std::size_t i = 0; i < chunk.size(); ++i) {
            sum.dense += chunk[i].dense;
            sum.table += chunk[i].table;
            sum.expert += chunk[i].expert;
            const bool full = wrapped > 0 && (i + 1) % wrapped == 0;
            if (by_unit && (full || i + 1 == chunk.size())) close();
        }
    }
    if (!by_unit) close();
    return out;
}

double split_elements(const Portion& portion) {
    double sum = 0.0;
    for (const Segment& segment : portion.segments) {
        if (segment.parts > 1.0) sum += segment.room();
    }
    return sum;
}

double largest_window(const std::vector<Portion>& portions, std::size_t ahead) {
    double most = 0.0;
    for (std::size_t first = 0; first < portions.size(); ++first) {
        double sum = 0.0;
        for (std::size_t i = first; i < std::min(portions.size(), first + ahead + 1); ++i) {
            sum += split_elements(portions[i]);
        }
        most = std::max(most, sum);
    }
    return most;
}

} // namespace shardplan::sim
