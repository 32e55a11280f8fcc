#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "simulator/estimate/unit_time.hpp"

namespace shardplan::sim {

/// Collectives priced lately over the paths it is used with: layouts that a search looks at one
/// after the other mostly move the same parameters and gradients. Gives what `collective_time` and
/// `sent_per_rank` give, to the bit. Cleared when the paths change.
class CollectiveMemo {
public:
    /// One collective of a group; nothing for a group of one rank.
    [[nodiscard]] GroupTraffic price(const Paths& paths, Group group, Collective op, double bytes) {
        const GroupPath& path = path_in(paths, group);
        if (path.ranks <= 1 || bytes <= 0.0) return {};
        Entry& entry = entries_[slot_of(group, op, bytes)];
        if (entry.bytes != bytes || entry.group != group || entry.op != op) {
            entry = {bytes,
                     group,
                     op,
                     {sent_per_rank(path, op, Bytes(bytes)).value(),
                      collective_time(path, op, Bytes(bytes)).value()}};
        }
        return entry.traffic;
    }
    void clear() { entries_ = {}; }

private:
    struct Entry {
        double bytes = 0.0; ///< 0: empty
        Group group = Group::tp;
        Collective op = Collective::all_reduce;
        GroupTraffic traffic;
    };
    static constexpr std::size_t size = 64;

    static std::size_t slot_of(Group group, Collective op, double bytes) {
        std::uint64_t h = std::bit_cast<std::uint64_t>(bytes);
        h ^= static_cast<std::uint64_t>(group) << 8U ^ static_cast<std::uint64_t>(op);
        h *= 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(h >> 58U); // 6 bits
    }

    std::array<Entry, size> entries_{};
};

} // namespace shardplan::sim
