#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/estimate/step_parts.hpp"
#include "simulator/estimate/term.hpp"
#include "simulator/schedule/bubble.hpp"

namespace shardplan::sim {

/// Memory reused between layouts.
class StepScratch {
public:
    StepScratch();
    ~StepScratch();
    StepScratch(StepScratch&&) noexcept;
    StepScratch& operator=(StepScratch&&) noexcept;
    StepScratch(const StepScratch&) = delete;
    StepScratch& operator=(const StepScratch&) = delete;

    struct Impl;
    [[nodiscard]] Impl& impl() { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

/// What a step costs, before it is put into an Estimate.
struct StepResult {
    SecondsByKind exposed;
    SecondsByKind hidden;
    Seconds total; ///< exposed, added up in enumerator order
    std::int64_t slowest_stage = 0;

    friend bool operator==(const StepResult&, const StepResult&) = default;
};

/// What a rank of a run of stages sends per step, and how long that takes, hidden or not.
struct StageTraffic {
    GroupTraffic tp, cp, ep, dp;
    GroupTraffic tied;    ///< the copy of a tied table
    GroupTraffic message; ///< a single one, between stages

    friend bool operator==(const StageTraffic&, const StageTraffic&) = default;
};

/// One addend of an exposed time, for explain.
struct TimeEntry {
    TimeKind kind = TimeKind::gemm;
    std::int64_t unit = -1; ///< -1: not of a unit
    std::string_view name;
    std::string_view formula;
    double seconds = 0.0; ///< per step
    double count = 1.0;   ///< how often it happens per step

    friend bool operator==(const TimeEntry&, const TimeEntry&) = default;
};
/// Collects the addends; the sum of a kind's entries in order is its exposed time, bit for bit.
struct TimeRecorder {
    static constexpr bool active = true;
    std::vector<TimeEntry> entries;
};

/// The time of a step: passes of every stage for a micro-batch, the pipeline in closed form, and
/// what happens once per step. `runs`: of all stages.
StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch);
/// The same, with the addends.
StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch, TimeRecorder& recorder);
/// The same, with what is sent, by run.
StepResult step_time(const StepContext& context, const Layout& layout, const LayoutParts& parts,
                     const std::vector<ShapeRun>& runs, RecomputePlan plan,
                     std::int64_t micro_batches, StepScratch& scratch,
                     std::vector<StageTraffic>& traffic);

} // namespace shardplan::sim
