#pragma once

#include <cstddef>
#include <cstdint>

namespace shardplan::sim {

/// Takes one more value into a hash. splitmix64 (Steele, Lea and Flood 2014) spreads neighbouring
/// small integers over the whole word.
inline std::size_t hash_mix(std::size_t seed, std::uint64_t value) {
    std::uint64_t x = seed + 0x9E3779B97F4A7C15ULL + value;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return static_cast<std::size_t>(x ^ (x >> 31U));
}

} // namespace shardplan::sim
