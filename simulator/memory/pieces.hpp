#pragma once

#include <array>
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
    bool reads_table = false; ///< of tokens, which may lie in another unit
    bool holds_table = false;
    bool is_head = false;

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
/// Under zero2 units, under zero3 wrap units, chunk by chunk in forward order; else everything.
std::vector<Portion> portions_of(const Layout& layout, const StageUnits& units);

/// Elements of a portion that ranks reduce: those that are split.
double split_elements(const Portion& portion);
/// That a rank makes whole before it reads them: the same, or all where a part of each piece is off
/// the device.
double gathered_elements(const Layout& layout, const Portion& portion);

/// Elements that a rank holds whole while a unit runs, by kind of pass: values that are gathered,
/// and gradients that are not reduced yet.
struct UnitWindow {
    std::array<double, 3> values{};
    std::array<double, 3> gradients{};
    double others = 0.0; ///< of `gradients` in a backward pass: all but those of its own portion
};
/// The same of a stage, where ranks split gradients or make values whole; else nothing.
struct StageWindows {
    std::vector<std::vector<UnitWindow>> of; ///< by chunk, then unit
    double after_loss = 0.0; ///< gradients that the loss of another micro-batch has left whole
    std::vector<double> gradients; ///< by chunk: of all its units
};
StageWindows windows_of(const Layout& layout, const StageUnits& units);

} // namespace shardplan::sim
