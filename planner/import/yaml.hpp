#pragma once

#include <string_view>

#include "simulator/io/json.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan {

/// YAML as the JSON value it stands for, so that one reader serves both. Every scalar becomes a
/// text, null stays null; several documents become a list. Errors: `source:line:column` where the
/// text is no YAML, and a text that unfolds to more than 4 million values through its anchors.
sim::Result<sim::JsonValue> parse_yaml(std::string_view text, std::string_view source);

} // namespace shardplan::plan
