#pragma once

#include <functional>
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

/// Takes the next piece of a text; an Error ends the writing.
using TextSink = std::function<Status(std::string_view)>;
/// As `write_file`, for a text too long to be held whole: `write` hands on its pieces in order.
Status write_file_in_pieces(const std::string& path,
                            const std::function<Status(const TextSink&)>& write);

} // namespace shardplan::sim
