#pragma once

#include <map>
#include <utility>
#include <vector>

#include "executor/kernels/buffer.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/memory_count.hpp"

namespace shardplan::exec {

/// Memory of activations and workspaces of one rank. What is given back is kept for the next
/// request of the same size: a step repeats the sizes of the one before, and fresh pages cost more
/// than many operators. One thread at a time.
class Arena {
public:
    /// Contents are left over from the last user.
    Buffer<std::byte> take(Index bytes, sim::TensorKind kind);
    void give(Buffer<std::byte> buffer, sim::TensorKind kind);
    void recount(Index bytes, sim::TensorKind from, sim::TensorKind to);
    /// What is taken from now on counts there by kind; nothing may be taken yet. `count` outlives
    /// this.
    void count_in(MemoryCount& count) { count_ = &count; }

    [[nodiscard]] Index bytes_in_use() const { return in_use_; }
    /// Most bytes in use at any time so far.
    [[nodiscard]] Index high_water() const { return high_water_; }

private:
    std::map<Index, std::vector<Buffer<std::byte>>> free_;
    Index in_use_ = 0;
    Index high_water_ = 0;
    MemoryCount* count_ = nullptr;
};

/// Elements from an arena, given back at the end of the scope.
template <class T>
class Scratch {
public:
    Scratch() = default;
    Scratch(Arena& arena, Index count, sim::TensorKind kind = sim::TensorKind::temporaries)
        : arena_(&arena),
          buffer_(arena.take(count * static_cast<Index>(sizeof(T)), kind)),
          kind_(kind) {}
    Scratch(Scratch&& other) noexcept
        : arena_(std::exchange(other.arena_, nullptr)),
          buffer_(std::move(other.buffer_)),
          kind_(other.kind_) {}
    Scratch& operator=(Scratch&& other) noexcept {
        if (this == &other) return *this;
        release();
        arena_ = std::exchange(other.arena_, nullptr);
        buffer_ = std::move(other.buffer_);
        kind_ = other.kind_;
        return *this;
    }
    ~Scratch() { release(); }

    void release() {
        if (arena_ != nullptr) arena_->give(std::move(buffer_), kind_);
        arena_ = nullptr;
        buffer_ = {};
    }
    /// What it is held for from now on.
    void count_as(sim::TensorKind kind) {
        if (arena_ != nullptr) arena_->recount(buffer_.size(), kind_, kind);
        kind_ = kind;
    }
    [[nodiscard]] bool held() const { return arena_ != nullptr; }
    [[nodiscard]] Index size() const { return buffer_.size() / static_cast<Index>(sizeof(T)); }
    // bytes at an address aligned for every T, which nobody reads before T were written
    [[nodiscard]] T* data() { return reinterpret_cast<T*>(buffer_.data()); }
    [[nodiscard]] const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }

private:
    Arena* arena_ = nullptr;
    Buffer<std::byte> buffer_;
    sim::TensorKind kind_ = sim::TensorKind::temporaries;
};

} // namespace shardplan::exec
