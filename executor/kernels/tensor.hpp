#pragma once

#include <utility>

#include "executor/kernels/arena.hpp"
#include "executor/kernels/bf16.hpp"

namespace shardplan::exec {

/// How values wait between operators. Operators compute in Scalar either way.
enum class Storage : std::uint8_t {
    scalar, ///< as they were computed
    bf16,   ///< rounded to 16 bits; what an operator reads is what was rounded
};

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
