#pragma once

#include <span>
#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"

/// Who writes what, computed by every rank from what all of them hold.
namespace shardplan::exec {

/// A TensorPart without its data.
struct PartLayout {
    std::string name;
    Scalar scalar = Scalar::fp32;
    std::vector<Index> shape;
    std::vector<Box> boxes;

    friend bool operator==(const PartLayout&, const PartLayout&) = default;
};

/// All that one rank holds.
struct RankLayout {
    std::vector<PartLayout> parts;
};

RankLayout layout_of(std::span<const TensorPart> parts);
std::string write_layout(RankLayout layout);
Result<RankLayout> read_layout(const std::string& text);

struct PlannedTensor {
    std::string name;
    Scalar scalar = Scalar::fp32;
    std::vector<Index> shape;
};

/// A box that one rank writes, into the `file`-th of its files: a file has one box of each tensor.
struct PlannedPiece {
    std::size_t tensor = 0;
    Box box;
    int rank = 0;
    int file = 0;
};

struct SavePlan {
    std::vector<PlannedTensor> tensors; ///< by name
    std::vector<PlannedPiece> pieces;   ///< by rank, tensor, then place
    int files = 0;                      ///< most files of one rank
};

/// Every element of every tensor is in one piece. What several ranks hold goes to the one that has
/// the least to write, large boxes in slices; the same on every rank and run. Errors: ranks that
/// disagree about a tensor, elements that none holds.
Result<SavePlan> plan_save(const std::vector<RankLayout>& ranks);

/// "shard-00002-model-00001-of-00003.safetensors": as PyTorch names them; both counted from 0 here.
std::string shard_name(int rank, int file, int files);

/// Errors: names that are empty, no UTF-8 or "__metadata__"; shapes with 0 or beyond 64 bits; boxes
/// outside them, without data, with strides that do not fit.
Status check_parts(std::span<const TensorPart> parts);
/// Whether the writer of JSON keeps every byte.
bool is_utf8(std::string_view text);

} // namespace shardplan::exec
