#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace shardplan::sim {

/// Values of late by their keys: each has one place, where a newer key takes
/// over from an older one. Starts small, so that whoever asks once pays for
/// little, and grows to `most` places (a power of two) while keys push one
/// another out.
template <class Key, class Value>
class RecentTable {
public:
    explicit RecentTable(std::size_t most) : most_(most) {}

    /// Null where the key is not there any more. Valid until the next `take`.
    /// `hash`: of the key.
    [[nodiscard]] Value* find(const Key& key, std::size_t hash) {
        if (places_.empty()) return nullptr;
        Place& place = places_[index_of(hash)];
        return place.taken && place.key == key ? &place.value : nullptr;
    }

    /// A place for a key that is not there; what it held for another one is left
    /// in it.
    Value& take(const Key& key, std::size_t hash) {
        if (places_.empty()) places_.resize(fewest);
        if (places_[index_of(hash)].taken && places_.size() < most_ &&
            ++pushed_out_ > places_.size() / growth) {
            grow();
        }
        Place& place = places_[index_of(hash)];
        place.taken = true;
        place.hash = hash;
        place.key = key;
        return place.value;
    }

    void clear() {
        places_.clear();
        pushed_out_ = 0;
    }

private:
    static constexpr std::size_t fewest = 16;
    static constexpr std::size_t growth = 4;

    struct Place {
        bool taken = false;
        std::size_t hash = 0;
        Key key{};
        Value value{};
    };

    [[nodiscard]] std::size_t index_of(std::size_t hash) const {
        return hash & (places_.size() - 1);
    }
    void grow() {
        std::vector<Place> old(places_.size() * growth);
        old.swap(places_);
        for (Place& place : old) {
            if (place.taken) places_[index_of(place.hash)] = std::move(place);
        }
        pushed_out_ = 0;
    }

    std::vector<Place> places_; ///< a power of two
    std::size_t most_;
    std::size_t pushed_out_ = 0; ///< since it grew
};

} // namespace shardplan::sim
