#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulator/compute/op_list.hpp"
#include "simulator/estimate/estimate.hpp"
#include "simulator/estimate/term.hpp"
#include "simulator/network/communicators.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Lazy parts of memory estimates of one Scenario: profiles of units, outlines of pipelines,
/// states.
class MemoryCache {
public:
    MemoryCache();
    ~MemoryCache();
    MemoryCache(MemoryCache&&) noexcept;
    MemoryCache& operator=(MemoryCache&&) noexcept;
    MemoryCache(const MemoryCache&) = delete;
    MemoryCache& operator=(const MemoryCache&) = delete;

    struct Impl;
    [[nodiscard]] Impl& impl() { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

/// What memory estimates read.
struct MemoryInputs {
    const Scenario& scenario;
    const Resolved& resolved;
    const LayoutTables& tables;
};

/// What memory reads of a placement.
struct PlacedStages {
    const std::vector<Stage>& stages;
    const std::vector<RankClass>& classes;
    /// Number of the row of layouts, which differ in the micro-batch only, that the layout is of;
    /// 0: nobody counts rows. One cache sees the rows of one counter.
    std::uint64_t row = 0;
    /// Of the layout; null: nobody knows them yet.
    const CommunicatorMemory* communicators = nullptr;

    PlacedStages(const std::vector<Stage>& all, const std::vector<RankClass>& by_stage,
                 std::uint64_t row_number, const CommunicatorMemory* opened)
        : stages(all), classes(by_stage), row(row_number), communicators(opened) {}
    PlacedStages(const Placement& placement) // NOLINT: a placement is one
        : stages(placement.stages), classes(placement.classes) {}
};

/// Operators of one unit; a list that nobody has built yet is empty.
struct UnitOps {
    OpList before; ///< up to the routed experts of a block that has some; else all
    OpList from;   ///< the rest
};
/// Builds what the memory of layouts of this sharding needs from operators that the caller has
/// anyway: those of every block kind, the embedding and the head. Calling it is optional.
void take_operators(const MemoryInputs& in, const Layout& layout, const std::vector<UnitOps>& ops,
                    MemoryCache& cache);

/// What decides whether a layout fits: the class nearest to its limit (largest reserved high end
/// over usable; ties: the first).
struct MemoryHeadline {
    std::size_t deciding = 0;              ///< index into the classes of the placement
    Verdict verdict = Verdict::fits;       ///< the worst of any class
    TensorKind kind = TensorKind::weights; ///< the largest of the deciding class at its peak
    Phase phase = Phase::forward;          ///< of that peak
    Band<Bytes> reserved;                  ///< what the verdict compares with `usable`
    Bytes usable;
    /// Some class has too little for its states and a single micro-batch: layouts that differ in a
    /// larger micro-batch only do not fit either.
    bool hopeless = false;

    friend bool operator==(const MemoryHeadline&, const MemoryHeadline&) = default;
};

/// The lean answer. Stages that run the same as an earlier one and never have more alive are not
/// looked at: nothing of theirs is larger.
MemoryHeadline memory_headline(const MemoryInputs& in, const Layout& layout,
                               const PlacedStages& placement, MemoryCache& cache);

/// Memory of every rank class of a layout: persistent parts, and the worst instant of the live set
/// over the passes of the stage; allocated, reserved and process kept apart. `out` is overwritten,
/// its memory is reused. The figures of the deciding class are those of `memory_headline`.
void evaluate_memory(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
                     MemoryCache& cache, std::vector<ClassMemory>& out);

/// The tree under the peak of one class: kinds, and below each what it is made of. The leaves add
/// up to the class's process memory.
Term explain_memory(const MemoryInputs& in, const Layout& layout, const PlacedStages& placement,
                    std::size_t class_index);

} // namespace shardplan::sim
