#pragma once

#include <cstdint>
#include <vector>

#include "simulator/compute/op_list.hpp"
#include "simulator/estimate/kinds.hpp"

namespace shardplan::sim {

/// The highest live bytes of a pass through one unit, beyond what was alive before it.
struct UnitPeak {
    double bytes = 0.0;
    BytesByKind parts;    ///< adds up to `bytes`
    std::int32_t op = -1;    ///< operator at which it happens
    std::int32_t run = -1;   ///< unit run of the chunk
    std::int32_t chunk = -1; ///< chunk of the stage
    bool in_backward = false;
    double held = 0.0; ///< of `bytes`: gradient of the residual stream

    friend bool operator==(const UnitPeak&, const UnitPeak&) = default;
};

/// What one unit (a block, the embedding, the head) holds on one rank for one micro-batch.
struct UnitProfile {
    OpList ops;
    BytesByKind stored;  ///< from forward to backward, after recomputation
    UnitPeak forward;    ///< from an empty unit to its end; includes what it stores
    UnitPeak backward;   ///< includes what it stored, and what it computes again
    double input_bytes = 0.0; ///< of the residual stream on this rank

    [[nodiscard]] double stored_bytes() const { return stored.total().value(); }
};

/// When a stored tensor is looked at.
enum class Held : std::uint8_t {
    without_recomputation,
    between_passes, ///< under selective recomputation, from forward to backward
    rebuilt,        ///< under selective recomputation, once the unit is back
};
/// Is the tensor alive then?
bool is_held(const StoredTensor& tensor, Held when);

/// Walks the operators once forward and once backward, in the way `recompute` says.
/// `held`: bytes of the residual-stream gradient that is alive all along the backward pass.
UnitProfile profile_unit(OpList ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held);

/// `count` equal units in a row.
struct UnitRun {
    const UnitProfile* unit = nullptr;
    std::int64_t count = 0;
    bool head = false; ///< its passes count as Phase::loss
    Recompute recompute = Recompute::none;
};

/// What one chunk of a stage holds per micro-batch, and its peaks beyond what was alive before.
struct ChunkProfile {
    BytesByKind stored;
    UnitPeak forward;
    UnitPeak loss; ///< both passes of the head; empty where there is none
    UnitPeak backward;
    double stored_bytes = 0.0;
};
ChunkProfile profile_chunk(const std::vector<UnitRun>& units);

/// The worst instants of a stage over the passes of its schedule.
struct LiveSet {
    UnitPeak forward;
    UnitPeak loss;
    UnitPeak backward;
    /// Per chunk: micro-batches alive besides the one of the peak.
    std::vector<std::int64_t> alive_at_forward, alive_at_loss, alive_at_backward;
    std::vector<std::int64_t> in_flight; ///< per chunk: most micro-batches alive at once

    friend bool operator==(const LiveSet&, const LiveSet&) = default;
};
LiveSet replay(const std::vector<ChunkProfile>& chunks, ScheduleKind schedule, std::int64_t pp,
               std::int64_t stage, std::int64_t micro_batches);

} // namespace shardplan::sim
