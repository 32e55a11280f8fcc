#include <algorithm>

#include "executor/checkpoint/plan.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/utf8.hpp"

namespace shardplan::exec {

namespace {

using sim::in_quotes;

bool shape_fits(const TensorPart& part) {
    Index bytes = static_cast<Index>(bytes_of(part.scalar));
    for (const Index extent : part.shape) {
        if (extent < 1 || __builtin_mul_overflow(bytes, extent, &bytes)) return false;
    }
    return true;
}

/// What is wrong with a box; empty if nothing.
std::string fault(const TensorPart& part, const TensorBox& box) {
    const std::size_t rank = part.shape.size();
    if (box.box.first.size() != rank || box.box.extent.size() != rank) {
        return "a box has other dimensions than the tensor";
    }
    for (std::size_t d = 0; d < rank; ++d) {
        const Index first = box.box.first[d];
        const Index extent = box.box.extent[d];
        if (first < 0 || extent < 0 || extent > part.shape[d] || first > part.shape[d] - extent) {
            return "the box " + to_text(box.box) + " does not lie in " +
                   to_text(whole_of(part.shape));
        }
    }
    if (volume(box.box) > 0 && box.data == nullptr) {
        return "the box " + to_text(box.box) + " has no data";
    }
    const auto& strides = box.strides;
    if (strides.empty()) return {};
    if (strides.size() != rank || strides.back() != 1 ||
        std::any_of(strides.begin(), strides.end(), [](Index stride) { return stride < 1; })) {
        return "the strides of the box " + to_text(box.box) + " do not fit it";
    }
    return {};
}

} // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = sim::utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

Status check_parts(std::span<const TensorPart> parts) {
    for (const TensorPart& part : parts) {
        const std::string where = "tensor " + in_quotes(part.name);
        if (part.name.empty() || part.name == "__metadata__" || !is_utf8(part.name)) {
            return Error{ErrorCode::bad_input, where, "this cannot be the name of a tensor",
                         "name it in UTF-8, as \"blocks.0.up.weight\""};
        }
        if (!shape_fits(part)) {
            return Error{ErrorCode::bad_input, where,
                         "it has no elements, or more bytes than 64 bits count",
                         "leave tensors without elements out"};
        }
        for (const TensorBox& box : part.boxes) {
            if (auto what = fault(part, box); !what.empty()) {
                return Error{ErrorCode::bad_input, where, std::move(what),
                             "a box has a first element and an extent for each dimension of the "
                             "tensor, and a stride, 1 for the last, or none"};
            }
        }
    }
    return sim::Done{};
}

} // namespace shardplan::exec
