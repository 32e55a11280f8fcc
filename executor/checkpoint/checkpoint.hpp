#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "executor/checkpoint/box.hpp"
#include "executor/comm/communicator.hpp"

/// Training state in files that any number of ranks, under any layout, can read back. How they look
/// and why: README.md beside this.
namespace shardplan::exec {

/// What this rank holds of one tensor. The same list saves and loads.
struct TensorPart {
    std::string name; ///< "blocks.3.qkv.weight"; other state of it has names of its own
    Scalar scalar = Scalar::fp32;
    std::vector<Index> shape;     ///< of the whole tensor, row-major; no dimension is 0
    std::vector<TensorBox> boxes; ///< may be empty, or hold boxes without elements
};

/// What stands beside the tensors; the same on all ranks (that of rank 0 is stored).
struct CheckpointMeta {
    Index step = 0;                                ///< optimizer steps done
    std::map<std::string, Index> numbers = {};     ///< "samples_read"
    std::map<std::string, std::string> texts = {}; ///< "layout", "model_hash"

    friend bool operator==(const CheckpointMeta&, const CheckpointMeta&) = default;
};

struct SaveOptions {
    /// Checkpoints that stay in the folder, this one among them, the newest; at least 1.
    Index keep_last = 2;
};

/// Writes a checkpoint into a folder of its own below `directory`, which is made if it does not
/// exist, and points `directory`/latest to it. Every rank of `world` calls it, and all see the same
/// folder. Elements that several ranks hold are written by one of them. Until the last moment the
/// checkpoint before is the latest one, whatever is killed; the error of any rank is that of all.
/// Returns the path of the checkpoint. Errors: parts that contradict one another, elements that no
/// rank holds, another program that saves there, the system's.
Result<std::string> save_checkpoint(Communicator& world, const std::string& directory,
                                    std::span<const TensorPart> own, const CheckpointMeta& meta,
                                    const SaveOptions& options = {});

/// Fills the boxes of `wanted` from the latest checkpoint of `directory`, or from the checkpoint
/// that `directory` is itself, whatever number of ranks wrote it under whatever layout. Every rank
/// of `world` calls it. Reads no file that holds none of these boxes, and checks what it reads.
/// After an error the contents of the boxes are undefined. Errors: no checkpoint, damaged or
/// missing files, tensors it lacks, other shapes or types, of any rank.
Result<CheckpointMeta> load_checkpoint(Communicator& world, const std::string& directory,
                                       std::span<const TensorPart> wanted);

/// What stands in the latest checkpoint of `directory`, or in the checkpoint it is itself, beside
/// the tensors: to be read before the layout of the state is known. By one rank alone.
Result<CheckpointMeta> read_checkpoint_meta(const std::string& directory);

/// Fills the boxes of `wanted` from files of others: all *.safetensors of a folder, whole tensors
/// or shards as PyTorch's distributed checkpoint writes them. They carry no checksums. By one rank
/// alone.
Status load_safetensors(const std::string& directory, std::span<const TensorPart> wanted);

/// Checkpoints in `directory`, oldest first, as `load_checkpoint` takes them.
std::vector<std::string> list_checkpoints(const std::string& directory);

} // namespace shardplan::exec
