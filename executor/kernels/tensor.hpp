#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "executor/kernels/arena.hpp"
#include "executor/kernels/bf16.hpp"

namespace shardplan::exec {

/// How values wait between operators. Operators compute in Scalar either way.
enum class Storage : std::uint8_t {
    scalar, ///< as they were computed
    bf16,   ///< rounded to 16 bits; what an operator reads is what was rounded
};

/// Values converted at once where both forms may share memory.
inline constexpr Index packed_block = 256;

/// As `pack`, where `out` may begin at the values or before them in the same memory.
template <class Scalar>
void pack_in_place(const Scalar* values, Index count, Bf16* out) {
    std::array<Scalar, packed_block> wide{};
    std::array<Bf16, packed_block> narrow{};
    for (Index i = 0; i < count; i += packed_block) {
        const Index now = std::min(packed_block, count - i);
        std::memcpy(wide.data(), values + i, static_cast<std::size_t>(now) * sizeof(Scalar));
        pack(wide.data(), now, narrow.data());
        std::memcpy(static_cast<void*>(out + i), narrow.data(),
                    static_cast<std::size_t>(now) * sizeof(Bf16));
    }
}
/// As `unpack`, where the values may begin at what is unpacked or behind it in the same memory.
template <class Scalar>
void unpack_in_place(const Bf16* packed, Index count, Scalar* out) {
    std::array<Scalar, packed_block> wide{};
    std::array<Bf16, packed_block> narrow{};
    for (Index i = (count - 1) / packed_block * packed_block; i >= 0 && count > 0;
         i -= packed_block) {
        const Index now = std::min(packed_block, count - i);
        std::memcpy(narrow.data(), packed + i, static_cast<std::size_t>(now) * sizeof(Bf16));
        unpack(narrow.data(), now, wide.data());
        std::memcpy(static_cast<void*>(out + i), wide.data(),
                    static_cast<std::size_t>(now) * sizeof(Scalar));
    }
}

/// Values to read, converted for the length of a scope where they are stored in 16 bits.
template <class Scalar>
class Reading {
public:
    explicit Reading(const Scalar* data) : data_(data) {}
    Reading(Arena& arena, const Bf16* packed, Index count)
        : unpacked_(arena, count), data_(unpacked_.data()) {
        unpack(packed, count, unpacked_.data());
    }
    explicit Reading(Scratch<Scalar> values)
        : unpacked_(std::move(values)), data_(unpacked_.data()) {}
    operator const Scalar*() const { return data_; } // NOLINT: stands for the pointer

private:
    Scratch<Scalar> unpacked_;
    const Scalar* data_ = nullptr;
};

/// An activation: written once, read any number of times, released.
template <class Scalar>
class Tensor {
public:
    /// Room for `count` values; what was there is gone.
    Scalar* write(Arena& arena, Storage storage, Index count) {
        release();
        arena_ = &arena;
        storage_ = storage;
        values_ = Scratch<Scalar>(arena, count, sim::TensorKind::activations);
        return values_.data();
    }
    /// To be called when all values are written.
    void seal() {
        if (storage_ != Storage::bf16) return;
        packed_ = Scratch<Bf16>(*arena_, values_.size(), sim::TensorKind::activations);
        pack(values_.data(), values_.size(), packed_.data());
        values_.release();
    }
    [[nodiscard]] Reading<Scalar> read() const {
        if (packed_.held()) return {*arena_, packed_.data(), packed_.size()};
        return Reading<Scalar>(values_.data());
    }
    /// What another place has held as it is stored comes here, or goes there, without a copy.
    void take(Arena& arena, Storage storage, Scratch<Scalar> values, Scratch<Bf16> packed) {
        arena_ = &arena;
        storage_ = storage;
        values_ = std::move(values);
        packed_ = std::move(packed);
        values_.count_as(sim::TensorKind::activations);
        packed_.count_as(sim::TensorKind::activations);
    }
    void give(Scratch<Scalar>& values, Scratch<Bf16>& packed) {
        values = std::move(values_);
        packed = std::move(packed_);
    }
    /// In 16 bits, or null.
    [[nodiscard]] const Bf16* packed() const { return packed_.held() ? packed_.data() : nullptr; }
    [[nodiscard]] bool held() const { return values_.held() || packed_.held(); }
    void release() {
        values_.release();
        packed_.release();
    }

private:
    Arena* arena_ = nullptr;
    Storage storage_ = Storage::scalar;
    Scratch<Scalar> values_;
    Scratch<Bf16> packed_;
};

} // namespace shardplan::exec
