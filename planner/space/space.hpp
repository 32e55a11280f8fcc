#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
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
/// skipped (less what lies behind a stop). No rule reads the rank order, so a refused layout is one
/// candidate for all its orders, and a legal one for each order that differs.
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

/// How much is computed again, less before more. `part`: `rc=full:k`, with a k to be solved.
enum class Again : std::uint8_t { none, selective, part, full };

/// Thousandths of the optimizer states that are tried off the device: tenths. Finer ones differ by
/// less than the band of the memory estimate; the stacks that take a fraction take any.
inline constexpr std::uint16_t offload_step = 100;

/// Legal layouts of a cell that share the kind of cp, the split of experts, sharding, chunks and
/// schedule: the product of the spans. No figure of memory depends on the rank order inside a
/// block.
struct Block {
    sim::Layout layout; ///< smallest micro-batch, first order, nothing recomputed or offloaded
    std::span<const std::int64_t> micro_batches; ///< smallest first; never empty
    std::span<const Again> again;                ///< less before more; never empty
    std::span<const sim::OffloadTier> tiers;     ///< `none` first, near before far; never empty
    std::span<const std::uint8_t> orders;        ///< one of each class; never empty
    std::int64_t longest_stage = 1;              ///< blocks; k of `part` lies below
    /// Between shares of offloaded states that are tried: `offload_step`, or all of them where the
    /// stack cannot split them.
    std::uint16_t offload_step = plan::offload_step;

    /// Layouts that differ in rank order and in nothing else.
    [[nodiscard]] std::int64_t order_count() const {
        return static_cast<std::int64_t>(orders.size());
    }
    [[nodiscard]] std::int64_t count() const {
        return static_cast<std::int64_t>(micro_batches.size() * again.size() * tiers.size()) *
               order_count();
    }
};
/// False: stop.
using BlockVisitor = std::function<bool(const Block&)>;

/// A layout of a block with its numbers of recomputed blocks and offloaded states set: `recompute`
/// counts for `part` only.
sim::Layout with_recompute(sim::Layout layout, Again again, std::int64_t blocks);
sim::Layout with_offload(sim::Layout layout, sim::OffloadTier tier, std::uint16_t thousandths);

/// The layouts of a scenario that a plan looks at, in a fixed order: devices in use, tp, pp, cp (dp
/// is what is left), then the kind of cp, ep, etp (= tp or 1), sharding (with groups inside a node
/// or scale-up domain where the stack has hybrid sharding), chunks with schedule, micro-batch,
/// recomputation, tier of offloaded optimizer states, rank order. Degrees are divisors; sequence
/// parallelism is on wherever it can be; stages are the stack's own. Ordered choices are one
/// candidate each, whose number the search solves: the recomputed blocks of `rc=full:k`, and the
/// share of the states that is offloaded. Cells are independent of one another, so that threads can
/// share them out.
///
/// Inside a cell the values fall into groups (kind of cp; ep with etp; sharding; chunks with
/// schedule and micro-batch; recomputation; offloading) of which every legality rule reads one at
/// most. So what is legal is a product, and is counted, by the rule that refuses the rest, without
/// looking at single layouts.
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

    /// Shows every block of a cell. False if the visitor asked to stop.
    bool visit_blocks(const Cell& cell, const BlockVisitor& visitor) const;

    /// Shows every legal layout of a cell to the visitor, each once and in normal form, and adds to
    /// `counts`. Numbers that a search solves are shown at one end: a single block recomputed, all
    /// states offloaded. False if the visitor asked to stop.
    bool visit(const Cell& cell, const LayoutVisitor& visitor, SpaceCounts& counts) const;

private:
    struct Sharding {
        sim::Shard shard = sim::Shard::none;
        std::uint32_t group = 0; ///< 0: all of dp x cp
        bool reshard = true;
    };
    struct Axes;
    struct Legal;
    [[nodiscard]] std::vector<Sharding> shardings_of(const Cell& cell) const;
    [[nodiscard]] std::vector<std::pair<std::uint16_t, sim::ScheduleKind>> schedules_of(
        const Cell& cell) const;
    [[nodiscard]] std::vector<Again> again_of(std::int64_t longest_stage) const;
    [[nodiscard]] Axes axes_of(const Cell& cell) const;
    [[nodiscard]] Legal legal_of(const Axes& axes) const;
    void add_orders(const Axes& axes, Legal& legal) const;

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
