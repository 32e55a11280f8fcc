#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardplan::sim {

/// The candidate someone most likely meant by `name`, for hints; nothing if none is close. Letter
/// case and the signs "-_ ./" weigh little, swapped neighbours count as one slip, and a candidate
/// that begins with or contains the name is close. Ties go to the first candidate.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string_view> candidates);
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& candidates);

/// A hint from the above: "did you mean \"x\"?", or "one of: a, b, c" if none is close (the first
/// dozen, with the number left out); empty if there are no candidates.
std::string nearest_hint(std::string_view name, std::span<const std::string_view> candidates);
std::string nearest_hint(std::string_view name, const std::vector<std::string>& candidates);

} // namespace shardplan::sim
