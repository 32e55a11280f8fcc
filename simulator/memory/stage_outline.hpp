#pragma once

#include <cstdint>
#include <vector>

#include "simulator/schedule/pipeline_order.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/few_of.hpp"

/// Private to simulator/memory: what the stages of a pipeline run and when, before anything is
/// sharded.
namespace shardplan::sim {

/// Units beside the block kinds of the model.
inline constexpr std::int64_t embedding_unit = -1;
inline constexpr std::int64_t head_unit = -2;

/// Equal units in a row. `planned`: the layout's recompute plan applies; false: they are kept.
struct UnitCount {
    std::int64_t unit = 0; ///< block kind, embedding_unit or head_unit
    std::int64_t count = 0;
    bool planned = false;

    friend bool operator==(const UnitCount&, const UnitCount&) = default;
};
/// The units of one chunk in forward order.
using ChunkOutline = std::vector<UnitCount>;

/// An instant at which the live set of a stage may be at its largest: a pass of one chunk, and the
/// micro-batches alive besides the one that runs. Chunks that run the same units form a group; what
/// they hold is counted together.
struct Instant {
    PassKind pass = PassKind::forward;
    std::size_t chunk = 0;
    std::vector<std::int32_t> alive; ///< by chunk
    FewOf<double, 3> alive_by_group; ///< read for every layout
    /// Micro-batches whose gradients of weights wait for a pass of their own; none where there are
    /// no such passes.
    std::vector<std::int32_t> waiting;
    FewOf<double, 3> waiting_by_group;
    /// By chunk: a backward pass has left gradients of norms since the last such pass.
    std::vector<bool> unreduced;
    std::int64_t to_come = 0; ///< messages that the step still brings, as far as they are counted
};

/// One stage.
struct StageOutline {
    std::vector<ChunkOutline> chunks;
    bool has_embedding = false;
    bool has_head = false;
    bool splits = false;                 ///< gradients of weights are passes of their own
    std::vector<std::size_t> group_of;   ///< by chunk
    std::vector<std::size_t> groups;     ///< by group: its first chunk
    std::vector<Instant> instants;       ///< no other instant of the stage has more of everything
    std::vector<std::int64_t> in_flight; ///< by chunk: most micro-batches alive at once
    std::vector<double> in_flight_by_group;
    std::size_t structure = 0; ///< equal for stages that run the same
    /// A stage before this one that runs the same and never has less alive, or this one.
    std::size_t dominated_by = 0;
};

struct PipelineOutline {
    std::vector<StageOutline> stages;
    std::vector<std::size_t> leading;    ///< stages that no other dominates
    std::vector<std::size_t> structures; ///< by structure: its first stage
    std::uint64_t number = 0;            ///< of its own where a cache holds it
};

/// The outline of a layout. `micro_batches`: representative. `recomputed_layers`: of every stage; 0
/// = the plan applies to all. `counted_messages`: those to come, of which no more are counted.
PipelineOutline outline_of(const ModelSpec& model, const Layout& layout,
                           const std::vector<Stage>& stages, std::int64_t micro_batches,
                           std::int64_t recomputed_layers, std::int64_t counted_messages);

} // namespace shardplan::sim
