#include "executor/kernels/bf16.hpp"

namespace shardplan::exec {

template <class Scalar>
void pack(const Scalar* values, std::int64_t count, Bf16* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        out[i] = to_bf16(static_cast<float>(values[i]));
    }
}

template <class Scalar>
void unpack(const Bf16* values, std::int64_t count, Scalar* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<Scalar>(to_float(values[i]));
    }
}

template void pack(const float*, std::int64_t, Bf16*);
template void pack(const double*, std::int64_t, Bf16*);
template void unpack(const Bf16*, std::int64_t, float*);
template void unpack(const Bf16*, std::int64_t, double*);

} // namespace shardplan::exec
