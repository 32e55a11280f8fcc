#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "simulator/estimate/unit_time.hpp"
#include "simulator/units/recent_table.hpp"

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
    [[nodiscard]] GroupTraffic price(const GroupPaths& paths, Group group, Collective op,
                                     double bytes) {
        const GroupPath& path = path_in(paths, group);
        if (path.ranks <= 1 || bytes <= 0.0) return {};
        const Key key{bytes, number_of(group), op};
        const std::size_t hash = hash_of(key);
        const GroupTraffic* known = traffic_.find(key, hash);
        if (known != nullptr) return *known;
        GroupTraffic& made = traffic_.take(key, hash);
        made = {sent_per_rank(path, op, Bytes(bytes)).value(),
                collective_time(path, op, Bytes(bytes)).value()};
        return made;
    }

private:
    struct Key {
        double bytes = 0.0;
        std::uint32_t path = 0;
        Collective op = Collective::all_reduce;

        friend bool operator==(const Key&, const Key&) = default;
    };
    static constexpr std::size_t most = 4096;

    static std::size_t hash_of(const Key& key) {
        std::uint64_t h = std::bit_cast<std::uint64_t>(key.bytes);
        h ^= std::uint64_t{key.path} << 8U ^ static_cast<std::uint64_t>(key.op);
        h *= 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(h >> 32U);
    }

    RecentTable<Key, GroupTraffic> traffic_{most};
    PathNumbers numbers_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
};

} // namespace shardplan::sim
