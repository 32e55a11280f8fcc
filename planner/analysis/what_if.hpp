#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/analysis/diff.hpp"
#include "planner/analysis/vary.hpp"
#include "simulator/engine/simulate.hpp"

/// A step simulated as it is and with something changed: which gap moves.
namespace shardplan::plan {

/// A scenario and the layout it is run with.
struct Variant {
    sim::Scenario scenario;
    std::string layout; ///< text form
};

/// Applies changes, each an input ("cluster.node_groups[0].node.nics.per_nic=800 Gbit/s", as `vary`
/// takes it), a term of the layout ("stages=11-12-12-11", "prefetch4"), which takes the place of
/// the terms that set the same, or a whole layout ("layout=tp8,pp4,mb1"). Where tp, cp, pp or the
/// devices change and dp is not among the changes, dp follows. Errors: what `vary` and the reader
/// of layouts refuse; something changed twice; `where` begins them.
sim::Result<Variant> change(const Variant& base, std::span<const std::string> changes,
                            const VaryRules& rules, std::string_view where);

/// Seconds of the critical path by what runs, "backward", "exchange on stream ep", longest first.
struct PathShare {
    std::string name;
    sim::Seconds seconds;
    std::int32_t stage = 0; ///< with the most of it
    sim::Seconds on_stage;  ///< seconds on that stage

    friend bool operator==(const PathShare&, const PathShare&) = default;
};
std::vector<PathShare> path_shares(const sim::Simulation& simulation);

/// Two simulated steps beside one another.
struct PlayDiff {
    /// Seconds of the step of an average stage: passes and what else keeps it busy, what
    /// communication beside them slows them by, waiting by cause ("waits: bubble"), overhead.
    /// Largest change first; adds up to the steps.
    std::vector<DiffTerm> step;
    /// Of those, the waiting that changed most; empty: none did.
    std::string moved;
    /// Seconds of the critical path by what runs, largest change first.
    std::vector<DiffTerm> path;
    /// Seconds that each stage waits. Empty where the stages are not as many.
    std::vector<DiffTerm> stages;
    /// Largest live set of any class of ranks, bytes.
    DiffTerm memory;
};
PlayDiff diff_plays(const sim::Simulation& a, const sim::Simulation& b);

} // namespace shardplan::plan
