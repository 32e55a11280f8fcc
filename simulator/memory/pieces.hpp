#pragma once

#include <cstdint>
#include <vector>

#include "simulator/memory/rank_parameters.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/model.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

/// What a stack that splits parameters into whole elements keeps on a rank: StateRules.
namespace shardplan::sim {

/// Trained elements of a unit on one rank, apart as they are split.
struct UnitElements {
    double dense = 0.0;
    double table = 0.0; ///< a tied table that another stage holds too
    double expert = 0.0;

    friend bool operator==(const UnitElements&, const UnitElements&) = default;
};
/// By chunk: its units in forward order.
using StageUnits = std::vector<std::vector<UnitElements>>;

/// Of stage `number`.
StageUnits stage_units(const ModelSpec& model, const Resolved& resolved, const Layout& layout,
                       const Stage& stage, std::size_t number);

/// Elements that are split together: `count` of them over `parts` ranks.
struct Segment {
    double count = 0.0;
    double parts = 1.0;
    bool expert = false;

    /// What one rank keeps; the last rank's is filled up.
    [[nodiscard]] double piece() const;
    /// What all keep.
    [[nodiscard]] double room() const { return parts * piece(); }
    /// Of a piece, with `thousandths` of it kept off the device, what is on it.
    [[nodiscard]] double piece_here(std::int64_t thousandths) const;
};

/// Segments that are gathered and reduced together.
struct Portion {
    std::vector<Segment> segments;
};
/// Under zero3 wrap units, chunk by chunk in forward order; else everything.
std::vector<Portion> portions_of(const Layout& layout, const StageUnits& units);

/// Elements of a portion that ranks gather, or reduce: those that are split.
double split_elements(const Portion& portion);

/// The most elements of `ahead` + 1 consecutive portions.
double largest_window(const std::vector<Portion>& portions, std::size_t ahead);

} // namespace shardplan::sim
