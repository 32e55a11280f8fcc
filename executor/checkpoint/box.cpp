#include "executor/checkpoint/box.hpp"

#include <algorithm>

namespace shardplan::exec {

Box whole_of(const std::vector<Index>& shape) {
    return {std::vector<Index>(shape.size(), 0), shape};
}

Index volume(const Box& box) {
    Index elements = 1;
    for (const Index extent : box.extent) {
        if (extent == 0) return 0; // what the others are then, may be beyond 64 bits
    }
    for (const Index extent : box.extent) {
        elements *= extent;
    }
    return elements;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
    Box common = a;
    for (std::size_t d = 0; d < a.first.size(); ++d) {
        const Index begin = std::max(a.first[d], b.first[d]);
        const Index end = std::min(a.first[d] + a.extent[d], b.first[d] + b.extent[d]);
        if (begin >= end) return std::nullopt;
        common.first[d] = begin;
        common.extent[d] = end - begin;
    }
    return common;
}

bool contains(const Box& outer, const Box& inner) { return intersect(outer, inner) == inner; }

std::string to_text(const Box& box) {
    std::string out = "[";
    for (std::size_t d = 0; d < box.first.size(); ++d) {
        out += (d > 0 ? ", " : "") + std::to_string(box.first[d]) + ":" +
               std::to_string(box.first[d] + box.extent[d]);
    }
    return out + "]";
}

std::vector<Box> subtract(const Box& from, const Box& taken) {
    const auto common = intersect(from, taken);
    if (!common) return {from};
    // A slab before and one behind along each dimension; what remains between them shrinks to the
    // common part.
    std::vector<Box> out;
    Box between = from;
    for (std::size_t d = 0; d < from.first.size(); ++d) {
        const Index before = common->first[d] - between.first[d];
        const Index behind = between.extent[d] - before - common->extent[d];
        if (before > 0) {
            out.push_back(between);
            out.back().extent[d] = before;
        }
        if (behind > 0) {
            out.push_back(between);
            out.back().first[d] = common->first[d] + common->extent[d];
            out.back().extent[d] = behind;
        }
        between.first[d] = common->first[d];
        between.extent[d] = common->extent[d];
    }
    return out;
}

std::vector<Index> dense_strides(const std::vector<Index>& extent) {
    std::vector<Index> strides(extent.size(), 1);
    for (std::size_t d = extent.size(); d-- > 1;) {
        strides[d - 1] = strides[d] * extent[d];
    }
    return strides;
}

BoxPlaces places_of(const TensorBox& box) {
    return {box.box, box.strides.empty() ? dense_strides(box.box.extent) : box.strides};
}

BoxPlaces dense_places(Box box) {
    auto strides = dense_strides(box.extent);
    return {std::move(box), std::move(strides)};
}

namespace {

/// Appends the boxes of elements `begin` to `end` - 1 of `box`, of which the dimensions before
/// `depth` have one place left.
void cut(const Box& box, std::size_t depth, Index begin, Index end, std::vector<Box>& out) {
    if (begin == end) return;
    if (depth == box.extent.size()) {
        out.push_back(box);
        return;
    }
    Index row = 1; // elements of one place of this dimension
    for (std::size_t d = depth + 1; d < box.extent.size(); ++d) {
        row *= box.extent[d];
    }
    const auto part_of_row = [&](Index place, Index from, Index to) {
        Box one = box;
        one.first[depth] += place;
        one.extent[depth] = 1;
        cut(one, depth + 1, from, to, out);
    };
    if (begin / row == (end - 1) / row && end - begin < row) {
        part_of_row(begin / row, begin % row, begin % row + (end - begin));
        return;
    }
    const Index whole_begin = (begin + row - 1) / row;
    const Index whole_end = end / row;
    if (begin % row != 0) part_of_row(begin / row, begin % row, row);
    if (whole_begin < whole_end) {
        Box rows = box;
        rows.first[depth] += whole_begin;
        rows.extent[depth] = whole_end - whole_begin;
        out.push_back(rows);
    }
    if (end % row != 0) part_of_row(whole_end, 0, end % row);
}

} // namespace

std::vector<TensorBox> boxes_of_range(std::span<const Box> local, Index begin, Index end,
                                      Scalar scalar, std::byte* data) {
    std::vector<Box> boxes;
    Index start = 0; // elements before the box at hand
    for (const Box& box : local) {
        const Index elements = volume(box);
        const Index from = std::max(begin - start, Index{0});
        const Index to = std::min(end - start, elements);
        if (from < to) cut(box, 0, from, to, boxes);
        start += elements;
    }
    std::vector<TensorBox> out;
    for (Box& box : boxes) {
        const auto bytes = static_cast<std::size_t>(volume(box)) * bytes_of(scalar);
        out.push_back({std::move(box), data, {}});
        data += bytes;
    }
    return out;
}

} // namespace shardplan::exec
