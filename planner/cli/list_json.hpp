#pragma once

#include <string>
#include <string_view>

#include "simulator/io/json.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan::cli {

/// Members of the object that is open: what a script wants to know of a built-in thing. `kind` as
/// `shardplan list` takes it ("models", "devices", ...). Amounts are in base units, which their
/// names end in. Errors: data files that are broken.
sim::Status write_details(sim::JsonWriter& json, std::string_view kind, const std::string& name);

} // namespace shardplan::plan::cli
