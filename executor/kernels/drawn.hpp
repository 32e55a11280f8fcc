#pragma once

#include <cstdint>

#include "executor/kernels/kernels.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

/// What a value at a place is multiplied with: 0 where it is dropped, else 1 / (1 - rate). `key`
/// stands for the draw and for what surrounds the place.
template <class Scalar>
Scalar kept(const Dropout& dropout, std::size_t key, std::uint64_t place) {
    const auto number = static_cast<double>(sim::hash_mix(key, place) >> 11U) * 0x1.0p-53;
    return number < dropout.rate ? Scalar(0) : static_cast<Scalar>(1.0 / (1.0 - dropout.rate));
}

} // namespace shardplan::exec
