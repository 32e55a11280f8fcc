#include "simulator/schedule/layout_schedule.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace shardplan::sim {

namespace {

/// The units of every chunk, found or added among the kinds.
class UnitLists {
public:
    UnitLists(const ModelSpec& model, const RecomputePlan& plan, std::vector<PlannedUnit>& kinds)
        : model_(model), plan_(plan), kinds_(kinds) {}

    std::vector<std::uint16_t> of(const PipelineShape& shape, const Stage& stage, Position at) {
        std::vector<std::uint16_t> out;
        const auto blocks = static_cast<std::int64_t>(model_.block_kinds.size());
        const std::size_t step = step_on_way(shape, at);
        if (step == 0) out.push_back(kind({blocks, false}));
        const Stage::Slice& slice = stage.chunks[static_cast<std::size_t>(at.chunk)];
        std::int64_t planned = plan_.kind == Recompute::none ? 0 : slice.count;
        if (plan_.kind == Recompute::full && plan_.layers_per_stage > 0) {
            // k blocks of the stage, spread over its chunks from the first on
            const std::int64_t k = plan_.layers_per_stage;
            const auto chunks = static_cast<std::int64_t>(stage.chunks.size());
            planned = std::min(planned, k / chunks + (at.chunk < k % chunks ? 1 : 0));
        }
        for (const KindCount& run : kinds_in(*trunk_of(model_), slice)) {
            for (std::int64_t i = 0; i < run.count; ++i) {
                out.push_back(kind({run.kind, planned > 0}));
                --planned;
            }
        }
        if (step + 1 == way_length(shape)) {
            add_prediction_modules(blocks, out);
            out.push_back(kind({blocks + 1, false}));
        }
        return out;
    }

private:
    /// Each a block, recomputed where blocks are, and what joins it to the trunk.
    void add_prediction_modules(std::int64_t blocks, std::vector<std::uint16_t>& out) {
        for (const Part& part : model_.parts) {
            if (part.role != PartRole::mtp) continue;
            for (const Run& run : part.runs) {
                for (std::int64_t i = 0; i < run.count; ++i) {
                    out.push_back(kind({run.kind, plan_.kind != Recompute::none}));
                    out.push_back(kind({blocks + 2, false}));
                }
            }
        }
    }

    std::uint16_t kind(const PlannedUnit& unit) {
        const auto it = std::find(kinds_.begin(), kinds_.end(), unit);
        const auto at = static_cast<std::uint16_t>(it - kinds_.begin());
        if (it == kinds_.end()) kinds_.push_back(unit);
        return at;
    }

    const ModelSpec& model_;
    RecomputePlan plan_;
    std::vector<PlannedUnit>& kinds_;
};

} // namespace

LayoutUnits layout_units(const ModelSpec& model, const RecomputePlan& plan,
                         const PipelineShape& shape, const std::vector<Stage>& stages) {
    LayoutUnits out;
    UnitLists lists(model, plan, out.kinds);
    for (std::int32_t s = 0; s < shape.stages; ++s) {
        auto& chunks = out.of.emplace_back();
        for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
            chunks.push_back(lists.of(shape, stages[static_cast<std::size_t>(s)], {s, chunk}));
        }
    }
    return out;
}

PipelineShape pipeline_shape(const Layout& layout, std::int64_t micro_batches) {
    return {layout.schedule, layout.pp, std::max<std::int32_t>(1, layout.chunks),
            static_cast<std::int32_t>(micro_batches)};
}

ScheduleInput executed_input(const ModelSpec& model, const Layout& layout,
                             const LayoutTables& tables, std::int64_t micro_batches,
                             const PassLengths& lengths) {
    ScheduleInput in;
    in.shape = pipeline_shape(layout, micro_batches);
    in.lengths = lengths;
    LayoutUnits units = layout_units(model, tables.recompute(layout.recompute), in.shape,
                                     stages_of(model, layout, tables));
    in.unit_kinds.resize(units.kinds.size());
    in.units = std::move(units.of);
    in.messages_block = false;
    in.messages_under = true;
    const bool shared = std::int64_t{layout.dp} * layout.cp > 1;
    DataParallelPlan& dp = in.data_parallel;
    // parameters off the device come back unit by unit, also to a rank that shares them with nobody
    dp.units = layout.shard == Shard::all && (shared || layout.offload_parameters > 0);
    dp.gather_again = dp.units && layout.reshard;
    dp.prefetch = layout.prefetch;
    dp.wrapped = wrapped_units(layout.wrap);
    dp.every_micro_batch = shared && layout.shard == Shard::optimizer_gradients;
    // every unit's gradients are dropped as soon as they are reduced
    if (dp.every_micro_batch) dp.buckets = std::numeric_limits<std::uint16_t>::max();
    dp.reduce_under = dp.every_micro_batch;
    dp.reduce_waits = shared && !dp.every_micro_batch;
    dp.gather_under = dp.units && layout.prefetch > 0;
    dp.gather_waits = dp.units ? layout.prefetch == 0 : shared && layout.shard != Shard::none;
    // copies of the shards, of the tied table and of mirrored stages
    const bool copies = shared && layout.shard_group != 0 &&
                        shard_ranks(layout) < std::int64_t{layout.dp} * layout.cp;
    const bool twice = layout.pp > 1 && (model.embedding.tied || is_mirrored(layout));
    dp.replicas = (copies && layout.shard != Shard::none) || twice;
    return in;
}

} // namespace shardplan::sim
