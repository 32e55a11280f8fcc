#pragma once

#include <algorithm>
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

/// Rounds to 16 bits, and back.
template <class Scalar>
void pack(const Scalar* values, Index count, Bf16* out) {
    for (Index i = 0; i < count; ++i) {
        out[i] = to_bf16(static_cast<float>(values[i]));
    }
}
template <class Scalar>
void unpack(const Bf16* values, Index count, Scalar* out) {
    for (Index i = 0; i < count; ++i) {
        out[i] = static_cast<Scalar>(to_float(values[i]));
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
