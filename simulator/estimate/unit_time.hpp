#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "simulator/compute/op_time.hpp"
#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

/// The paths of all groups of one layout, by Group.
using Paths = std::array<GroupPath, group_count>;
Paths paths_of(const Scenario& scenario, const Layout& layout);
/// Valid as long as `paths` are.
GroupPaths lend(const Paths& paths);

/// What a stack hides, and what hiding costs. Fractions of the communication of a kind.
struct Overlap {
    double tp = 0.0;
    double cp = 0.0;
    double pp = 0.0;
    double dp = 0.0;
    double gather = 0.0;
    double slowdown = 0.0; ///< seconds of compute lost per second of hidden communication
};
Overlap overlap_of(const StackProfile& stack);

/// A communication and the part of it that runs under compute.
struct Hiding {
    double exposed = 0.0; ///< what is left, and what the compute beside it loses
    double hidden = 0.0;

    friend bool operator==(const Hiding&, const Hiding&) = default;
};
/// Hides `fraction` of `seconds`, no more than the `window` of compute allows.
inline Hiding hide(double seconds, double fraction, double window, double slowdown) {
    const double hidden = std::max(0.0, std::min(seconds * fraction, window));
    return {seconds - hidden + hidden * slowdown, hidden};
}

/// The compute of one pass that communication can run under. A second of it hides one second of
/// communication and not two: NCCL's kernels of different groups queue for the same links and
/// compute units. What asks first is served first.
class HidingBudget {
public:
    HidingBudget() = default;
    /// `seconds`: of compute.
    explicit HidingBudget(double seconds) : left_(std::max(0.0, seconds)) {}

    /// As sim::hide, under what is left.
    Hiding hide(double seconds, double fraction, double slowdown) {
        const Hiding h = sim::hide(seconds, fraction, left_, slowdown);
        left_ -= h.hidden;
        return h;
    }
    /// The device is idle for `seconds`, which nothing that was hidden so far filled.
    void wait(double seconds) { left_ += seconds; }
    [[nodiscard]] double left() const { return left_; }

private:
    double left_ = 0.0;
};

/// Exchanges that the compute of a pass waits for: seconds in which other communication goes on.
struct Exchanges {
    double elsewhere = 0.0; ///< over links that the other communication does not use
    double shared = 0.0;    ///< over the same links
    double share = 1.0;     ///< of those links that they take alone
};
/// Communication hidden under a pass and beside its exchanges.
struct SharedHiding {
    Hiding hiding;
    double slowed = 0.0; ///< seconds that the exchanges take longer
};
/// As HidingBudget::hide, but also while compute waits for exchanges. Two that want more than a
/// link has share it max-min fairly, as the engine plays them; what then takes longer are the
/// exchanges. `share`: of the link that the communication takes alone, above 0.
SharedHiding hide_beside(double seconds, double fraction, double share, const Exchanges& exchanges,
                         const HidingBudget& compute, double slowdown);

/// Seconds of one pass of one micro-batch through one unit, by what they are spent on.
struct PassTime {
    double gemm = 0.0;
    double attention = 0.0;
    double elementwise = 0.0;
    double launch = 0.0; ///< host time beyond all of the others
    double tp = 0.0;     ///< exposed
    double cp = 0.0;
    double ep = 0.0;
    double tp_hidden = 0.0;
    double cp_hidden = 0.0;

    [[nodiscard]] double compute() const { return gemm + attention + elementwise; }
    [[nodiscard]] double total() const { return compute() + launch + tp + cp + ep; }
    /// Compute that hides nothing inside the unit.
    [[nodiscard]] double idle_links() const { return compute() - tp_hidden - cp_hidden; }
    PassTime& operator+=(const PassTime& o) {
        gemm += o.gemm;
        attention += o.attention;
        elementwise += o.elementwise;
        launch += o.launch;
        tp += o.tp;
        cp += o.cp;
        ep += o.ep;
        tp_hidden += o.tp_hidden;
        cp_hidden += o.cp_hidden;
        return *this;
    }
    friend PassTime operator*(double count, PassTime p) {
        p.gemm *= count;
        p.attention *= count;
        p.elementwise *= count;
        p.launch *= count;
        p.tp *= count;
        p.cp *= count;
        p.ep *= count;
        p.tp_hidden *= count;
        p.cp_hidden *= count;
        return p;
    }
    friend bool operator==(const PassTime&, const PassTime&) = default;
};

/// Bytes one rank sends and seconds it communicates in both passes, hidden or not.
struct GroupTraffic {
    double bytes = 0.0;
    double seconds = 0.0;
    GroupTraffic& operator+=(const GroupTraffic& o) {
        bytes += o.bytes;
        seconds += o.seconds;
        return *this;
    }
    friend GroupTraffic operator*(double count, GroupTraffic t) {
        t.bytes *= count;
        t.seconds *= count;
        return t;
    }
    friend bool operator==(const GroupTraffic&, const GroupTraffic&) = default;
};

/// Time of one unit (a block, the embedding, the head) for one micro-batch.
struct UnitTime {
    PassTime forward;
    PassTime backward;
    double backward_weight = 0.0; ///< of `backward`, gradients of weights
    PassTime selective_recompute; ///< what selective recomputation runs forward again
    PassTime full_recompute;      ///< the same of full recomputation
    double stored_bytes = 0.0;    ///< from forward to backward, nothing recomputed
    double weight_tensors = 0.0;  ///< on one rank
    GroupTraffic tp, cp, ep;      ///< forward and backward
    GroupTraffic tp_forward, cp_forward, ep_forward;
    GroupTraffic tp_again, cp_again, ep_again;             ///< of full recomputation
    GroupTraffic tp_selective, cp_selective, ep_selective; ///< of selective recomputation

    friend bool operator==(const UnitTime&, const UnitTime&) = default;
};

/// A collective of a unit in one of its passes.
struct UnitMessage {
    CommOp comm;
    bool backward = false;
    bool again = false;  ///< runs again under selective recomputation
    bool output = false; ///< gives the unit's output, which full recomputation may leave out
};

/// What a unit computes and sends for one micro-batch, before it is known which paths its groups
/// take.
struct UnitWork {
    PassCost forward;
    PassCost backward;
    PassCost again;               ///< what selective recomputation runs again
    PassCost output;              ///< of `forward`, what full recomputation may leave out
    double backward_weight = 0.0; ///< seconds of `backward`, gradients of weights
    double stored_bytes = 0.0;    ///< from forward to backward, nothing recomputed
    double weight_tensors = 0.0;  ///< on one rank
    std::vector<UnitMessage> messages;

    /// Operators in order; those of one unit may come in several lists.
    void add(const OpList& ops, const ComputeRates& rates);
};

class CollectiveMemo;

/// Prices the work of a unit. `is_block`: the stack's count of kernels per block applies.
/// Launching is asynchronous: only what the host needs beyond the device's time is felt.
UnitTime unit_time(const UnitWork& work, const ComputeRates& rates, const Overlap& overlap,
                   const GroupPaths& paths, CollectiveMemo& collectives, CpKind cp_kind,
                   bool is_block);

} // namespace shardplan::sim
