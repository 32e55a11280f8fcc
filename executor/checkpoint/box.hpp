#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/scalar.hpp"
#include "executor/kernels/kernels.hpp"
#include "simulator/units/result.hpp"

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
/// Whether all of `inner` lies in `outer`.
bool contains(const Box& outer, const Box& inner);
/// "[0:4, 8:16]"
std::string to_text(const Box& box);
/// `from` without `taken`, as disjoint boxes that keep rows whole where they can.
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

/// Strides of a box without gaps.
std::vector<Index> dense_strides(const std::vector<Index>& extent);

/// Where the elements of a box lie, in elements from that of box.first.
struct BoxPlaces {
    Box box;
    std::vector<Index> strides;
};
BoxPlaces places_of(const TensorBox& box);
BoxPlaces dense_places(Box box);

/// Calls `Status f(Index at_a, Index at_b, Index count)` for each run of `common` that lies without
/// gaps in both boxes around it, in row-major order, until one fails. At least one element.
template <class F>
sim::Status for_each_run(const Box& common, const BoxPlaces& a, const BoxPlaces& b, F&& f) {
    // Inner dimensions that lie without gaps in both make up one run.
    std::size_t outer = common.extent.size();
    Index run = 1;
    while (outer > 0 && a.strides[outer - 1] == run && b.strides[outer - 1] == run) {
        run *= common.extent[--outer];
    }
    Index at_a = 0;
    Index at_b = 0;
    for (std::size_t d = 0; d < common.extent.size(); ++d) {
        at_a += (common.first[d] - a.box.first[d]) * a.strides[d];
        at_b += (common.first[d] - b.box.first[d]) * b.strides[d];
    }
    std::vector<Index> counter(outer, 0);
    while (true) {
        if (sim::Status status = f(at_a, at_b, run); !status) return status;
        std::size_t d = outer;
        while (d > 0 && ++counter[d - 1] == common.extent[d - 1]) {
            --d;
            at_a -= (common.extent[d] - 1) * a.strides[d];
            at_b -= (common.extent[d] - 1) * b.strides[d];
            counter[d] = 0;
        }
        if (d == 0) return sim::Done{};
        at_a += a.strides[d - 1];
        at_b += b.strides[d - 1];
    }
}

} // namespace shardplan::exec
