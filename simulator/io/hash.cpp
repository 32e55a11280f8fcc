#include "simulator/io/hash.hpp"

#include <cstdint>

namespace shardplan::sim {

std::string content_hash(std::string_view text) {
    // FNV-1a: offset basis and prime of its 64-bit form, http://www.isthe.com/chongo/tech/comp/fnv
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3U;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) {
        out += digits[(hash >> static_cast<unsigned>(shift)) & 0xFU];
    }
    return out;
}

} // namespace shardplan::sim
