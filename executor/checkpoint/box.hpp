#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "executor/comm/scalar.hpp"
#include "executor/kernels/kernels.hpp"

namespace shardplan::exec {

/// Elements first[d] to first[d] + extent[d] - 1 of each dimension d of a tensor; of a tensor
/// without dimensions its one element.
struct Box {
    std::vector<Index> first;
    std::vector<Index> extent;

    friend bool operator==(const Box&, const Box&) = default;
};

/// The whole of a tensor.
Box whole_of(const std::vector<Index>& shape);
/// Elements in it.
Index volume(const Box& box);
/// What two boxes of one tensor have in common; nothing if that is no element.
std::optional<Box> intersect(const Box& a, const Box& b);
/// `from` without `taken`, as disjoint boxes in row-major order of their first elements.
std::vector<Box> subtract(const Box& from, const Box& taken);

/// A box of a tensor and where its elements lie in the memory of this rank.
struct TensorBox {
    Box box;
    std::byte* data = nullptr; ///< of the element box.first
    /// Elements from one to the next along each dimension, that of the last one 1. Empty: without
    /// gaps, in row-major order.
    std::vector<Index> strides = {};
};

/// The boxes of a stretch of a flat buffer, as ZeRO and FSDP cut it. `local`: the boxes of one
/// tensor that a rank would hold unsharded, one after the other, each without gaps in row-major
/// order (one box; three where query, key and value rows of one matrix are split). Of this,
/// elements `begin` to `end` - 1 are held, from `data` on: of a box of two dimensions a partial
/// row, whole rows and a partial row at most. 0 <= begin <= end <= their volume.
std::vector<TensorBox> boxes_of_range(std::span<const Box> local, Index begin, Index end,
                                      Scalar scalar, std::byte* data);

/// Calls `f(Index at_a, Index at_b, Index count)` for each run of `common` that lies without gaps
/// in both of two boxes around it, in row-major order; places in elements from the first of each.
template <class F>
void for_each_run(const Box& common, const Box& a, std::span<const Index> strides_a, const Box& b,
                  std::span<const Index> strides_b, F&& f);

/// Strides of a box without gaps.
std::vector<Index> dense_strides(const std::vector<Index>& extent);

} // namespace shardplan::exec
