#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "simulator/io/json.hpp"

/// What files of ours that name their own form share.
namespace shardplan::sim {

/// The text under "format"; empty: there is none.
std::string format_of(const JsonValue& json);

/// Error where "format_version" is one that this program does not read. `noun`: "document".
Status check_format_version(const JsonValue& json, std::int64_t newest, std::string_view noun);

} // namespace shardplan::sim
