#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/units/result.hpp"

namespace shardplan::plan::cli {

/// The error about a value that is there and empty (`--stack ""`, `--stack=`), as a variable of a
/// script that was not set leaves behind: taking it for a flag that was left out would answer
/// another question. Nothing where there is none. `arguments`: without the program's name.
std::optional<sim::Error> empty_value(const std::vector<std::string>& arguments);

} // namespace shardplan::plan::cli
