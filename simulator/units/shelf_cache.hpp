#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shardplan::sim {

/// A cache for keys of which one number (the micro-batch, the number of micro-batches) changes from
/// layout to layout and the rest seldom: values of equal rests share a shelf, and the shelf in use
/// is at hand. A shelf is asked for its numbers in the same order again and again, so the one
/// behind the last is tried first. Pointers stay valid until `clear`.
template <class Key, class Value, class Hash>
class ShelfCache {
public:
    /// Null where there is none.
    [[nodiscard]] Value* find(const Key& key, std::int64_t number) {
        if (at_hand_ == nullptr || !(key == key_at_hand_)) {
            const auto it = shelves_.find(key);
            if (it == shelves_.end()) return nullptr;
            take(key, it->second);
        }
        Shelf& shelf = *at_hand_;
        const std::size_t size = shelf.numbers.size();
        std::size_t at = shelf.next < size ? shelf.next : 0;
        for (std::size_t tried = 0; tried < size; ++tried) {
            if (shelf.numbers[at] == number) {
                shelf.next = at + 1;
                return shelf.values[at];
            }
            at = at + 1 < size ? at + 1 : 0;
        }
        return nullptr;
    }

    /// Adds a value that `find` did not find.
    Value& insert(const Key& key, std::int64_t number, Value value) {
        Shelf& shelf = shelves_[key];
        take(key, shelf);
        shelf.numbers.push_back(number);
        if (size_ % block == 0) {
            blocks_.emplace_back();
            blocks_.back().reserve(block);
        }
        blocks_.back().push_back(std::move(value));
        shelf.values.push_back(&blocks_.back().back());
        shelf.next = shelf.numbers.size();
        ++size_;
        return blocks_.back().back();
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    void clear() {
        shelves_.clear();
        blocks_.clear();
        at_hand_ = nullptr;
        size_ = 0;
    }

private:
    static constexpr std::size_t block = 64;

    struct Shelf {
        std::vector<std::int64_t> numbers;
        std::vector<Value*> values; ///< of the same
        std::size_t next = 0;       ///< tried first
    };

    void take(const Key& key, Shelf& shelf) {
        at_hand_ = &shelf;
        key_at_hand_ = key;
    }

    std::unordered_map<Key, Shelf, Hash> shelves_;
    std::vector<std::vector<Value>> blocks_; ///< where the values are; full ones never move
    Shelf* at_hand_ = nullptr;
    Key key_at_hand_;
    std::size_t size_ = 0;
};

} // namespace shardplan::sim
