#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "executor/kernels/arena.hpp"
#include "executor/kernels/bf16.hpp"
#include "executor/kernels/off_device.hpp"

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
    /// Values, while none is off the device.
    [[nodiscard]] Index count() const { return packed_.held() ? packed_.size() : values_.size(); }
    void release() {
        values_.release();
        packed_.release();
        away_.release();
    }
    /// The last part of it, as much as the store wants, is kept there until it is brought back;
    /// nobody reads meanwhile. Errors: of files, and nothing has been moved.
    sim::Status move_off(OffDevice& store) {
        return packed_.held() ? move_part(packed_, store) : move_part(values_, store);
    }
    void bring_back() {
        if (away_.bytes() == 0) return;
        packed_.held() ? join(packed_) : join(values_);
    }
    /// What `bring_back` will read begins to be read.
    void prefetch() const { away_.prefetch(); }

private:
    template <class T>
    sim::Status move_part(Scratch<T>& all, OffDevice& store) {
        const Index off = all.held() ? store.of(all.size()) : 0;
        if (off == 0) return sim::Done{};
        auto away = store.take(off * static_cast<Index>(sizeof(T)));
        if (!away) return std::move(away).error();
        away_ = std::move(*away);
        Scratch<T> here(*arena_, all.size() - off, sim::TensorKind::activations);
        std::memcpy(away_.data(), all.data() + here.size(),
                    static_cast<std::size_t>(away_.bytes()));
        std::copy_n(all.data(), here.size(), here.data());
        away_.give_way();
        all = std::move(here);
        return sim::Done{};
    }
    template <class T>
    void join(Scratch<T>& here) {
        const Index off = away_.bytes() / static_cast<Index>(sizeof(T));
        Scratch<T> all(*arena_, here.size() + off, sim::TensorKind::activations);
        std::copy_n(here.data(), here.size(), all.data());
        std::memcpy(all.data() + here.size(), away_.data(),
                    static_cast<std::size_t>(away_.bytes()));
        here = std::move(all);
        away_.release();
    }

    Arena* arena_ = nullptr;
    Storage storage_ = Storage::scalar;
    Scratch<Scalar> values_;
    Scratch<Bf16> packed_;
    Away away_; ///< its last part
};

} // namespace shardplan::exec
