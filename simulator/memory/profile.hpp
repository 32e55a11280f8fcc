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
    std::int32_t op = -1; ///< operator at which it happens
    double held = 0.0;    ///< of `bytes`: gradient of the residual stream

    friend bool operator==(const UnitPeak&, const UnitPeak&) = default;
};

/// What one unit (a block, the embedding, the head) holds on one rank for one micro-batch.
struct UnitProfile {
    OpList ops;                ///< only where explain needs them
    BytesByKind stored;        ///< from forward to backward, after recomputation
    UnitPeak forward;          ///< from an empty unit to its end; includes what it stores
    UnitPeak backward;         ///< includes what it stored, and what it computes again
    double stored_bytes = 0.0; ///< of `stored`
    double input_bytes = 0.0;  ///< of the residual stream on this rank
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
/// `held`: bytes of the residual-stream gradient that is alive all along the backward pass. `ops`
/// of the result is left empty.
UnitProfile profile_unit(const OpList& ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held);

} // namespace shardplan::sim
