#pragma once

#include <cstddef>
#include <string_view>

namespace shardplan::sim {

/// Bytes of the UTF-8 character at the start of `text`; 0 if they are not one (RFC 3629: no
/// overlong forms, surrogates, or anything beyond 10FFFF) or the text is empty.
std::size_t utf8_length(std::string_view text);

} // namespace shardplan::sim
