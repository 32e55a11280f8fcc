#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace shardplan::exec {

/// Elements at an address that is a multiple of 64 bytes: which elements vector instructions take
/// and which remain depends on it, so that the same operator on another buffer gives the same bits.
/// New elements are zero.
template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Buffer() = default;
    explicit Buffer(std::int64_t count) { reset(count); }

    /// Replaces the elements by `count` zeros.
    void reset(std::int64_t count) {
        data_.reset();
        count_ = count;
        if (count == 0) return;
        const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
        data_.reset(static_cast<T*>(::operator new(bytes, alignment)));
        std::memset(static_cast<void*>(data_.get()), 0, bytes);
    }
    void release() { reset(0); }

    [[nodiscard]] T* data() { return data_.get(); }
    [[nodiscard]] const T* data() const { return data_.get(); }
    [[nodiscard]] std::int64_t size() const { return count_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    T& operator[](std::int64_t i) { return data_.get()[i]; }
    const T& operator[](std::int64_t i) const { return data_.get()[i]; }

private:
    static constexpr std::align_val_t alignment{64};
    struct Free {
        void operator()(T* p) const { ::operator delete(static_cast<void*>(p), alignment); }
    };
    std::unique_ptr<T, Free> data_;
    std::int64_t count_ = 0;
};

} // namespace shardplan::exec
