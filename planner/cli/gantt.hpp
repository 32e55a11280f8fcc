#pragma once

#include <ostream>

#include "simulator/engine/simulate.hpp"

namespace shardplan::plan::cli {

/// The stream of compute of every stage, one row each, `width` characters of equal time: F, B, W
/// for passes (where they are too short to be seen, the beginning and the end of the step), o for
/// the optimizer, c for communication that compute waits for, a dot for waiting, whatever fills
/// most of the character's time.
void print_gantt(std::ostream& out, const sim::Simulation& simulation, std::size_t width,
                 bool color);
/// The same, with the first rank of each stage as it was measured beneath, on the same scale.
/// Measured passes hold the exchanges inside them.
void print_gantt_over(std::ostream& out, const sim::Simulation& simulation,
                      const sim::Timeline& measured, std::size_t width, bool color);

} // namespace shardplan::plan::cli
