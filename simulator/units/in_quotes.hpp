#pragma once

#include <string>
#include <string_view>

namespace shardplan::sim {

/// Text from a file or flag as it may stand in a message: in double quotes, on one line (control
/// characters and bytes that are not UTF-8 as '?'), cut after 60 bytes with "..." in place of the
/// rest.
std::string in_quotes(std::string_view text);

} // namespace shardplan::sim
