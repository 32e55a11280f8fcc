#pragma once

#include <Eigen/Core>

#include "executor/kernels/kernels.hpp"

/// Private to the .cpp files of this folder: Eigen's views of our arrays.
namespace shardplan::exec {

template <class Scalar>
using RowMajor = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using MatrixView = Eigen::Map<RowMajor<Scalar>, 0, Eigen::OuterStride<>>;
template <class Scalar>
using ConstMatrixView = Eigen::Map<const RowMajor<Scalar>, 0, Eigen::OuterStride<>>;
template <class Scalar>
using ArrayView = Eigen::Map<Eigen::Array<Scalar, Eigen::Dynamic, 1>>;
template <class Scalar>
using ConstArrayView = Eigen::Map<const Eigen::Array<Scalar, Eigen::Dynamic, 1>>;

template <class Scalar>
MatrixView<Scalar> matrix(Scalar* data, Index rows, Index columns, Index stride) {
    return {data, rows, columns, Eigen::OuterStride<>(stride)};
}
template <class Scalar>
ConstMatrixView<Scalar> matrix(const Scalar* data, Index rows, Index columns, Index stride) {
    return {data, rows, columns, Eigen::OuterStride<>(stride)};
}
template <class Scalar>
ArrayView<Scalar> array(Scalar* data, Index count) {
    return {data, count};
}
template <class Scalar>
ConstArrayView<Scalar> array(const Scalar* data, Index count) {
    return {data, count};
}

} // namespace shardplan::exec
