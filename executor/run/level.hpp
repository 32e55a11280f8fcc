#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "simulator/units/result.hpp"

/// Levels of vector instructions: a program that computes exists once for each, see
/// executor/CMakeLists.txt.
namespace shardplan::exec {

/// "v1" (any processor), "v3", "v4" of x86-64. Source: x86-64 psABI, micro-architecture levels.
inline constexpr std::string_view baseline_level = "v1";

/// The levels above the baseline that this processor runs, best first.
std::span<const std::string_view> levels_here();

/// The level to go on with: `wanted` (empty: the best) out of those here, for which `exists` says
/// whether a program is there. Errors: one that this processor or the installation does not have.
sim::Result<std::string> choose_level(std::string_view wanted,
                                      std::span<const std::string_view> here,
                                      bool (*exists)(std::string_view level));

/// To be called first in `main` with its argv: replaces a program NAME by NAME-v4 or NAME-v3 beside
/// it, the best that runs here. Environment: SHARDPLAN_LEVEL = v1, v3 or v4 asks for one. Returns
/// where this program is that one, with its level.
sim::Result<std::string> run_best_level(char** argv);

} // namespace shardplan::exec
