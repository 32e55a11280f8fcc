#pragma once

#include <functional>
#include <memory>

#include "planner/space/space.hpp"
#include "simulator/estimate/estimate.hpp"

namespace shardplan::plan {

/// Prices layouts for one thread of a search, in steps from cheap to dear.
class Pricer {
public:
    virtual ~Pricer() = default;
    /// All but step time and money.
    virtual sim::Score memory(const sim::Layout& layout) = 0;
    /// Adds lower bounds of step time and money to a score of the same layout.
    virtual void add_least_time(const sim::Layout& layout, sim::Score& score) = 0;
    /// The same, no larger in any rank order.
    virtual void add_least_time_in_any_order(const sim::Layout& layout, sim::Score& score) {
        add_least_time(layout, score);
    }
    /// Thousandths of the optimizer states that the tier of a node holds beside what else is there,
    /// in steps of `step`. The same for all micro-batches and kinds of recomputation.
    virtual std::uint16_t most_offload(const sim::Layout& /*layout*/, sim::OffloadTier /*tier*/,
                                       std::uint16_t /*step*/) {
        return sim::offload_scale;
    }
    /// Adds step time and money.
    virtual void add_time(const sim::Layout& layout, sim::Score& score) = 0;
};

/// Makes the pricer of a thread.
using PricerFactory = std::function<std::unique_ptr<Pricer>()>;

} // namespace shardplan::plan
