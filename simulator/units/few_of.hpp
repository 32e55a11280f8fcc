#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardplan::sim {

/// A short list of plain values that needs no memory of its own up to `Few` of them. For lists that
/// are built by the thousand and thrown away.
template <class T, std::size_t Few>
class FewOf {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    FewOf() = default;
    FewOf(const FewOf& other) : size_(other.size_), many_(other.many_) { copy_few(other); }
    FewOf(FewOf&& other) noexcept : size_(other.size_), many_(std::move(other.many_)) {
        copy_few(other);
        other.clear();
    }
    FewOf& operator=(const FewOf& other) {
        size_ = other.size_;
        many_ = other.many_;
        copy_few(other);
        return *this;
    }
    FewOf& operator=(FewOf&& other) noexcept {
        size_ = other.size_;
        many_ = std::move(other.many_);
        copy_few(other);
        other.clear();
        return *this;
    }
    ~FewOf() = default;

    void push_back(const T& value) {
        if (size_ < Few) {
            few_.values[size_] = value;
        } else {
            if (size_ == Few) many_.assign(few_.values.begin(), few_.values.end());
            many_.push_back(value);
        }
        ++size_;
    }
    void clear() {
        size_ = 0;
        many_.clear();
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] T* begin() { return size_ <= Few ? few_.values.data() : many_.data(); }
    [[nodiscard]] T* end() { return begin() + size_; }
    [[nodiscard]] const T* begin() const {
        return size_ <= Few ? few_.values.data() : many_.data();
    }
    [[nodiscard]] const T* end() const { return begin() + size_; }
    [[nodiscard]] T& operator[](std::size_t i) { return begin()[i]; }
    [[nodiscard]] const T& operator[](std::size_t i) const { return begin()[i]; }

private:
    void copy_few(const FewOf& other) {
        if (size_ <= Few) std::copy_n(other.few_.values.begin(), size_, few_.values.begin());
    }

    /// Left as it is: only the first `size_` values mean anything.
    union Storage {
        Storage() {} // NOLINT: values are set as they come
        std::array<T, Few> values;
    };

    std::size_t size_ = 0;
    std::vector<T> many_; ///< all of them, once they are more than few
    Storage few_;
};

} // namespace shardplan::sim
