#pragma once

#include <functional>
#include <memory>

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
    /// Adds step time and money.
    virtual void add_time(const sim::Layout& layout, sim::Score& score) = 0;
};

/// Makes the pricer of a thread.
using PricerFactory = std::function<std::unique_ptr<Pricer>()>;

} // namespace shardplan::plan
