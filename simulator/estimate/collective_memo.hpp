#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "simulator/estimate/unit_time.hpp"

namespace shardplan::sim {

/// Collectives priced lately: layouts that a search looks at one after the other mostly move the
/// same parameters and gradients over the same paths. Gives what `collective_time` and
/// `sent_per_rank` give, to the bit.
class CollectiveMemo {
public:
    /// Numbers that tell paths apart, by Group; equal paths may share one.
    using PathNumbers = std::array<std::uint32_t, group_count>;

    /// The paths of `price` until further notice. Without it: those of one layout for good.
    void set_paths(const PathNumbers& numbers) { numbers_ = numbers; }
    [[nodiscard]] std::uint32_t number_of(Group group) const {
        return numbers_[static_cast<std::size_t>(group)];
    }

    /// One collective of a group; nothing for a group of one rank.
    [[nodiscard]] GroupTraffic price(const Paths& paths, Group group, Collective op, double bytes) {
        const GroupPath& path = path_in(paths, group);
        if (path.ranks <= 1 || bytes <= 0.0) return {};
        const std::uint32_t number = number_of(group);
        Entry& entry = entries_[slot_of(number, op, bytes)];
        if (entry.bytes != bytes || entry.path != number || entry.op != op) {
            entry = {bytes,
                     number,
                     op,
                     {sent_per_rank(path, op, Bytes(bytes)).value(),
                      collective_time(path, op, Bytes(bytes)).value()}};
        }
        return entry.traffic;
    }

private:
    struct Entry {
        double bytes = 0.0; ///< 0: empty
        std::uint32_t path = 0;
        Collective op = Collective::all_reduce;
        GroupTraffic traffic;
    };
    static constexpr std::size_t size = 512;

    static std::size_t slot_of(std::uint32_t path, Collective op, double bytes) {
        std::uint64_t h = std::bit_cast<std::uint64_t>(bytes);
        h ^= std::uint64_t{path} << 8U ^ static_cast<std::uint64_t>(op);
        h *= 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(h >> 55U); // 9 bits
    }

    std::vector<Entry> entries_ = std::vector<Entry>(size);
    PathNumbers numbers_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
};

} // namespace shardplan::sim
