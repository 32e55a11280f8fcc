#pragma once

#include <string>
#include <string_view>

#include "simulator/io/json.hpp"

namespace shardplan::sim {

/// 16 hexadecimal digits that name a text: its 64-bit FNV-1a hash. Tells versions of our own files
/// apart; it is no protection against someone who wants two texts to agree.
std::string content_hash(std::string_view text);

/// The hash of a described value: of its compact text, so that spaces, key order and units of the
/// file it came from do not matter.
template <Described T>
std::string content_hash_of(const T& value) {
    return content_hash(write_described(value, Indent::compact));
}

} // namespace shardplan::sim
