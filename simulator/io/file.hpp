#pragma once

#include <string>
#include <string_view>

#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// The bytes of a file or pipe. Errors: it does not exist, is a directory, cannot be opened or
/// read, or holds more than 64 MiB. `where` is the path as given.
Result<std::string> read_file(const std::string& path);

/// Replaces the file at `path` in one step (a new file beside it, then a rename), so that no reader
/// ever sees half of it and a failure leaves the old one. Links are followed; pipes and devices are
/// written to directly.
Status write_file(const std::string& path, std::string_view text);

} // namespace shardplan::sim
