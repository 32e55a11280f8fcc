#pragma once

#include <cstdint>
#include <vector>

#include "simulator/schedule/schedule.hpp"
#include "simulator/spec/model.hpp"
#include "simulator/spec/placement.hpp"

namespace shardplan::sim {

/// A unit of a chunk: block kinds by number, then the embedding, the head, and what joins a
/// prediction module to the trunk.
struct PlannedUnit {
    std::int64_t unit = 0;
    bool recomputed = false; ///< the recompute plan applies to it

    friend bool operator==(const PlannedUnit&, const PlannedUnit&) = default;
};

/// The units of all chunks of a layout.
struct LayoutUnits {
    std::vector<PlannedUnit> kinds; ///< every kind once, in the order met
    /// By stage, then chunk: index into `kinds` of every unit in forward order. Where a micro-batch
    /// begins a chunk starts with the embedding, where it ends with the head.
    std::vector<std::vector<std::vector<std::uint16_t>>> of;
};
LayoutUnits layout_units(const ModelSpec& model, const RecomputePlan& plan,
                         const PipelineShape& shape, const std::vector<Stage>& stages);

/// The pipeline of a layout; `micro_batches` of each data-parallel rank in a step.
PipelineShape pipeline_shape(const Layout& layout, std::int64_t micro_batches);

/// Whether two stages hold the same parameters, as both directions of DualPipe pass through each.
constexpr bool is_mirrored(const Layout& layout) {
    return layout.pp > 1 && layout.schedule == ScheduleKind::dual_pipe && layout.chunks == 2;
}

/// Whether the stage with the token table has the head as well.
constexpr bool has_both_ends(const Layout& layout) {
    const bool turns_round = layout.schedule == ScheduleKind::zb_v && layout.chunks == 2;
    return layout.pp == 1 || is_mirrored(layout) || turns_round;
}

/// Units that one wrap unit holds; 0: all of a chunk.
constexpr std::int32_t wrapped_units(WrapUnit wrap) {
    switch (wrap) {
        case WrapUnit::block:
            return 1;
        case WrapUnit::two_blocks:
            return 2;
        case WrapUnit::four_blocks:
            return 4;
        case WrapUnit::model:
            break;
    }
    return 0;
}

/// A step as a program runs it that does one thing at a time beside its messages: one task for each
/// unit of a pass, communication inside of units not told apart; messages run beside compute;
/// gradients are reduced after the last pass, with zero2 after every micro-batch's, with zero3 unit
/// by unit; parameters are gathered unit by unit with zero3, after the update with zero1 and zero2.
/// The executor runs what `make_schedule` makes of it.
ScheduleInput executed_input(const ModelSpec& model, const Layout& layout,
                             const LayoutTables& tables, std::int64_t micro_batches,
                             const PassLengths& lengths = {});

} // namespace shardplan::sim
