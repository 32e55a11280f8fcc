#pragma once

#include <memory>
#include <vector>

#include "simulator/estimate/estimate.hpp"
#include "simulator/estimate/term.hpp"
#include "simulator/spec/placement.hpp"
#include "simulator/spec/scenario.hpp"

namespace shardplan::sim {

/// Lazy parts of memory estimates of one Scenario: profiles of units, live sets of stages.
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

/// Memory of every rank class of a layout: persistent parts, and the worst instant from replaying
/// the live set over the passes of the stage; allocated, reserved and process kept apart. `out` is
/// overwritten, its memory is reused.
void evaluate_memory(const MemoryInputs& in, const Layout& layout, const Placement& placement,
                     MemoryCache& cache, std::vector<ClassMemory>& out);

/// The class nearest to its limit: largest reserved high end over usable. Ties: the first.
std::size_t deciding_class(const std::vector<ClassMemory>& classes);

/// The tree under the peak of one class: kinds, and below each what it is made of. The leaves add
/// up to the class's process memory.
Term explain_memory(const MemoryInputs& in, const Layout& layout, const Placement& placement,
                    MemoryCache& cache, std::size_t class_index);

} // namespace shardplan::sim
