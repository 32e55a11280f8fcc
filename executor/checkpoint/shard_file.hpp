#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/checkpoint/safetensors.hpp"
#include "simulator/io/descriptor.hpp"

/// One safetensors file: written once, read in parts.
namespace shardplan::exec {

/// What an index says of a file, so that it is known to be the one that was written.
struct StoredFile {
    std::string file; ///< name in the folder of the checkpoint
    Index bytes = 0;
    std::string header_sum; ///< CRC-32C of all before the data

    friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

/// A box to be written: of a tensor, and the box of this rank's memory that holds it.
struct ShardPiece {
    std::string name;
    Scalar scalar = Scalar::fp32;
    Box box;
    const TensorBox* source = nullptr;
};

/// Writes `folder`/`file` and makes it last on the disk. One piece of each name.
Result<StoredFile> write_shard(const std::string& folder, const std::string& file,
                               const std::vector<ShardPiece>& pieces);

/// An open file. Where it carries sums, whole blocks are read and checked, and the last one is
/// kept: reading in the order of the file reads each block once.
class ShardReader {
public:
    static Result<ShardReader> open(const std::string& path);
    /// The same; refuses a file that is not the one described.
    static Result<ShardReader> open(const std::string& folder, const StoredFile& expected);

    [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
    /// nullptr if there is none of this name.
    [[nodiscard]] const StoredBox* find(std::string_view name) const;
    /// `part`, which lies in `stored` and in `to`, goes there.
    Status read(const StoredBox& stored, const Box& part, const TensorBox& to);

private:
    ShardReader(std::string path, sim::Descriptor file)
        : path_(std::move(path)), file_(std::move(file)) {}

    static Result<ShardReader> open(const std::string& path, const StoredFile* expected);
    /// Bytes of the data, from `at` on.
    Status read_bytes(Index at, Index bytes, std::byte* to);
    Status load_block(Index number);

    std::string path_;
    sim::Descriptor file_;
    SafetensorsHeader header_;
    std::vector<std::size_t> by_name_; ///< places in header_.boxes
    Index data_begin_ = 0;
    Index data_bytes_ = 0;
    std::vector<std::byte> block_;
    Index block_number_ = -1;
};

} // namespace shardplan::exec
