#pragma once

#include <cstdint>

#include "simulator/network/group_path.hpp"

namespace shardplan::sim {

/// Devices that compute in turns, for they are more than the processors of their node: ranks of a
/// job on the cores of a host. Virtual nodes of one machine count as one node here.
struct ProcessorShare {
    double processors = 0.0; ///< of a node; 0: every device has its own
    std::int64_t ranks = 1;  ///< of one stage on a node
    std::int64_t stages = 1; ///< on a node

    [[nodiscard]] bool any() const {
        return processors > 0.0 && static_cast<double>(ranks * stages) > processors;
    }
    /// By which work takes longer that all ranks of the node do at once.
    [[nodiscard]] double everywhere() const {
        return any() ? static_cast<double>(ranks * stages) / processors : 1.0;
    }
    friend bool operator==(const ProcessorShare&, const ProcessorShare&) = default;
};

/// Of the whole cluster, or of the node group with the fewest processors for its devices.
/// `pipeline`: path of Group::pp.
ProcessorShare processor_share(const Scenario& scenario, const Layout& layout,
                               const GroupPath& pipeline);

/// What the passes of a step compute, in seconds of a rank that has a processor to itself.
struct PassWork {
    double node = 0.0;    ///< of all stages of a node, one rank of each
    double slowest = 0.0; ///< of the stage that decides, and what it waits for others
    double in_turn = 0.0; ///< one forward and one backward pass of a stage
};
/// By which passes and waits of the slowest stage take longer than with a processor for every rank,
/// at least 1. The processors of a node are busy with the work of all its ranks, except where too
/// few stages have anything to do: k stages keep k / s of s that are needed busy, while the first
/// micro-batch comes in and the last one goes out. Where that is less than the pipeline takes
/// anyway, its waits give their processors to others, and nobody loses; but the ranks of one stage
/// always compute at the same time.
/// Source: work conservation, and the bound of Graham 1969 (SIAM J. Appl. Math. 17, 416).
double stretch(const ProcessorShare& share, const PassWork& work);

} // namespace shardplan::sim
