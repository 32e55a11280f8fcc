#pragma once

#include <string>
#include <string_view>

namespace shardplan::sim {

/// Letters A to Z small, whatever the locale; other bytes stay.
std::string lower_case(std::string_view text);

} // namespace shardplan::sim
