#include "executor/optimizer/optimizer.hpp"

#include <cmath>
#include <numbers>

namespace shardplan::exec {

double RateSchedule::at(Index step) const {
    if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
    if (total == 0) return peak;
    if (step >= total) return floor;
    const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
    return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

} // namespace shardplan::exec
