#pragma once

#include "simulator/io/catalogue.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan {

/// The built-in devices and networks, read once in a process for each data folder: most of the time
/// that a scenario takes to put together goes there, and some questions take many scenarios. Safe
/// to call from many threads. Errors: as load_catalogue.
const sim::Result<sim::Catalogue>& catalogue_once();

} // namespace shardplan::plan
