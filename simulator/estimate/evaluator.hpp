#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/estimate/term.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Lazy caches of one thread: parts of an evaluation keyed by the projection of the Layout that
/// they read. Binds to the Evaluator it is used with; used with another one, it starts afresh.
class Workspace {
public:
    Workspace();
    ~Workspace();
    Workspace(Workspace&&) noexcept;
    Workspace& operator=(Workspace&&) noexcept;
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    struct Impl;
    [[nodiscard]] Impl& impl() { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

struct PreparedScenario;

/// Prices layouts of one Scenario. Immutable once prepared and safe to use from many threads, each
/// with its own Workspace. `score`, `evaluate` and `explain` run the same formulas: the headline
/// figures of the first two are equal bit for bit, and the leaves of the third add up to the
/// figure. Layouts must be legal (`check_layout`).
class Evaluator {
public:
    /// Resolves the scenario. Errors: whatever `resolve` refuses; unknown peak of the device.
    static Result<Evaluator> make(Scenario scenario, LayoutTables tables = {});

    [[nodiscard]] const Scenario& scenario() const;
    [[nodiscard]] const Resolved& resolved() const;
    [[nodiscard]] const LayoutTables& tables() const { return tables_; }
    [[nodiscard]] const std::vector<Assumption>& assumptions() const { return assumptions_; }

    /// The lean answer for a search.
    [[nodiscard]] Score score(const Layout& layout, Workspace& workspace) const;
    /// The same in two steps, for a search that looks at memory first: all but step time and money.
    [[nodiscard]] Score score_memory(const Layout& layout, Workspace& workspace) const;
    /// Adds step time and money to a score of the same layout.
    void add_time(const Layout& layout, Workspace& workspace, Score& score) const;
    /// Which communication a lower bound counts: that of units over the layout's own links, or
    /// none, so that the bound holds in every rank order.
    enum class Links : std::uint8_t { own, none };
    /// Adds lower bounds of step time and money in their place: the passes of every stage and the
    /// pipeline around them, without data parallelism, messages, optimizer and offloading.
    void add_least_time(const Layout& layout, Workspace& workspace, Score& score,
                        Links links = Links::own) const;
    /// All figures; `out` is overwritten, its memory is reused. The texts (`verdict_text`,
    /// `warnings`) are left empty: `annotate` writes them where somebody reads them.
    void evaluate(const Layout& layout, Workspace& workspace, Estimate& out) const;
    /// Writes `verdict_text` and `warnings` of an Estimate of this layout.
    void annotate(const Layout& layout, Estimate& out) const;
    /// Both.
    [[nodiscard]] Estimate estimate(const Layout& layout, Workspace& workspace) const;
    /// The tree under one figure: "memory", "memory.<class>.<kind>", "time", "time.<kind>".
    /// Errors: a path that does not exist, with the nearest one.
    [[nodiscard]] Result<Term> explain(const Layout& layout, std::string_view path,
                                       Workspace& workspace) const;

private:
    Evaluator() = default;
    std::shared_ptr<const PreparedScenario> prepared_;
    LayoutTables tables_;
    std::vector<Assumption> assumptions_;
};

/// One sentence: margin, deciding term, rank class and phase.
std::string describe_verdict(const Estimate& estimate);

} // namespace shardplan::sim
