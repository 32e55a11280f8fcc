#pragma once

#include <vector>

#include "executor/model/parameters.hpp"

namespace shardplan::exec {

/// Units that are split, gathered and reduced together: consecutive ones of the table.
struct Portion {
    Index first_unit = 0;
    Index units = 0;
    Index first_segment = 0;
    Index segments = 0;
    /// Other portions whose parameters its units read: that of a tied table, of the head.
    std::vector<Index> reads = {};

    friend bool operator==(const Portion&, const Portion&) = default;
};

/// Where all parameters of a rank lie.
struct Arrangement {
    std::vector<Segment> segments;
    std::vector<Portion> portions;
};

/// How portions are cut.
struct PortionRule {
    bool by_chunk = false; ///< `size` consecutive units of a chunk; else `size` buckets of all
    Index size = 1;        ///< by chunk: 0 for all of the chunk
};

/// Every portion has a segment for each kind of holders of its parameters, and one of its own for a
/// table that stands on two stages. Of mirrored stages both have the same segments, but for their
/// order, if portions do not reach over chunks or there is one for all. `dense_parts`,
/// `expert_parts`: ranks that a segment is split over.
Arrangement arrange(const ParameterTable& table, const PortionRule& rule, Index dense_parts,
                    Index expert_parts);

} // namespace shardplan::exec
