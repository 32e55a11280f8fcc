#pragma once

#include <vector>

#include "executor/model/parameters.hpp"
#include "executor/model/share.hpp"

namespace shardplan::exec {

/// Units that are gathered and reduced together.
struct Portion {
    Index chunk = 0; ///< of the first
    Index first_segment = 0;
    Index segments = 0;
    /// Portions that hold parameters of other units which its own read: a tied table.
    std::vector<Index> reads = {};

    friend bool operator==(const Portion&, const Portion&) = default;
};

/// How portions are cut.
struct PortionRule {
    /// `size` consecutive units of a chunk, 0: all of them; else `size` buckets of all units, as
    /// even as `sim::Schedule` makes them.
    bool by_chunk = false;
    Index size = 1;
};

/// Where all parameters of a rank lie.
struct Arrangement {
    std::vector<Segment> segments;
    std::vector<Portion> portions;
};

/// Every portion has a segment of its dense parameters, one of experts, and one of a tied table
/// that other stages hold too, where it has such. Of mirrored stages both have the same segments in
/// some order, if no portion holds a part of several chunks. `parts`: ranks that segments are split
/// over, by Holders.
Arrangement arrange(const ParameterTable& table, const RankShare& share, const PortionRule& rule,
                    Index dense_parts, Index expert_parts);

} // namespace shardplan::exec
