#pragma once

#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/checkpoint/shard_file.hpp"

namespace shardplan::exec {

/// A tensor and the files that hold boxes of it.
struct StoredTensor {
    std::string name;
    std::string dtype; ///< "F32"
    std::vector<Index> shape;
    std::vector<Index> files; ///< places in the list of files

    friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

/// What the file index.json of a checkpoint says.
struct CheckpointIndex {
    CheckpointMeta meta;
    Index ranks = 1; ///< that wrote it
    std::vector<StoredFile> files;
    std::vector<StoredTensor> tensors; ///< by name

    friend bool operator==(const CheckpointIndex&, const CheckpointIndex&) = default;
};

constexpr const char* index_name = "index.json";

void describe(sim::FieldVisitor& v, StoredFile& x);

/// The text of an index, with a hash of the rest.
std::string write_index(const CheckpointIndex& index);
/// Errors: no index, of a later format, changed after it was written, numbers that lead nowhere.
Result<CheckpointIndex> parse_index(std::string_view text, const std::string& source);
/// Of the checkpoint in a folder.
Result<CheckpointIndex> read_index(const std::string& folder);
/// Of files of others: all *.safetensors of a folder. A tensor reaches as far as its boxes.
Result<CheckpointIndex> index_of_files(const std::string& folder);

} // namespace shardplan::exec
