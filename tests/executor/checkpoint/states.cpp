#include "tests/executor/checkpoint/states.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "executor/comm/threads.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::test {

using exec::Box;
using exec::Index;
using exec::Scalar;
using exec::TensorBox;
using exec::TensorPart;

namespace {

struct TestTensor {
    std::string name;
    Scalar scalar;
    std::vector<Index> shape;
};

const std::vector<TestTensor>& test_tensors() {
    static const std::vector<TestTensor> tensors = {
        {"blocks.0.qkv.weight", Scalar::fp32, {12, 7}},
        {"blocks.0.qkv.weight.exp_avg", Scalar::fp64, {12, 7}},
        {"embedding \"of\" tokens \u00e4", Scalar::bf16, {33, 16}},
        {"blocks.0.up.bias", Scalar::fp32, {11}},
        {"blocks.0.experts", Scalar::fp32, {3, 4, 5}},
        {"steps", Scalar::int64, {}},
        {"random", Scalar::byte, {9}},
        {"counts", Scalar::int32, {1, 4}},
        {"head.weight", Scalar::bf16, {710, 1024}}, // more than one block of checksums
    };
    return tensors;
}

Index count_of(const std::vector<Index>& shape) { return exec::volume(exec::whole_of(shape)); }

Box range_of(const std::vector<Index>& shape, std::size_t dimension, Index begin, Index end) {
    Box box = exec::whole_of(shape);
    if (shape.empty()) return box; // has nothing to split
    box.first[dimension] = begin;
    box.extent[dimension] = end - begin;
    return box;
}

/// Gives each box memory of its own, `gap` elements between its rows.
void add_boxes(RankState& state, const TestTensor& tensor, const std::vector<Box>& boxes,
               Index gap = 0) {
    TensorPart part{tensor.name, tensor.scalar, tensor.shape, {}};
    for (const Box& box : boxes) {
        std::vector<Index> strides;
        Index elements = exec::volume(box);
        if (gap > 0 && !box.extent.empty()) {
            std::vector<Index> padded = box.extent;
            padded.back() += gap;
            strides = exec::dense_strides(padded);
            elements = count_of(padded);
        }
        state.memory.emplace_back(static_cast<std::size_t>(elements) * bytes_of(tensor.scalar));
        part.boxes.push_back({box, state.memory.back().data(), strides});
    }
    state.parts.push_back(std::move(part));
}

/// The part of rank `rank` of all `local` boxes of all tensors, laid one after the other.
void add_flat(RankState& state, int rank, int ranks,
              const std::function<std::vector<Box>(const TestTensor&)>& local) {
    Index total = 0;
    for (const TestTensor& tensor : test_tensors()) {
        for (const Box& box : local(tensor)) {
            total += exec::volume(box);
        }
    }
    const Index begin = total * rank / ranks;
    const Index end = total * (rank + 1) / ranks;
    Index start = 0;
    for (const TestTensor& tensor : test_tensors()) {
        const auto boxes = local(tensor);
        Index elements = 0;
        for (const Box& box : boxes) {
            elements += exec::volume(box);
        }
        const Index from = std::clamp(begin - start, Index{0}, elements);
        const Index to = std::clamp(end - start, Index{0}, elements);
        state.memory.emplace_back(static_cast<std::size_t>(to - from) * bytes_of(tensor.scalar));
        state.parts.push_back(
            {tensor.name, tensor.scalar, tensor.shape,
             exec::boxes_of_range(boxes, from, to, tensor.scalar, state.memory.back().data())});
        start += elements;
    }
}

/// Rows of one of two tensor-parallel ranks; three boxes where query, key and value are in one.
std::vector<Box> tensor_parallel_rows(const TestTensor& tensor, int half) {
    if (tensor.shape.empty() || tensor.shape[0] < 2) {
        return {exec::whole_of(tensor.shape)};
    }
    const Index parts = tensor.name.find("qkv") != std::string::npos ? 3 : 1;
    std::vector<Box> boxes;
    for (Index p = 0; p < parts; ++p) {
        const Index begin = tensor.shape[0] * p / parts;
        const Index end = tensor.shape[0] * (p + 1) / parts;
        const Index middle = (begin + end) / 2;
        boxes.push_back(
            range_of(tensor.shape, 0, half == 0 ? begin : middle, half == 0 ? middle : end));
    }
    return boxes;
}

/// Calls `f(bytes of the element, its place in the tensor, their number)` for all of a box.
template <class F>
void for_elements(const TensorPart& part, const TensorBox& box, F&& f) {
    const std::size_t width = bytes_of(part.scalar);
    const auto strides = box.strides.empty() ? exec::dense_strides(box.box.extent) : box.strides;
    const Index count = exec::volume(box.box);
    for (Index i = 0; i < count; ++i) {
        Index rest = i;
        Index place = 0;
        Index at = 0;
        Index global = 1;
        for (std::size_t d = part.shape.size(); d-- > 0;) {
            const Index inside = rest % box.box.extent[d];
            rest /= box.box.extent[d];
            at += inside * strides[d];
            place += (box.box.first[d] + inside) * global;
            global *= part.shape[d];
        }
        f(box.data + static_cast<std::size_t>(at) * width, place, width);
    }
}

} // namespace

std::uint64_t element_bits(const std::string& tensor, std::int64_t place,
                           std::uint64_t generation) {
    std::size_t hash = sim::hash_mix(generation, static_cast<std::uint64_t>(place));
    for (const char c : tensor) {
        hash = hash * 31 + static_cast<unsigned char>(c);
    }
    return sim::hash_mix(hash, 0);
}

RankState make_state(Split split, int rank, int ranks) {
    RankState state;
    if (split == Split::flat) {
        add_flat(state, rank, ranks, [](const TestTensor& tensor) {
            return std::vector<Box>{exec::whole_of(tensor.shape)};
        });
        return state;
    }
    if (split == Split::tensor_flat && ranks > 1) {
        if (rank < ranks / 2 * 2) {
            add_flat(state, rank / 2, ranks / 2, [&](const TestTensor& tensor) {
                return tensor_parallel_rows(tensor, rank % 2);
            });
        }
        return state;
    }
    for (const TestTensor& tensor : test_tensors()) {
        const auto& shape = tensor.shape;
        const std::size_t last = shape.empty() ? 0 : shape.size() - 1;
        const auto part = [&](std::size_t d, Index from, Index to, Index of) {
            const Index n = shape.empty() ? 1 : shape[d];
            return std::vector<Box>{range_of(shape, d, n * from / of, n * to / of)};
        };
        if (split == Split::rows) {
            add_boxes(state, tensor, part(0, rank, rank + 1, ranks));
        } else if (split == Split::columns) {
            add_boxes(state, tensor, part(last, rank, rank + 1, ranks), 3);
        } else if (split == Split::staggered && ranks > 1) {
            add_boxes(state, tensor, rank % 2 == 0 ? part(0, 0, 2, 3) : part(0, 1, 3, 3));
        } else {
            add_boxes(state, tensor, {exec::whole_of(shape)});
        }
    }
    return state;
}

void fill(RankState& state, std::uint64_t generation) {
    for (const TensorPart& part : state.parts) {
        for (const TensorBox& box : part.boxes) {
            for_elements(part, box, [&](std::byte* at, Index place, std::size_t width) {
                const std::uint64_t bits = element_bits(part.name, place, generation);
                std::memcpy(at, &bits, width);
            });
        }
    }
}

std::int64_t differences(const RankState& state, std::uint64_t generation) {
    std::int64_t count = 0;
    for (const TensorPart& part : state.parts) {
        for (const TensorBox& box : part.boxes) {
            for_elements(part, box, [&](const std::byte* at, Index place, std::size_t width) {
                const std::uint64_t bits = element_bits(part.name, place, generation);
                count += std::memcmp(at, &bits, width) != 0 ? 1 : 0;
            });
        }
    }
    return count;
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "shardplan-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

exec::Status save_state(const std::string& folder, Split split, int ranks, std::uint64_t generation,
                        exec::SaveOptions options) {
    const auto body = [&](exec::Communicator& world) -> exec::Status {
        RankState state = make_state(split, world.rank(), ranks);
        fill(state, generation);
        exec::CheckpointMeta meta;
        meta.step = static_cast<Index>(generation);
        meta.numbers["samples_read"] = 8 * meta.step;
        meta.texts["layout"] = "tp2 \u00d7 \"dp\"";
        auto saved = exec::save_checkpoint(world, folder, state.parts, meta, options);
        if (!saved) return std::move(saved).error();
        return sim::Done{};
    };
    return exec::run_ranks(ranks, body).status();
}

exec::Status load_state(const std::string& folder, Split split, int ranks,
                        std::uint64_t generation) {
    const auto body = [&](exec::Communicator& world) -> exec::Status {
        RankState state = make_state(split, world.rank(), ranks);
        const auto meta = exec::load_checkpoint(world, folder, state.parts);
        if (!meta) return meta.error();
        const auto wrong = differences(state, generation);
        if (wrong != 0 || meta->step != static_cast<Index>(generation) ||
            meta->numbers.at("samples_read") != 8 * meta->step ||
            meta->texts.at("layout") != "tp2 \u00d7 \"dp\"") {
            return exec::Error{exec::ErrorCode::backend_failed, "what was loaded",
                               std::to_string(wrong) + " elements of step " +
                                   std::to_string(meta->step) + " differ",
                               ""};
        }
        return sim::Done{};
    };
    return exec::run_ranks(ranks, body).status();
}

} // namespace shardplan::test
