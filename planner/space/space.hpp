#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "simulator/spec/legality.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::plan {

/// What the visitor of a layout wants to see next.
enum class Visit : std::uint8_t {
    next,
    skip_larger_micro_batches, ///< layouts that differ in a larger micro-batch only are left out
    stop,
};

using LayoutVisitor = std::function<Visit(const sim::Layout&)>;

/// The whole space, accounted for: candidates = the sum of refused + legal, legal = visited +
/// skipped (less what lies behind a stop).
struct SpaceCounts {
    std::int64_t candidates = 0;
    std::int64_t legal = 0;
    std::int64_t visited = 0;          ///< handed to the visitor
    std::int64_t skipped = 0;          ///< left out because the visitor asked for it
    std::vector<std::int64_t> refused; ///< by index into sim::legality_rules(): first rule broken

    SpaceCounts& operator+=(const SpaceCounts& other);
    friend bool operator==(const SpaceCounts&, const SpaceCounts&) = default;
};

/// The layouts with one set of degrees: dp x cp x pp x tp devices.
struct Cell {
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t dp = 1;

    friend bool operator==(const Cell&, const Cell&) = default;
};

/// Legal layouts of a cell that differ in the micro-batch only.
struct Row {
    sim::Layout layout;                          ///< with the smallest micro-batch
    std::span<const std::int64_t> micro_batches; ///< smallest first; never empty
};
/// False: stop.
using RowVisitor = std::function<bool(const Row&)>;

/// The layouts of a scenario that a plan looks at, in a fixed order: devices in use, tp, pp, cp (dp
/// is what is left), then ep, etp (= tp or 1), sharding, chunks, recomputation (less before more),
/// micro-batch. Degrees are divisors; sequence parallelism is on wherever it can be; the kind of
/// context parallelism is the stack's first; stages are the stack's own; one schedule per number of
/// chunks. Cells are independent of one another, so that threads can share them out.
///
/// Inside a cell the values fall into groups (ep with etp; sharding; chunks with micro-batch;
/// recomputation) of which every legality rule reads one at most. So what is legal is a product,
/// and is counted, by the rule that refuses the rest, without looking at single layouts.
class Space {
public:
    /// Keeps references to all three.
    Space(const sim::Scenario& scenario, const sim::Resolved& resolved,
          const sim::LayoutTables& tables);

    [[nodiscard]] const std::vector<Cell>& cells() const { return cells_; }
    [[nodiscard]] const sim::Scenario& scenario() const { return scenario_; }
    [[nodiscard]] const sim::LayoutTables& tables() const { return tables_; }

    /// Candidates, legal ones and refused ones of a cell in closed form.
    [[nodiscard]] SpaceCounts count(const Cell& cell) const;
    /// Of all cells.
    [[nodiscard]] SpaceCounts count() const;

    /// Shows every row of a cell. False if the visitor asked to stop.
    bool visit_rows(const Cell& cell, const RowVisitor& visitor) const;

    /// Shows every legal layout of a cell to the visitor, each once and in normal form, and adds to
    /// `counts`. False if the visitor asked to stop.
    bool visit(const Cell& cell, const LayoutVisitor& visitor, SpaceCounts& counts) const;

private:
    struct Axes;
    struct Legal;
    [[nodiscard]] Axes axes_of(const Cell& cell) const;
    [[nodiscard]] Legal legal_of(const Axes& axes) const;

    const sim::Scenario& scenario_;
    const sim::Resolved& resolved_;
    const sim::LayoutTables& tables_;
    sim::Legality legality_;
    std::vector<Cell> cells_;
    /// Rules by the group of values they read: of a cell first, then the groups in order.
    std::vector<std::vector<std::size_t>> rules_;
};

/// Divisors of a positive number, smallest first.
std::vector<std::int64_t> divisors_of(std::int64_t number);

/// Visits the whole space.
SpaceCounts for_each_layout(const sim::Scenario& scenario, const sim::Resolved& resolved,
                            const sim::LayoutTables& tables, const LayoutVisitor& visitor);

} // namespace shardplan::plan
