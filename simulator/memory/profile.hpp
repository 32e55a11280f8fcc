#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/compute/op_list.hpp"
#include "simulator/estimate/kinds.hpp"
#include "simulator/schedule/pipeline_order.hpp"

namespace shardplan::sim {

/// The highest live bytes of a pass through one unit, beyond what was alive before it.
struct UnitPeak {
    double bytes = 0.0;
    BytesByKind parts;    ///< adds up to `bytes`
    std::int32_t op = -1; ///< operator at which it happens
    double held = 0.0;    ///< of `bytes`: gradient of the residual stream
    bool again = false;   ///< while the unit is computed again

    friend bool operator==(const UnitPeak&, const UnitPeak&) = default;
};

/// What one unit (a block, the embedding, the head) holds on one rank for one micro-batch.
struct UnitProfile {
    OpList ops;         ///< only where explain needs them
    BytesByKind stored; ///< from forward to backward, after recomputation
    UnitPeak forward;   ///< from an empty unit to its end; includes what it stores
    UnitPeak backward;  ///< includes what it stored, and what it computes again
    /// Of passes that leave gradients of weights for later: what a backward pass then holds, what
    /// is left waiting, and the pass that makes up for it, which includes what waited.
    UnitPeak input;
    UnitPeak normed; ///< the same from the first norm that has a gradient on
    UnitPeak weight;
    BytesByKind waiting;
    double stored_bytes = 0.0;  ///< of `stored`
    double input_bytes = 0.0;   ///< of the residual stream on this rank
    double logits = 0.0;        ///< bytes that the loss of the head keeps
    double waiting_bytes = 0.0; ///< of `waiting`

    /// `splits`: gradients of weights are passes of their own. Where the stack has no such passes
    /// nothing waits.
    [[nodiscard]] const UnitPeak& peak(PassKind pass, bool splits) const {
        if (pass == PassKind::weight) return weight;
        if (pass == PassKind::forward) return forward;
        return splits && input.op >= 0 ? input : backward;
    }
};

/// When a stored tensor is looked at.
enum class Held : std::uint8_t {
    without_recomputation,
    between_passes, ///< under selective recomputation, from forward to backward
    rebuilt,        ///< under selective recomputation, once the unit is back
};
/// Is the tensor alive then?
bool is_held(const StoredTensor& tensor, Held when);

/// A walk along the operators of a unit, once forward and once backward in every way of
/// recomputation at a time. Operators of one unit may come in several lists: what was walked
/// already can be kept and continued in different ways.
class UnitWalk {
public:
    /// `held`: bytes of the residual-stream gradient that is alive all along the backward pass.
    /// `splits`: some backward passes leave gradients of weights for later.
    UnitWalk(const TensorRules& rules, double held, bool splits);

    void along(const OpList& ops);
    /// What was walked so far, as a whole unit. `ops` of the result is left empty.
    [[nodiscard]] UnitProfile profile(Recompute recompute, double input_bytes) const;

private:
    static constexpr std::size_t ways = 3; ///< values of Held
    /// One pass: how tensors of the operator that runs, and of those before it, are held.
    struct Pass {
        Held running = Held::without_recomputation;
        Held before = Held::without_recomputation;
        double Op::*transient = nullptr;
        bool selective = false;
        double live = 0.0; ///< stored before the next operator
        UnitPeak peak;
    };
    void raise(Pass& pass, const Op& op, double bytes);
    void along_split(const Op& op, const std::array<double, ways>& kept);
    void finish_split(Recompute recompute, UnitProfile& out) const;

    bool without_output_ = false; ///< full recomputation ends before what serves the output alone
    bool splits_ = false;
    Pass forward_, backward_;
    Pass selective_forward_, selective_backward_;
    Pass again_; ///< the forward pass of full recomputation, inside the backward pass
    std::array<BytesByKind, ways> stored_{};
    /// Backward passes that leave gradients of weights: what waits of operators behind the one that
    /// runs counts too, so that of all operators less that of those walked.
    Pass input_, selective_input_;
    UnitPeak normed_, selective_normed_; ///< of these up to the last norm
    UnitPeak weight_;
    BytesByKind waiting_;
    double waiting_bytes_ = 0.0;
    double logits_ = 0.0;
    std::int32_t walked_ = 0; ///< operators
};

/// The profile of a unit whose operators are all there.
UnitProfile profile_unit(const OpList& ops, Recompute recompute, const TensorRules& rules,
                         double input_bytes, double held);

/// Do schedules of the stack have passes that leave gradients of weights for later?
bool splits_passes(const StackProfile& stack);

} // namespace shardplan::sim
